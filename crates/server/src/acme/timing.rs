//! When a certificate is ordered: ahead of its end, and seldom where that fails.
//!
//! Plain arithmetic on Unix time in seconds. What has failed is [written down](Attempts), so that neither a restart nor a
//! crash makes anybody ask an authority more often.

use serde::{Deserialize, Serialize};
use veche_outbound::acme::Failed;

/// The part of its life that a certificate has behind it when it is renewed, as authorities advise: 60 days of 90.
const RENEW_AFTER: f64 = 2.0 / 3.0;

/// Up to so much of its life earlier, so that those who began together don't renew together.
const RENEW_SPREAD: f64 = 1.0 / 20.0;

/// After one that was issued the next order for the same names comes so late at the earliest, whatever it says of itself.
const AFTER_ISSUED_S: i64 = 3600;

/// The waits after failures, each the double of the one before: the first, and the longest.
const UNREACHABLE_S: [i64; 2] = [10, 3600];
/// Let's Encrypt takes five failed proofs for a name in an hour.
const REFUSED_S: [i64; 2] = [180, 12 * 3600];
const LIMITED_S: [i64; 2] = [3600, 24 * 3600];

/// Waits are up to so much longer, at random.
const WAIT_SPREAD: f64 = 0.25;

/// What has come of orders for certain names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Attempts {
    /// Those that it was ordered for.
    pub(crate) names: Vec<String>,
    /// In a row.
    pub(crate) failures: u32,
    /// There is no other order before that time.
    pub(crate) next_s: i64,
}

impl Attempts {
    /// After an order that was answered with a certificate.
    pub(crate) fn issued(names: &[String], now_s: i64) -> Self {
        Self {
            names: names.to_vec(),
            failures: 0,
            next_s: now_s + AFTER_ISSUED_S,
        }
    }

    /// After these and another failure; `random` is from 0 to 1. `None`: one that is under way counts as refused, since
    /// nobody may be left to say otherwise.
    pub(crate) fn failed(
        &self,
        names: &[String],
        why: Option<&Failed>,
        now_s: i64,
        random: f64,
    ) -> Self {
        let before = match self.names == names {
            true => self.failures,
            false => 0,
        };
        let [first_s, longest_s] = match why {
            Some(Failed::Unreachable(_)) => UNREACHABLE_S,
            // The next one is made with another account.
            Some(Failed::NoAccount(_)) if before == 0 => UNREACHABLE_S,
            Some(Failed::Limited(_)) => LIMITED_S,
            None | Some(Failed::Refused(_) | Failed::NoAccount(_)) => REFUSED_S,
        };
        let wait_s = first_s.saturating_mul(1 << before.min(20)).min(longest_s);
        let wait_s = wait_s + (wait_s as f64 * WAIT_SPREAD * random) as i64;
        Self {
            names: names.to_vec(),
            failures: before.saturating_add(1),
            next_s: now_s + wait_s,
        }
    }

    /// When the next order for these names may be; a clock that was ahead does not keep it away for ever.
    fn may_order_s(&self, names: &[String], now_s: i64) -> i64 {
        let longest_s = LIMITED_S[1] + (LIMITED_S[1] as f64 * WAIT_SPREAD) as i64;
        match self.names == names && self.next_s <= now_s + longest_s {
            true => self.next_s,
            false => 0,
        }
    }
}

/// What is known of a certificate that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    /// In small letters.
    pub(crate) names: Vec<String>,
    pub(crate) valid_from_s: i64,
    pub(crate) valid_until_s: i64,
}

impl Held {
    /// When it is renewed; `random` is from 0 to 1, and the same each time.
    pub(crate) fn renew_s(&self, random: f64) -> i64 {
        let life_s = self.valid_until_s.saturating_sub(self.valid_from_s).max(0) as f64;
        self.valid_from_s + (life_s * (RENEW_AFTER - RENEW_SPREAD * random)) as i64
    }

    fn is_for(&self, names: &[String]) -> bool {
        names.iter().all(|name| self.names.contains(name))
    }
}

