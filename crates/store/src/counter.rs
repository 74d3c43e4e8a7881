//! A whole number that many workers add to.

use std::sync::atomic::{AtomicI64, Ordering};

/// A counter. It takes no lock.
#[derive(Debug, Default)]
pub struct Counter(AtomicI64);

impl Counter {
    /// Beyond it a counter stays where it is: up to here all whole numbers are exact as `f64` too.
    pub const MAX: i64 = 1 << 53;

    /// Adds; the new value. `None`, and nothing is added, if that would be beyond ±[`MAX`](Self::MOST).
    pub fn add(&self, by: i64) -> Option<i64> {
        let sum = |value: i64| {
            let sum = value.checked_add(by)?;
            (-Self::MAX..=Self::MAX).contains(&sum).then_some(sum)
        };
        // The value stands for itself: nothing else is published with it.
        let before = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum);
        before.ok().map(|before| before + by)
    }

    /// Its value.
    pub fn value(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_between_threads() {
        let counter = Counter::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10_000).for_each(|_| _ = counter.add(3)));
            }
        });
        assert_eq!(counter.value(), 120_000);
    }

    #[test]
    fn it_stops_where_numbers_are_no_longer_exact() {
        let counter = Counter::default();
        assert_eq!(counter.add(Counter::MAX), Some(Counter::MAX));
        assert_eq!(counter.add(1), None);
        assert_eq!(counter.add(i64::MAX), None);
        assert_eq!(counter.add(-Counter::MAX), Some(0));
        assert_eq!(counter.add(i64::MIN), None);
        assert_eq!(counter.value(), 0);
    }
}
