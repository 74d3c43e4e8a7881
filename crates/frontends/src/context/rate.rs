//! Rates that allow bursts, and meters of their use.
//!
//! Implements the generic cell rate algorithm (ITU-T I.371). A meter is one number: the time until which the events
//! counted so far use up the rate. Nothing has to be refilled as time passes, so an unused meter costs nothing.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const NS_PER_MS: u64 = 1_000_000;

/// A number of events per time window. An idle meter allows all of them at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    count: u64,
    window_ms: u64,
}

impl Rate {
    /// Creates a rate of `count` per `window_ms` milliseconds, both at least 1.
    pub fn new(count: u64, window_ms: u64) -> Self {
        Self {
            count: count.max(1),
            window_ms: window_ms.max(1),
        }
    }

    /// Returns the number of events per window.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the length of the window in milliseconds.
    pub fn window_ms(&self) -> u64 {
        self.window_ms
    }

    fn cost_ns(&self, amount: u64) -> u64 {
        let cost = u128::from(amount) * u128::from(self.window_ns()) / u128::from(self.count);
        u64::try_from(cost).unwrap_or(u64::MAX)
    }

    fn window_ns(&self) -> u64 {
        self.window_ms.saturating_mul(NS_PER_MS)
    }
}

/// How much of a [`Rate`] one client has used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateMeter {
    paid_at_ns: u64,
}

impl RateMeter {
    /// Counts `amount` events if the rate permits them now; returns whether it does. An idle meter permits even an
    /// amount that exceeds the number per window, since such an amount would otherwise never be permitted.
    pub fn take(&mut self, rate: &Rate, amount: u64, now_ms: u64) -> bool {
        let now_ns = now_ms.saturating_mul(NS_PER_MS);
        let begins = self.paid_at_ns.max(now_ns);
        let paid_at = begins.saturating_add(rate.cost_ns(amount));
        if paid_at > now_ns.saturating_add(rate.window_ns()) && begins > now_ns {
            return false;
        }
        self.paid_at_ns = paid_at;
        true
    }

    /// Counts `amount` events even if they exceed the rate; returns the milliseconds until the rate is met again, 0
    /// if it is met.
    pub fn charge(&mut self, rate: &Rate, amount: u64, now_ms: u64) -> u64 {
        let now_ns = now_ms.saturating_mul(NS_PER_MS);
        let begins = self.paid_at_ns.max(now_ns);
        self.paid_at_ns = begins.saturating_add(rate.cost_ns(amount));
        self.paid_at_ns
            .saturating_sub(now_ns.saturating_add(rate.window_ns()))
            .div_ceil(NS_PER_MS)
    }

    /// Returns the milliseconds until [`take`](Self::take) permits `amount` events.
    pub fn wait_ms(&self, rate: &Rate, amount: u64, now_ms: u64) -> u64 {
        let now_ns = now_ms.saturating_mul(NS_PER_MS);
        let until_paid = self.paid_at_ns.saturating_sub(now_ns);
        let until_room = self
            .paid_at_ns
            .saturating_add(rate.cost_ns(amount))
            .saturating_sub(now_ns.saturating_add(rate.window_ns()));
        until_paid.min(until_room).div_ceil(NS_PER_MS)
    }

    /// Returns whether the whole rate is available again, so that the meter can be dropped.
    pub fn is_full(&self, now_ms: u64) -> bool {
        self.paid_at_ns <= now_ms.saturating_mul(NS_PER_MS)
    }
}

/// How much of a [`Rate`] several connections, on any threads, have used together.
#[derive(Debug, Default)]
pub struct SharedRateMeter(AtomicU64);

