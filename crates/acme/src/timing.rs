//! When to order a certificate: before its end, and with increasing delays after failures.
//!
//! Plain arithmetic on Unix time in seconds. Failures are [recorded](OrderHistory), so that restarts and crashes cause
//! no additional requests.

use serde::{Deserialize, Serialize};
use veche_outbound::acme::OrderError;

/// The share of a certificate's lifetime after which it is renewed, as authorities advise: 60 days of 90.
const RENEW_AFTER: f64 = 2.0 / 3.0;

/// The share of the lifetime by which renewals are randomly advanced, so that certificates issued together are not
/// renewed together.
const RENEW_SPREAD: f64 = 1.0 / 20.0;

/// The minimum delay between the issue of a certificate and the next order for the same names, in seconds, whatever the
/// certificate's lifetime.
const AFTER_ISSUED_S: i64 = 3600;

/// The first and the longest delay, in seconds, after failures to reach the authority. Each delay is twice the previous
/// one.
const UNREACHABLE_S: [i64; 2] = [10, 3600];
/// The first and the longest delay after refusals, in seconds, like `UNREACHABLE_S`. Let's Encrypt accepts five failed
/// proofs for a name per hour.
const REFUSED_S: [i64; 2] = [180, 12 * 3600];
const LIMITED_S: [i64; 2] = [3600, 24 * 3600];

/// The largest share by which delays are randomly extended.
const WAIT_SPREAD: f64 = 0.25;

/// The history of orders for a set of names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct OrderHistory {
    /// The names of the last order.
    pub(super) names: Vec<String>,
    /// The number of consecutive failures of any kind.
    pub(super) failures: u32,
    /// The kind of the last failure.
    kind: Option<FailureKind>,
    /// The number of consecutive failures of the same kind as the last. It determines the delay, so that the first
    /// refusal after a long outage does not cause a long delay.
    alike: u32,
    /// The earliest time of the next order.
    pub(super) next_s: i64,
}

/// The kinds of failures, which differ in their delays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum FailureKind {
    Unreachable,
    Refused,
    Limited,
}

impl OrderHistory {
    /// Returns the history after a certificate was issued.
    pub(super) fn issued(names: &[String], now_s: i64) -> Self {
        Self {
            names: names.to_vec(),
            next_s: now_s + AFTER_ISSUED_S,
            ..Self::default()
        }
    }

    /// Returns the history after a failure for the reason `why`; `random` is from 0 to 1. If `why` is `None`, the
    /// order is still in progress: it counts as refused in case the process crashes.
    pub(super) fn failed(
        &self,
        names: &[String],
        why: Option<&OrderError>,
        now_s: i64,
        random: f64,
    ) -> Self {
        let before = match self.names == names {
            true => self.clone(),
            false => Self::default(),
        };
        let (kind, [first_s, longest_s]) = match why {
            Some(OrderError::Unreachable(_)) => (FailureKind::Unreachable, UNREACHABLE_S),
            // The next order uses a new account, so it need not be delayed like other refused orders.
            Some(OrderError::NoAccount(_)) if before.failures == 0 => {
                (FailureKind::Refused, UNREACHABLE_S)
            }
            Some(OrderError::Limited { .. } | OrderError::Lost(_)) => {
                (FailureKind::Limited, LIMITED_S)
            }
            None | Some(OrderError::Refused(_) | OrderError::NoAccount(_)) => {
                (FailureKind::Refused, REFUSED_S)
            }
        };
        let alike = match before.kind == Some(kind) {
            true => before.alike,
            false => 0,
        };
        let wait_s = first_s.saturating_mul(1 << alike.min(20)).min(longest_s);
        let asked_s = match why {
            Some(OrderError::Limited { after_s, .. }) => (*after_s).min(LIMITED_S[1] as u64) as i64,
            _ => 0,
        };
        let wait_s = wait_s.max(asked_s);
        let wait_s = wait_s + (wait_s as f64 * WAIT_SPREAD * random) as i64;
        Self {
            names: names.to_vec(),
            failures: before.failures.saturating_add(1),
            kind: Some(kind),
            alike: alike.saturating_add(1),
            next_s: now_s + wait_s,
        }
    }

    /// Returns the earliest time of the next order; 0 if the history is of other names. A stored time beyond the longest
    /// delay was computed while the clock was ahead, so it is ignored.
    fn earliest_order_s(&self, names: &[String], now_s: i64) -> i64 {
        let longest_s = LIMITED_S[1] + (LIMITED_S[1] as f64 * WAIT_SPREAD) as i64;
        match self.names == names && self.next_s <= now_s + longest_s {
            true => self.next_s,
            false => 0,
        }
    }
}

