//! Latency distributions, total and per second.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2Serializer};
use serde::{Deserialize, Serialize};

use crate::clock::SECOND;
use crate::report::model::{Bucket, Distribution, Interval, Latency, Point};

/// The shortest time in nanoseconds that the histograms distinguish from 0.
const NS_MIN: u64 = 100;
/// The longest time, one hour in nanoseconds; longer times count as one hour.
const NS_MAX: u64 = 3600 * SECOND;
/// Maximum number of timeline steps. When it is exceeded, steps are merged.
const INTERVALS_MAX: usize = 600;

/// A histogram of nanoseconds with three significant digits.
#[derive(Clone, Debug)]
pub(crate) struct Times(Histogram<u64>);

impl Default for Times {
    fn default() -> Self {
        Self(histogram(3))
    }
}

fn histogram(digits: u8) -> Histogram<u64> {
    Histogram::new_with_bounds(NS_MIN, NS_MAX, digits)
        .expect("the lower bound must be less than the upper bound")
}

impl Times {
    #[inline]
    pub(crate) fn record(&mut self, ns: u64) {
        self.0.saturating_record(ns);
    }

    pub(crate) fn add(&mut self, other: &Self) {
        // Adding fails only for histograms with different bounds. All histograms of this type have
        // the same bounds.
        let _ = self.0.add(&other.0);
    }

    /// Returns the minimum; 0 without samples.
    pub(crate) fn min_ns(&self) -> u64 {
        self.0.min()
    }

    pub(crate) fn percentile_ns(&self, percent: f64) -> u64 {
        self.0.value_at_quantile(percent / 100.0)
    }

    /// Returns the summary; `None` without samples.
    pub(crate) fn summary(&self) -> Option<Latency> {
        let at = |percent: f64| us(self.percentile_ns(percent));
        (!self.0.is_empty()).then(|| Latency {
            count: self.0.len(),
            min: us(self.0.min()),
            mean: self.0.mean() / 1000.0,
            p50: at(50.0),
            p90: at(90.0),
            p95: at(95.0),
            p99: at(99.0),
            p999: at(99.9),
            max: us(self.0.max()),
        })
    }

    /// Returns the distribution by percentiles; `None` without samples.
    pub(crate) fn distribution(&self) -> Option<Distribution> {
        let mut count = 0;
        let points = self.0.iter_quantiles(TICKS_PER_HALVING).map(|step| {
            count += step.count_since_last_iteration();
            Point {
                to_us: us(step.value_iterated_to()),
                quantile: step.quantile_iterated_to(),
                count,
            }
        });
        (!self.0.is_empty()).then(|| Distribution {
            count: self.0.len(),
            mean_us: self.0.mean() / 1000.0,
            stdev_us: self.0.stdev() / 1000.0,
            max_us: us(self.0.max()),
            points: points.collect(),
        })
    }

    /// Returns the distribution in logarithmic steps: each bound is the previous one times 2^0.1.
    pub(crate) fn buckets(&self) -> Vec<Bucket> {
        self.0
            .iter_log(NS_MIN, 2f64.powf(0.1))
            .filter(|step| step.count_since_last_iteration() > 0)
            .map(|step| Bucket {
                to_us: us(step.value_iterated_to()),
                count: step.count_since_last_iteration(),
            })
            .collect()
    }
}

/// Number of percentiles reported each time the distance to 100 % halves.
const TICKS_PER_HALVING: u32 = 5;

fn us(ns: u64) -> f64 {
    ns as f64 / 1000.0
}

/// Latencies of messages that were due in the measured time, and a timeline of answers that arrived in the measured time.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Recorder {
    pub(crate) times: Times,
    step_ns: u64,
    steps: Vec<Step>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Step {
    received: u64,
    errors: u64,
    times: Option<Coarse>,
}

/// A histogram with two significant digits, which is precise enough for a chart.
#[derive(Clone, Debug)]
struct Coarse(Histogram<u64>);

impl Recorder {
    /// Records an answer in the timeline only, not in `times`. It arrived `at_ns` nanoseconds after
    /// the beginning of the measurement.
    #[inline]
    pub(crate) fn came(&mut self, at_ns: u64, latency_ns: u64) {
        let step = self.step(at_ns);
        step.received += 1;
        step.times
            .get_or_insert_with(|| Coarse(histogram(2)))
            .0
            .saturating_record(latency_ns);
    }

    pub(crate) fn error(&mut self, at_ns: u64) {
        self.step(at_ns).errors += 1;
    }

    #[inline]
    fn step(&mut self, at_ns: u64) -> &mut Step {
        self.step_ns = self.step_ns.max(SECOND);
        loop {
            let index = (at_ns / self.step_ns) as usize;
            if index < self.steps.len() {
                return &mut self.steps[index];
            }
            if index < INTERVALS_MAX {
                self.steps.resize_with(index + 1, Step::default);
            } else {
                self.coarsen();
            }
        }
    }

