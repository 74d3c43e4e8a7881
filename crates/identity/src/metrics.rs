//! Counters of requests to issuers, back ends and PAM, for `/metrics`.

use veche_outbound::{AtomicCounter, LatencyHistogram};

/// The outcome of a request to a back end or to PAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookupOutcome {
    /// The answer named a user.
    Named,
    /// The answer was 401 or 403, or the password was wrong.
    Refused,
    /// No usable response was received.
    Failed,
    /// The answer was cached.
    Cached,
    /// The request was merged with an identical one.
    Joined,
    /// Requests were suspended because of failures.
    Paused,
    /// Too many requests were waiting.
    Crowded,
    /// PAM only: the address has sent too many wrong passwords.
    Throttled,
}

impl LookupOutcome {
    /// The outcomes of identity hooks with their metric labels.
    pub const OF_HOOKS: [(Self, &'static str); 7] = [
        (Self::Named, "named"),
        (Self::Refused, "refused"),
        (Self::Failed, "failed"),
        (Self::Cached, "cached"),
        (Self::Joined, "joined"),
        (Self::Paused, "paused"),
        (Self::Crowded, "crowded"),
    ];
    /// The outcomes of PAM with their metric labels.
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

/// Counters of password checks.
#[derive(Debug, Default)]
pub struct PasswordMetrics {
    /// Number of password checks by outcome.
    pub checks: [AtomicCounter; LookupOutcome::COUNT],
    /// The number of password checks that wait for a PAM helper process.
    pub waiting: AtomicCounter,
    /// The number of running PAM helper processes.
    pub helpers: AtomicCounter,
    /// The number of PAM helper processes started so far.
    pub started: AtomicCounter,
}

impl PasswordMetrics {
    /// Counts a password check.
    pub fn asked(&self, how: LookupOutcome) {
        self.checks[how as usize].add(1);
    }
}

/// Counters of all identity providers.
#[derive(Debug, Default)]
pub struct IdentityMetrics {
    /// Number of identity hook requests by outcome.
    pub asked: [AtomicCounter; LookupOutcome::COUNT],
    /// The number of requests that wait for a back end.
    pub waiting: AtomicCounter,
    /// The response times of back ends.
    pub took: LatencyHistogram,
    /// Number of refreshes of key sets: index 0 successful, index 1 failed.
    pub fetched: [AtomicCounter; 2],
    /// Counters of password checks by PAM.
    pub passwords: PasswordMetrics,
}

impl IdentityMetrics {
    /// Counts an identity hook request.
    pub fn count_lookup(&self, how: LookupOutcome) {
        self.asked[how as usize].add(1);
    }

    /// Counts a refresh of a key set.
    pub fn count_fetch(&self, is_good: bool) {
        self.fetched[usize::from(!is_good)].add(1);
    }
}