/// The properties of an existing certificate that determine when it is replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CertificateInfo {
    /// The names in lower case.
    pub(super) names: Vec<String>,
    pub(super) valid_from_s: i64,
    pub(super) valid_until_s: i64,
}

impl CertificateInfo {
    /// Returns the time at which to renew the certificate; `random` is from 0 to 1 and must be the
    /// same in every call.
    pub(super) fn renew_s(&self, random: f64) -> i64 {
        let life_s = self.valid_until_s.saturating_sub(self.valid_from_s).max(0) as f64;
        self.valid_from_s + (life_s * (RENEW_AFTER - RENEW_SPREAD * random)) as i64
    }

    /// Returns whether the certificate is valid for the names.
    pub(super) fn is_good(&self, names: &[String], now_s: i64) -> bool {
        self.is_for(names) && now_s <= self.valid_until_s
    }

    /// Checks that the certificate matches the order. Storing one that does not match would make
    /// the next order due at once.
    pub(super) fn check_issued(&self, names: &[String], now_s: i64) -> Result<(), String> {
        let why = match () {
            () if !self.is_for(names) => {
                format!(
                    "the certificate lacks a requested name; it is for {:?}",
                    self.names
                )
            }
            () if now_s < self.valid_from_s => {
                format!(
                    "the certificate is not valid before {}, in Unix time",
                    self.valid_from_s
                )
            }
            () if now_s > self.valid_until_s => {
                format!(
                    "the certificate was valid until {}, in Unix time",
                    self.valid_until_s
                )
            }
            () if now_s >= self.renew_s(1.0) => {
                "the certificate would have to be renewed at once".to_owned()
            }
            () => return Ok(()),
        };
        Err(format!(
            "the issued certificate is unusable: {why} (is the clock right?)"
        ))
    }

    pub(super) fn is_for(&self, names: &[String]) -> bool {
        names.iter().all(|name| self.names.contains(name))
    }
}