    /// Doubles the length of the steps by merging pairs.
    fn coarsen(&mut self) {
        self.step_ns = self.step_ns.max(SECOND) * 2;
        let mut pairs = std::mem::take(&mut self.steps).into_iter();
        while let Some(mut first) = pairs.next() {
            if let Some(second) = pairs.next() {
                first.add(&second);
            }
            self.steps.push(first);
        }
    }

    pub(crate) fn add(&mut self, mut other: Self) {
        self.times.add(&other.times);
        if other.steps.is_empty() {
            return;
        }
        self.step_ns = self.step_ns.max(SECOND);
        while self.step_ns < other.step_ns {
            self.coarsen();
        }
        while other.step_ns < self.step_ns {
            other.coarsen();
        }
        if self.steps.len() < other.steps.len() {
            self.steps.resize_with(other.steps.len(), Step::default);
        }
        for (own, others) in self.steps.iter_mut().zip(&other.steps) {
            own.add(others);
        }
    }

    /// Returns the 99th percentile of the timeline step before the one that contains `at_ns`; 0 if
    /// there is none.
    pub(crate) fn recent_p99_ns(&self, at_ns: u64) -> u64 {
        let index = (at_ns / self.step_ns.max(SECOND)) as usize;
        let step = index.checked_sub(1).and_then(|index| self.steps.get(index));
        step.and_then(|step| step.times.as_ref())
            .map_or(0, |times| times.0.value_at_quantile(0.99))
    }

    /// Returns the timeline of a measurement of `seconds`.
    pub(crate) fn timeline(&self, seconds: f64) -> Vec<Interval> {
        let step_s = self.step_ns as f64 / SECOND as f64;
        self.steps
            .iter()
            .enumerate()
            .map(|(index, step)| {
                let from_s = index as f64 * step_s;
                let at = |quantile: f64| {
                    step.times
                        .as_ref()
                        .map(|times| us(times.0.value_at_quantile(quantile)))
                };
                Interval {
                    from_s,
                    seconds: (seconds - from_s).clamp(0.001, step_s),
                    received: step.received,
                    errors: step.errors,
                    p50_us: at(0.5),
                    p99_us: at(0.99),
                    max_us: at(1.0),
                }
            })
            .collect()
    }
}

impl Step {
    fn add(&mut self, other: &Self) {
        self.received += other.received;
        self.errors += other.errors;
        match (&mut self.times, &other.times) {
            (Some(own), Some(others)) => {
                let _ = own.0.add(&others.0);
            }
            (own @ None, Some(others)) => *own = Some(others.clone()),
            (_, None) => {}
        }
    }
}

fn to_text(histogram: &Histogram<u64>) -> String {
    let mut bytes = Vec::new();
    V2Serializer::new()
        .serialize(histogram, &mut bytes)
        .expect("writing to a vector can't fail");
    STANDARD.encode(bytes)
}

fn from_text(text: &str) -> Result<Histogram<u64>, String> {
    let bytes = STANDARD.decode(text).map_err(|error| error.to_string())?;
    Deserializer::new()
        .deserialize(&mut bytes.as_slice())
        .map_err(|error| error.to_string())
}

macro_rules! as_text {
    ($($name:ident),*) => {$(
        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&to_text(&self.0))
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                from_text(&text).map(Self).map_err(serde::de::Error::custom)
            }
        }
    )*};
}

as_text!(Times, Coarse);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::MILLISECOND;

    #[test]
    fn percentiles_are_the_values_recorded() {
        let mut times = Times::default();
        assert_eq!(times.summary(), None);
        for ms in 1..=1000 {
            times.record(ms * MILLISECOND);
        }
        let summary = times.summary().unwrap();
        assert_eq!(summary.count, 1000);
        for (got, due) in [
            (summary.p50, 500e3),
            (summary.p99, 990e3),
            (summary.p999, 999e3),
            (summary.max, 1000e3),
            (summary.mean, 500.5e3),
        ] {
            assert!((got / due - 1.0).abs() < 0.002, "{got} for {due}");
        }
        assert_eq!(
            times
                .buckets()
                .iter()
                .map(|bucket| bucket.count)
                .sum::<u64>(),
            1000
        );
    }

    #[test]
    fn parts_add_up_however_long_their_steps() {
        let (mut short, mut long) = (Recorder::default(), Recorder::default());
        for second in 0..10 {
            short.times.record(MILLISECOND);
            short.came(second * SECOND, MILLISECOND);
        }
        for second in 0..2000 {
            long.times.record(3 * MILLISECOND);
            long.came(second * SECOND, 3 * MILLISECOND);
        }
        long.error(1999 * SECOND);
        // Recorders of other processes are serialised, so the test does the same.
        let long: Recorder = serde_json::from_str(&serde_json::to_string(&long).unwrap()).unwrap();
        for (mut one, other) in [(short.clone(), long.clone()), (long, short)] {
            one.add(other);
            let timeline = one.timeline(2000.0);
            assert!(timeline.len() <= INTERVALS_MAX);
            assert_eq!(timeline.iter().map(|step| step.received).sum::<u64>(), 2010);
            assert_eq!(timeline.last().unwrap().errors, 1);
            assert_eq!(one.times.summary().unwrap().count, 2010);
        }
    }
}
