//! When a server process that died is started again: at once, unless it dies young again and again.
//!
//! Pure: lifetimes in, waits out.

use std::time::{Duration, Instant};

/// A process that served for less time died young: something at its start kills it, and starting it again at once
/// would only burn a core.
pub(crate) const YOUNG: Duration = Duration::from_secs(5);
/// The wait after the first young death.
const WAIT_FIRST: Duration = Duration::from_millis(200);
/// The longest wait.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(30);

/// Counts young deaths in a row.
#[derive(Debug, Default)]
pub(crate) struct RestartBackoff {
    young_deaths: u32,
}

/// How long a process has served, which begins when it is ready: a start that takes long is no life, or one that dies
/// whenever it has got ready would be started at once for ever.
pub(crate) fn served(ready_at: Option<Instant>, now: Instant) -> Duration {
    ready_at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at))
}

impl RestartBackoff {
    /// How long to wait before the next start, after a process that served for this time once it was ready.
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
        let mut revival = RestartBackoff::default();
        let second = Duration::from_secs(1);
        assert_eq!(revival.wait_after(YOUNG), Duration::ZERO);
        let waits: Vec<u128> = (0..10)
            .map(|_| revival.wait_after(second).as_millis())
            .collect();
        assert_eq!(
            waits,
            [200, 400, 800, 1600, 3200, 6400, 12800, 25600, 30000, 30000]
        );
        assert_eq!(revival.wait_after(2 * YOUNG), Duration::ZERO);
        assert_eq!(revival.wait_after(second), WAIT_FIRST);
        for _ in 0..100 {
            assert!(revival.wait_after(second) <= WAIT_MAX);
        }
    }
}
