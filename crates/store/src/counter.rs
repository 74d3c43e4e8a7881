//! An integer counter shared by all workers.

use std::sync::atomic::{AtomicI64, Ordering};

/// A lock-free signed counter that starts at 0.
#[derive(Debug, Default)]
pub struct Counter(AtomicI64);

impl Counter {
    /// The maximum absolute value of a counter: all integers up to it are exact as `f64`.
    pub const MAX: i64 = 1 << 53;

    /// Adds to the counter and returns the new value. Returns `None` and changes nothing if the value would exceed
    /// ±[`MAX`](Self::MAX).
    pub fn add(&self, by: i64) -> Option<i64> {
        let sum = |value: i64| {
            let sum = value.checked_add(by)?;
            (-Self::MAX..=Self::MAX).contains(&sum).then_some(sum)
        };
        // Relaxed ordering suffices, because no other data is published with the value.
        let before = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum);
        before.ok().map(|before| before + by)
    }

    /// Returns the current value of the counter.
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
