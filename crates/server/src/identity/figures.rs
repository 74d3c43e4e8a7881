//! What has come of questions to issuers and back ends; read by `/metrics`.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A number that any thread adds to: questions are rare beside messages.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Relaxed);
    }

    pub(crate) fn sub(&self, count: u64) {
        self.0.fetch_sub(count, Relaxed);
    }

    pub(crate) fn read(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// How a question to a back end has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// It named a user.
    Named,
    /// 401 or 403.
    Refused,
    /// Neither, or nothing.
    Failed,
    /// An answer was kept from before.
    Cached,
    /// Somebody else was asking the same.
    Joined,
    /// The back end is left alone for now.
    Paused,
    /// Too many wait already.
    Crowded,
}

impl Asked {
    /// Every end, with its label in the metrics.
    pub(crate) const ALL: [(Self, &'static str); 7] = [
        (Self::Named, "named"),
        (Self::Refused, "refused"),
        (Self::Failed, "failed"),
        (Self::Cached, "cached"),
        (Self::Joined, "joined"),
        (Self::Paused, "paused"),
        (Self::Crowded, "crowded"),
    ];
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    pub(crate) asked: [Count; Asked::ALL.len()],
    /// Requests that wait for a back end.
    pub(crate) waiting: Count,
    /// Sets of keys that were fetched, and fetches that have failed.
    pub(crate) fetched: [Count; 2],
}

impl Figures {
    pub(crate) fn asked(&self, how: Asked) {
        self.asked[how as usize].add(1);
    }

    pub(crate) fn fetched(&self, is_good: bool) {
        self.fetched[usize::from(!is_good)].add(1);
    }
}
