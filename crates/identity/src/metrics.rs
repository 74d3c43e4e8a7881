//! What has come of questions to issuers, back ends and PAM; read by `/metrics`.

use veche_outbound::{LatencyHistogram, SharedCounter};

/// How a question to a back end or to PAM has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookupOutcome {
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

impl LookupOutcome {
    /// How questions to back ends end, with the labels in the metrics.
    pub const OF_HOOKS: [(Self, &'static str); 7] = [
        (Self::Named, "named"),
        (Self::Refused, "refused"),
        (Self::Failed, "failed"),
        (Self::Cached, "cached"),
        (Self::Joined, "joined"),
        (Self::Paused, "paused"),
        (Self::Crowded, "crowded"),
    ];
    /// How questions to PAM end.
    pub const OF_PAM: [(Self, &'static str); 7] = [
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
pub struct PasswordMetrics {
    /// Checks of passwords, by how they ended.
    pub checks: [SharedCounter; LookupOutcome::COUNT],
    /// Requests that wait for a helper's word.
    pub waiting: SharedCounter,
    /// Helpers that run.
    pub helpers: SharedCounter,
    /// Helpers that have begun.
    pub started: SharedCounter,
}

impl PasswordMetrics {
    /// A password was checked.
    pub fn asked(&self, how: LookupOutcome) {
        self.checks[how as usize].add(1);
    }
}

/// See the module's text.
#[derive(Debug, Default)]
pub struct IdentityMetrics {
    /// Questions to the back end, by how they ended.
    pub asked: [SharedCounter; LookupOutcome::COUNT],
    /// Requests that wait for a back end.
    pub waiting: SharedCounter,
    /// How long back ends took to answer.
    pub took: LatencyHistogram,
    /// Sets of keys that were fetched, and fetches that have failed.
    pub fetched: [SharedCounter; 2],
    /// Those of PAM.
    pub passwords: PasswordMetrics,
}

impl IdentityMetrics {
    /// A question has ended.
    pub fn count_lookup(&self, how: LookupOutcome) {
        self.asked[how as usize].add(1);
    }

    /// A set of keys was fetched, or not.
    pub fn count_fetch(&self, is_good: bool) {
        self.fetched[usize::from(!is_good)].add(1);
    }
}