/// When a certificate for these names is ordered, given the one there is and what came of orders before.
pub(crate) fn due_s(
    names: &[String],
    held: Option<&Held>,
    attempts: &Attempts,
    now_s: i64,
    random: f64,
) -> i64 {
    let wanted_s = match held.filter(|held| held.is_for(names)) {
        Some(held) => held.renew_s(random),
        None => 0,
    };
    wanted_s.max(attempts.may_order_s(names, now_s))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_S: i64 = 86_400;
    const NOW_S: i64 = 1_800_000_000;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    fn held(of: &[&str], days_behind: i64, days_ahead: i64) -> Held {
        Held {
            names: names(of),
            valid_from_s: NOW_S - days_behind * DAY_S,
            valid_until_s: NOW_S + days_ahead * DAY_S,
        }
    }

    #[test]
    fn a_certificate_is_renewed_when_a_third_of_its_life_is_left() {
        let own = names(&["a.example"]);
        let none = Attempts::default();
        let due = |held: Option<&Held>, random| due_s(&own, held, &none, NOW_S, random);
        let young = held(&["a.example", "b.example"], 0, 90);
        assert_eq!(due(Some(&young), 0.0), NOW_S + 60 * DAY_S);
        let early = due(Some(&young), 1.0);
        assert!(
            (NOW_S + 55 * DAY_S..NOW_S + 56 * DAY_S).contains(&early),
            "{early}"
        );
        // Of six days two are left.
        let short = held(&["a.example"], 0, 6);
        assert_eq!(due(Some(&short), 0.0), NOW_S + 4 * DAY_S);
        // None, one for other names, one that has expired: at once.
        assert!(due(None, 0.5) <= NOW_S);
        assert!(due(Some(&held(&["b.example"], 0, 90)), 0.5) <= NOW_S);
        assert!(due(Some(&held(&["a.example"], 90, -1)), 0.5) <= NOW_S);
        // One that makes no sense is as good as none, and no panic.
        let odd = Held {
            names: own.clone(),
            valid_from_s: i64::MAX,
            valid_until_s: i64::MIN,
        };
        let _ = due(Some(&odd), 1.0);
    }

    #[test]
    fn failures_are_paid_for_with_waiting() {
        let own = names(&["a.example"]);
        let waits = |why: Option<&Failed>, count: usize| {
            let (mut attempts, mut waits) = (Attempts::default(), Vec::new());
            for _ in 0..count {
                attempts = attempts.failed(&own, why, NOW_S, 0.0);
                waits.push(due_s(&own, None, &attempts, NOW_S, 0.0) - NOW_S);
            }
            waits
        };
        let unreachable = Failed::Unreachable(String::new());
        assert_eq!(waits(Some(&unreachable), 4), [10, 20, 40, 80]);
        assert_eq!(waits(Some(&unreachable), 40)[39], 3600);
        let refused = Failed::Refused(String::new());
        // No more than five in the first hour, and two a day in the end.
        assert_eq!(waits(Some(&refused), 5), [180, 360, 720, 1440, 2880]);
        assert_eq!(waits(None, 60)[59], 12 * 3600);
        let limited = Failed::Limited(String::new());
        assert_eq!(waits(Some(&limited), 1), [3600]);
        let lost = Failed::NoAccount(String::new());
        assert_eq!(waits(Some(&lost), 2), [10, 360]);
        let spread = Attempts::default().failed(&own, Some(&refused), NOW_S, 1.0);
        assert_eq!(spread.next_s, NOW_S + 180 + 45);
    }

    #[test]
    fn other_names_and_other_clocks_wait_for_nothing() {
        let (own, other) = (names(&["a.example"]), names(&["a.example", "b.example"]));
        let issued = Attempts::issued(&own, NOW_S);
        // An authority that issues what is no good is not asked again at once.
        assert_eq!(due_s(&own, None, &issued, NOW_S, 0.0), NOW_S + 3600);
        assert!(due_s(&other, None, &issued, NOW_S, 0.0) <= NOW_S);
        let failed = issued.failed(&own, None, NOW_S, 0.0);
        assert_eq!(failed.failed(&other, None, NOW_S, 0.0).failures, 1);
        // The clock was a year ahead when that was written.
        assert!(due_s(&own, None, &failed, NOW_S - 365 * DAY_S, 0.0) <= NOW_S - 365 * DAY_S);
    }
}