impl SharedRateMeter {
    /// Counts `amount` events if the rate permits them now.
    ///
    /// # Errors
    /// The rate does not permit them yet. Returns the milliseconds until it does, provided that no other connection
    /// uses it first.
    pub fn take(&self, rate: &Rate, amount: u64, now_ms: u64) -> Result<(), u64> {
        let mut paid_at_ns = self.0.load(Relaxed);
        loop {
            let mut meter = RateMeter { paid_at_ns };
            if !meter.take(rate, amount, now_ms) {
                return Err(meter.wait_ms(rate, amount, now_ms));
            }
            let exchanged =
                self.0
                    .compare_exchange_weak(paid_at_ns, meter.paid_at_ns, Relaxed, Relaxed);
            match exchanged {
                Ok(_) => return Ok(()),
                Err(now_paid_at_ns) => paid_at_ns = now_paid_at_ns,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_allowed_and_then_the_rate() {
        let (rate, mut meter) = (Rate::new(10, 1_000), RateMeter::default());
        let taken =
            |meter: &mut RateMeter, now| (0..100).filter(|_| meter.take(&rate, 1, now)).count();
        assert_eq!(taken(&mut meter, 5_000), 10);
        assert_eq!(taken(&mut meter, 5_099), 0);
        assert_eq!(taken(&mut meter, 5_100), 1);
        assert_eq!(taken(&mut meter, 5_350), 2);
        assert_eq!(taken(&mut meter, 9_000), 10);
        assert!(!meter.is_full(9_999) && meter.is_full(10_000));
    }

    #[test]
    fn more_than_a_window_can_be_had_once() {
        let (rate, mut meter) = (Rate::new(1_000, 1_000), RateMeter::default());
        assert!(meter.take(&rate, 5_000, 1_000));
        assert!(!meter.take(&rate, 1, 5_000));
        assert!(meter.take(&rate, 1, 5_001));
    }

    #[test]
    fn a_charge_says_how_long_to_wait() {
        let (rate, mut meter) = (Rate::new(10, 1_000), RateMeter::default());
        assert!((0..10).all(|_| meter.charge(&rate, 1, 7_000) == 0));
        assert_eq!(meter.charge(&rate, 1, 7_000), 100);
        assert_eq!(meter.charge(&rate, 1, 7_100), 100);
        assert_eq!(meter.charge(&rate, 1, 7_300), 0);
    }

    #[test]
    fn huge_amounts_do_not_overflow() {
        let (rate, mut meter) = (Rate::new(1, u64::MAX), RateMeter::default());
        assert!(meter.take(&rate, u64::MAX, u64::MAX));
        meter.charge(&rate, u64::MAX, u64::MAX);
    }

    #[test]
    fn a_refusal_says_when_the_same_would_pass() {
        let (rate, mut meter) = (Rate::new(10, 1_000), RateMeter::default());
        assert_eq!((rate.count(), rate.window_ms()), (10, 1_000));
        assert_eq!(meter.wait_ms(&rate, 1, 5_000), 0);
        assert!(meter.take(&rate, 10, 5_000));
        // Columns: amount, time and expected wait in milliseconds. An idle meter permits any amount, so no wait
        // exceeds the time until the meter is idle.
        for (amount, now_ms, wait_ms) in [
            (1, 5_000, 100),
            (3, 5_000, 300),
            (10, 5_000, 1_000),
            (50, 5_000, 1_000),
            (3, 5_250, 50),
            (1, 5_100, 0),
            (50, 5_999, 1),
            (50, 6_000, 0),
        ] {
            assert_eq!(
                meter.wait_ms(&rate, amount, now_ms),
                wait_ms,
                "{amount} at {now_ms}"
            );
            let mut refused = meter;
            if wait_ms > 0 {
                assert!(
                    !refused.take(&rate, amount, now_ms + wait_ms - 1),
                    "{amount} at {now_ms}"
                );
                assert_eq!(refused, meter, "what is refused costs nothing");
            }
            assert!(
                refused.take(&rate, amount, now_ms + wait_ms),
                "{amount} at {now_ms}"
            );
        }
    }

    #[test]
    fn a_shared_meter_is_a_meter() {
        let (rate, shared, mut meter) = (
            Rate::new(3, 1_000),
            SharedRateMeter::default(),
            RateMeter::default(),
        );
        let mut random = fastrand::Rng::with_seed(3);
        let mut now_ms = 5_000;
        let mut refused = 0;
        for _ in 0..1_000 {
            now_ms += random.u64(0..400);
            let amount = random.u64(1..4);
            let expected = match meter.take(&rate, amount, now_ms) {
                true => Ok(()),
                false => Err(meter.wait_ms(&rate, amount, now_ms)),
            };
            refused += u32::from(expected.is_err());
            assert_eq!(shared.take(&rate, amount, now_ms), expected);
        }
        assert!((200..900).contains(&refused), "{refused}");
    }

    #[test]
    fn a_rate_of_nothing_is_one_of_one() {
        let rate = Rate::new(0, 0);
        assert_eq!((rate.count(), rate.window_ms()), (1, 1));
    }
}