/// Returns the time at which to order a certificate, given the existing one and the history.
pub(super) fn due_s(
    names: &[String],
    held: Option<&CertificateInfo>,
    attempts: &OrderHistory,
    now_s: i64,
    random: f64,
) -> i64 {
    let wanted_s = match held.filter(|held| held.is_for(names)) {
        Some(held) => held.renew_s(random),
        None => 0,
    };
    wanted_s.max(attempts.earliest_order_s(names, now_s))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_S: i64 = 86_400;
    const NOW_S: i64 = 1_800_000_000;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    fn held(of: &[&str], days_behind: i64, days_ahead: i64) -> CertificateInfo {
        CertificateInfo {
            names: names(of),
            valid_from_s: NOW_S - days_behind * DAY_S,
            valid_until_s: NOW_S + days_ahead * DAY_S,
        }
    }

    #[test]
    fn a_certificate_is_renewed_when_a_third_of_its_life_is_left() {
        let own = names(&["a.example"]);
        let none = OrderHistory::default();
        let due = |held: Option<&CertificateInfo>, random| due_s(&own, held, &none, NOW_S, random);
        let young = held(&["a.example", "b.example"], 0, 90);
        assert_eq!(due(Some(&young), 0.0), NOW_S + 60 * DAY_S);
        let early = due(Some(&young), 1.0);
        assert!(
            (NOW_S + 55 * DAY_S..NOW_S + 56 * DAY_S).contains(&early),
            "{early}"
        );
        // A certificate that is valid for six days is renewed when two days are left.
        let short = held(&["a.example"], 0, 6);
        assert_eq!(due(Some(&short), 0.0), NOW_S + 4 * DAY_S);
        // A certificate is ordered at once if there is none, or if the existing one has other names
        // or has expired.
        assert!(due(None, 0.5) <= NOW_S);
        assert!(due(Some(&held(&["b.example"], 0, 90)), 0.5) <= NOW_S);
        assert!(due(Some(&held(&["a.example"], 90, -1)), 0.5) <= NOW_S);
        // Nonsensical dates count as no certificate and cause no panic.
        let odd = CertificateInfo {
            names: own.clone(),
            valid_from_s: i64::MAX,
            valid_until_s: i64::MIN,
        };
        let _ = due(Some(&odd), 1.0);
    }

    #[test]
    fn failures_are_paid_for_with_waiting() {
        let own = names(&["a.example"]);
        let waits = |why: Option<&OrderError>, count: usize| {
            let (mut attempts, mut waits) = (OrderHistory::default(), Vec::new());
            for _ in 0..count {
                attempts = attempts.failed(&own, why, NOW_S, 0.0);
                waits.push(due_s(&own, None, &attempts, NOW_S, 0.0) - NOW_S);
            }
            waits
        };
        let unreachable = OrderError::Unreachable(String::new());
        assert_eq!(waits(Some(&unreachable), 4), [10, 20, 40, 80]);
        assert_eq!(waits(Some(&unreachable), 40)[39], 3600);
        let refused = OrderError::Refused(String::new());
        // At most five attempts are made in the first hour, and in the long run two a day.
        assert_eq!(waits(Some(&refused), 5), [180, 360, 720, 1440, 2880]);
        assert_eq!(waits(None, 60)[59], 12 * 3600);
        let limited = |after_s| OrderError::Limited {
            why: String::new(),
            after_s,
        };
        assert_eq!(waits(Some(&limited(0)), 2), [3600, 7200]);
        assert_eq!(waits(Some(&limited(5000)), 2), [5000, 7200]);
        assert_eq!(waits(Some(&limited(u64::MAX)), 1), [86_400]);
        assert_eq!(waits(Some(&OrderError::Lost(String::new())), 6)[5], 86_400);
        let lost = OrderError::NoAccount(String::new());
        assert_eq!(waits(Some(&lost), 2), [10, 360]);
        let spread = OrderHistory::default().failed(&own, Some(&refused), NOW_S, 1.0);
        assert_eq!(spread.next_s, NOW_S + 180 + 45);
    }

    #[test]
    fn failures_of_another_kind_restart_the_delay() {
        let own = names(&["a.example"]);
        let unreachable = OrderError::Unreachable(String::new());
        let refused = OrderError::Refused(String::new());
        let mut attempts = OrderHistory::default();
        for _ in 0..10 {
            attempts = attempts.failed(&own, Some(&unreachable), NOW_S, 0.0);
        }
        let after = |before: &OrderHistory, why| {
            let after = before.failed(&own, why, NOW_S, 0.0);
            (after.failures, after.next_s - NOW_S)
        };
        assert_eq!(after(&attempts, Some(&unreachable)), (11, 3600));
        assert_eq!(after(&attempts, Some(&refused)), (11, 180));
        // An order without a recorded end counts as refused.
        assert_eq!(after(&attempts, None), (11, 180));
        let once = attempts.failed(&own, Some(&refused), NOW_S, 0.0);
        assert_eq!(after(&once, None), (12, 360));
        assert_eq!(after(&once, Some(&unreachable)), (12, 10));
        // The history survives serialisation.
        let text = serde_json::to_string(&once).expect("JSON");
        assert_eq!(
            serde_json::from_str::<OrderHistory>(&text).expect("JSON"),
            once
        );
    }

    #[test]
    fn the_issued_certificate_must_match_the_order() {
        let own = names(&["a.example", "b.example"]);
        let check = |held: CertificateInfo| held.check_issued(&own, NOW_S);
        let both = ["b.example", "a.example"];
        assert_eq!(check(held(&both, 0, 90)), Ok(()));
        assert!(held(&both, 80, 10).is_good(&own, NOW_S));
        for (bad, is_good) in [
            (held(&["a.example"], 0, 90), false),
            (held(&both, -1, 90), true),
            (held(&both, 90, -1), false),
            (held(&both, 80, 10), true),
        ] {
            assert_eq!(bad.is_good(&own, NOW_S), is_good, "{bad:?}");
            assert!(check(bad).is_err());
        }
    }

    #[test]
    fn other_names_and_other_clocks_wait_for_nothing() {
        let (own, other) = (names(&["a.example"]), names(&["a.example", "b.example"]));
        let issued = OrderHistory::issued(&own, NOW_S);
        // An authority that issues unusable certificates does not get another order immediately.
        assert_eq!(due_s(&own, None, &issued, NOW_S, 0.0), NOW_S + 3600);
        assert!(due_s(&other, None, &issued, NOW_S, 0.0) <= NOW_S);
        let failed = issued.failed(&own, None, NOW_S, 0.0);
        assert_eq!(failed.failed(&other, None, NOW_S, 0.0).failures, 1);
        // The clock was a year ahead when the history was written.
        assert!(due_s(&own, None, &failed, NOW_S - 365 * DAY_S, 0.0) <= NOW_S - 365 * DAY_S);
    }
}
