//! What has come of questions to issuers, back ends and PAM; read by `/metrics`.

use crate::asking::{Count, Latency};

/// How a question to a back end or to PAM has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// It named a user.
    Named,
    /// 401 or 403; a password that is wrong.
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
    /// Of PAM: too many passwords of the address were wrong.
    Throttled,
}

impl Asked {
    /// How questions to back ends end, with the labels in the metrics.
    pub(crate) const OF_HOOKS: [(Self, &'static str); 7] = [
        (Self::Named, "named"),
        (Self::Refused, "refused"),
        (Self::Failed, "failed"),
        (Self::Cached, "cached"),
        (Self::Joined, "joined"),
        (Self::Paused, "paused"),
        (Self::Crowded, "crowded"),
    ];
    /// How questions to PAM end.
    pub(crate) const OF_PAM: [(Self, &'static str); 7] = [
        (Self::Named, "named"),
        (Self::Refused, "refused"),
        (Self::Failed, "failed"),
        (Self::Cached, "cached"),
        (Self::Joined, "joined"),
        (Self::Crowded, "crowded"),
        (Self::Throttled, "throttled"),
    ];
    const COUNT: usize = Self::Throttled as usize + 1;
}

/// Of passwords.
#[derive(Debug, Default)]
pub(crate) struct Passwords {
    pub(crate) checks: [Count; Asked::COUNT],
    /// Requests that wait for a helper's word.
    pub(crate) waiting: Count,
    /// Helpers that run.
    pub(crate) helpers: Count,
    /// Helpers that have begun.
    pub(crate) started: Count,
}

impl Passwords {
    pub(crate) fn asked(&self, how: Asked) {
        self.checks[how as usize].add(1);
    }
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    pub(crate) asked: [Count; Asked::COUNT],
    /// Requests that wait for a back end.
    pub(crate) waiting: Count,
    /// How long back ends took to answer.
    pub(crate) took: Latency,
    /// Sets of keys that were fetched, and fetches that have failed.
    pub(crate) fetched: [Count; 2],
    pub(crate) passwords: Passwords,
}

impl Figures {
    pub(crate) fn asked(&self, how: Asked) {
        self.asked[how as usize].add(1);
    }

    pub(crate) fn fetched(&self, is_good: bool) {
        self.fetched[usize::from(!is_good)].add(1);
    }
}
