//! The delay before a dead server process is restarted: zero, unless processes repeatedly die soon after they become ready.
//!
//! The module has no side effects: it computes delays from lifetimes.

use std::time::{Duration, Instant};

/// A process that served for less than this time has died early. Something at its start probably kills it, so restarting at
/// once would only waste CPU.
pub(crate) const YOUNG: Duration = Duration::from_secs(5);
/// The delay before the restart after the first early death of a process.
const WAIT_FIRST: Duration = Duration::from_millis(200);
/// The longest delay before a restart.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(30);

/// Counts consecutive early deaths.
#[derive(Debug, Default)]
pub(crate) struct RestartBackoff {
    young_deaths: u32,
}

/// Returns how long a process has served since it was ready. The time until the process became ready does not count;
/// otherwise a process with a slow start that dies as soon as it is ready would always be restarted at once.
pub(crate) fn served(ready_at: Option<Instant>, now: Instant) -> Duration {
    ready_at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at))
}

impl RestartBackoff {
    /// Returns the delay before the next start, after a process that served for this time.
    pub(crate) fn wait_after(&mut self, served: Duration) -> Duration {
        if served >= YOUNG {
            self.young_deaths = 0;
            return Duration::ZERO;
        }
        let doublings = self.young_deaths;
        self.young_deaths = self.young_deaths.saturating_add(1);
        WAIT_FIRST
            .checked_mul(1 << doublings.min(16))
            .map_or(WAIT_MAX, |wait| wait.min(WAIT_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_start_is_no_life() {
        let now = veche_clock::now();
        let minute = Duration::from_secs(60);
        assert_eq!(served(None, now + minute), Duration::ZERO);
        assert_eq!(served(Some(now + minute), now + minute), Duration::ZERO);
        assert_eq!(served(Some(now), now + minute), minute);
    }

    #[test]
    fn only_young_deaths_wait_longer_and_longer() {
        let mut backoff = RestartBackoff::default();
        let second = Duration::from_secs(1);
        assert_eq!(backoff.wait_after(YOUNG), Duration::ZERO);
        let waits: Vec<u128> = (0..10)
            .map(|_| backoff.wait_after(second).as_millis())
            .collect();
        assert_eq!(
            waits,
            [200, 400, 800, 1600, 3200, 6400, 12800, 25600, 30000, 30000]
        );
        assert_eq!(backoff.wait_after(2 * YOUNG), Duration::ZERO);
        assert_eq!(backoff.wait_after(second), WAIT_FIRST);
        for _ in 0..100 {
            assert!(backoff.wait_after(second) <= WAIT_MAX);
        }
    }
}
