//! A histogram of back ends' response times, for `/metrics`.

use std::time::Duration;

use crate::AtomicCounter;

/// The upper bounds of the buckets in milliseconds; an additional bucket counts longer times.
const BUCKETS_MS: [u64; 9] = [5, 10, 25, 50, 100, 250, 500, 1_000, 2_500];

/// A histogram of latencies in buckets of milliseconds.
#[derive(Debug, Default)]
pub struct LatencyHistogram {
    counts: [AtomicCounter; BUCKETS_MS.len() + 1],
    sum_us: AtomicCounter,
}

impl LatencyHistogram {
    /// Records a response time, whether the call succeeded or failed.
    pub fn record(&self, time: Duration) {
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let bucket = BUCKETS_MS.partition_point(|&ms| ms * 1000 < us);
        self.counts[bucket].add(1);
        self.sum_us.add(us);
    }

    /// Returns the upper bound of each bucket in seconds, with the bucket's count.
    #[must_use]
    pub fn buckets(&self) -> Vec<(f64, u64)> {
        let bounds = BUCKETS_MS.iter().map(|&ms| ms as f64 / 1e3);
        let counts = self.counts.iter().map(AtomicCounter::read);
        bounds.chain([f64::INFINITY]).zip(counts).collect()
    }

    /// Returns the sum of all times in seconds.
    #[must_use]
    pub fn sum(&self) -> f64 {
        self.sum_us.read() as f64 / 1e6
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_fall_into_the_bucket_that_has_room_for_them() {
        let latency = LatencyHistogram::default();
        for us in [0, 5_000, 5_001, 2_500_000, 2_500_001] {
            latency.record(Duration::from_micros(us));
        }
        let counts: Vec<u64> = latency.buckets().iter().map(|(_, count)| *count).collect();
        assert_eq!(counts, [2, 1, 0, 0, 0, 0, 0, 0, 1, 1]);
        assert_eq!(latency.sum(), 5.010_002);
    }
}
