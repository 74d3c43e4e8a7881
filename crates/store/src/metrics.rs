//! Metrics defined by applications: named counters, gauges and histograms, each with one series per combination of label
//! values.
//!
//! All workers update the same numbers, so a scrape need not add up values of workers. The number of series is limited, because
//! a label with ever new values would make each scrape more expensive.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// Maximum number of metrics per process.
pub const METRICS_MAX: usize = 512;
/// Maximum number of series per metric, that is of combinations of label values.
pub const SERIES_MAX: usize = 1000;
/// Maximum number of labels per metric.
pub const LABELS_MAX: usize = 8;
/// Maximum length of a label value in bytes.
pub const LABEL_BYTES_MAX: usize = 128;
/// Maximum length of a metric or label name in bytes.
pub const METRIC_NAME_BYTES_MAX: usize = 128;
/// Maximum number of buckets of a histogram, without the bucket above all bounds.
pub const BUCKETS_MAX: usize = 64;

/// The type of a metric.
#[derive(Clone, Debug, PartialEq)]
pub enum MetricKind {
    /// A value that only increases.
    Counter,
    /// A value that goes up and down.
    Gauge,
    /// A distribution over buckets with these ascending upper bounds.
    Histogram(Arc<[f64]>),
}

impl MetricKind {
    fn name(&self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram(_) => "histogram",
        }
    }
}

/// Why a metric or series can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MetricError {
    /// The name violates the rules of Prometheus or is reserved for the server.
    #[error("{0}")]
    Name(&'static str),
    /// The metric exists with another definition.
    #[error("the metric already exists as a {0}, or with other labels or buckets")]
    Differs(&'static str),
    /// The maximum number of metrics is reached.
    #[error("the limit of {METRICS_MAX} metrics is reached")]
    TooMany,
    /// The maximum number of series of the metric is reached.
    #[error(
        "the limit of {SERIES_MAX} series of a metric is reached: labels are for a few values, not for users or addresses"
    )]
    TooManySeries,
    /// The number of label values differs from the number of labels, which is contained here, or a value is too long.
    #[error("the number of label values must be {0}, each of at most {LABEL_BYTES_MAX} bytes")]
    Labels(usize),
}

/// All metrics of a process.
#[derive(Debug, Default)]
pub struct Metrics {
    families: Mutex<BTreeMap<Box<str>, Arc<Metric>>>,
}

/// A metric with its series.
#[derive(Debug)]
pub struct Metric {
    /// The name, without the `_total` of a counter.
    pub name: Box<str>,
    /// The description of the metric, for readers of `/metrics`.
    pub help: Box<str>,
    /// The type of the metric.
    pub kind: MetricKind,
    /// The names of the metric's labels.
    pub labels: Box<[Box<str>]>,
    /// The series by their label values, which are concatenated with a separator byte that can't occur in UTF-8.
    series: Mutex<HashMap<Box<[u8]>, Arc<Series>>>,
}

/// The numbers of one combination of label values.
#[derive(Debug)]
pub struct Series {
    /// The value of a counter or gauge; the sum of a histogram.
    value: AtomicU64,
    /// The counts of values by bucket, not cumulative. The last bucket is for values above all bounds.
    buckets: Box<[AtomicU64]>,
}

const SEPARATOR: u8 = 0xff;

impl Metrics {
    /// Returns the metric with a name, and creates it on first use. For an existing metric, the help text is ignored.
    ///
    /// # Errors
    /// [`MetricError`]; an invalid label name is reported as an invalid name.
    pub fn metric(
        &self,
        name: &str,
        help: &str,
        kind: MetricKind,
        labels: &[&str],
    ) -> Result<Arc<Metric>, MetricError> {
        let name = match kind {
            MetricKind::Counter => name.strip_suffix("_total").unwrap_or(name),
            _ => name,
        };
        check_name(name)?;
        check_labels(labels)?;
        let mut families = self.families.lock();
        if let Some(metric) = families.get(name) {
            let is_same = metric.kind == kind
                && metric
                    .labels
                    .iter()
                    .map(|label| &**label)
                    .eq(labels.iter().copied());
            return match is_same {
                true => Ok(Arc::clone(metric)),
                false => Err(MetricError::Differs(metric.kind.name())),
            };
        }
        if families.len() >= METRICS_MAX {
            return Err(MetricError::TooMany);
        }
        let metric = Arc::new(Metric {
            name: name.into(),
            help: help.into(),
            kind,
            labels: labels.iter().map(|&label| label.into()).collect(),
            series: Mutex::default(),
        });
        families.insert(name.into(), Arc::clone(&metric));
        Ok(metric)
    }

    /// Returns all metrics by name.
    pub fn all(&self) -> Vec<Arc<Metric>> {
        self.families.lock().values().cloned().collect()
    }
}

impl Metric {
    /// Returns the series with the given label values, and creates it on first use.
    ///
    /// # Errors
    /// [`MetricError::Labels`], [`MetricError::TooManySeries`].
    pub fn series(&self, values: &[&str]) -> Result<Arc<Series>, MetricError> {
        let are_good = values.iter().all(|value| value.len() <= LABEL_BYTES_MAX);
        if values.len() != self.labels.len() || !are_good {
            return Err(MetricError::Labels(self.labels.len()));
        }
        let key: Vec<u8> = values
            .iter()
            .flat_map(|value| value.bytes().chain([SEPARATOR]))
            .collect();
        let mut series = self.series.lock();
        if let Some(one) = series.get(&*key) {
            return Ok(Arc::clone(one));
        }
        if series.len() >= SERIES_MAX {
            return Err(MetricError::TooManySeries);
        }
        let buckets = match &self.kind {
            MetricKind::Histogram(bounds) => bounds.len() + 1,
            _ => 0,
        };
        let one = Arc::new(Series {
            value: AtomicU64::new(0.0_f64.to_bits()),
            buckets: (0..buckets).map(|_| AtomicU64::new(0)).collect(),
        });
        series.insert(key.into(), Arc::clone(&one));
        Ok(one)
    }

    /// Returns all series with their label values, ordered by the label values.
    pub fn all(&self) -> Vec<(Vec<String>, Arc<Series>)> {
        let series = self.series.lock();
        let mut all: Vec<_> = series
            .iter()
            .map(|(key, one)| {
                let values = key.split(|&byte| byte == SEPARATOR);
                let values = values.take(self.labels.len());
                let values = values.map(|value| String::from_utf8_lossy(value).into_owned());
                (values.collect::<Vec<_>>(), Arc::clone(one))
            })
            .collect();
        all.sort_by(|(a, _), (b, _)| a.cmp(b));
        all
    }

    /// Records a value of a histogram.
    pub fn observe(&self, series: &Series, value: f64) {
        if let MetricKind::Histogram(bounds) = &self.kind {
            let bucket = bounds.partition_point(|bound| *bound < value);
            series.buckets[bucket].fetch_add(1, Ordering::Relaxed);
            series.add(value);
        }
    }
}

impl Series {
    /// Adds to a counter or gauge.
    pub fn add(&self, by: f64) {
        let sum = |bits| Some((f64::from_bits(bits) + by).to_bits());
        // Relaxed ordering suffices, because no other data is published with the value.
        let _ = self
            .value
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum);
    }

    /// Sets a gauge to `value`.
    pub fn set(&self, value: f64) {
        self.value.store(value.to_bits(), Ordering::Relaxed);
    }

    /// Returns the value of a counter or gauge, or the sum of a histogram.
    pub fn value(&self) -> f64 {
        f64::from_bits(self.value.load(Ordering::Relaxed))
    }

    /// Returns the count of each bucket; the last is for values above all bounds.
    pub fn buckets(&self) -> Vec<u64> {
        let buckets = self.buckets.iter();
        buckets.map(|count| count.load(Ordering::Relaxed)).collect()
    }
}

/// Suffixes that the exposition format reserves.
const RESERVED_SUFFIXES: [&str; 6] = ["_total", "_count", "_sum", "_bucket", "_created", "_info"];

fn check_name(name: &str) -> Result<(), MetricError> {
    if !is_identifier(name) {
        return Err(MetricError::Name(
            "a name may have at most 128 letters, digits and _, and must not begin with a digit",
        ));
    }
    if name.starts_with("veche_") {
        return Err(MetricError::Name(
            "names that begin with veche_ are reserved for the server",
        ));
    }
    if RESERVED_SUFFIXES
        .iter()
        .any(|ending| name.ends_with(ending))
    {
        return Err(MetricError::Name(
            "only a counter's name may end in _total, and no name may end in _count, _sum, _bucket, _created or _info",
        ));
    }
    Ok(())
}

fn check_labels(labels: &[&str]) -> Result<(), MetricError> {
    let is_twice = |(index, label): (usize, &&str)| labels[..index].contains(label);
    if labels.len() > LABELS_MAX
        || labels.iter().enumerate().any(is_twice)
        || !labels.iter().all(|label| is_identifier(label))
        || labels
            .iter()
            .any(|label| *label == "le" || label.starts_with("__"))
    {
        return Err(MetricError::Name(
            "a metric may have at most 8 different labels; their names consist of letters, digits and _, and must not be le or begin with a digit or __",
        ));
    }
    Ok(())
}

fn is_identifier(name: &str) -> bool {
    (1..=METRIC_NAME_BYTES_MAX).contains(&name.len())
        && !name.starts_with(|first: char| first.is_ascii_digit())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counter(metrics: &Metrics, name: &str, labels: &[&str]) -> Result<Arc<Metric>, MetricError> {
        metrics.metric(name, "", MetricKind::Counter, labels)
    }

    #[test]
    fn a_name_is_one_metric() {
        let metrics = Metrics::default();
        let first = counter(&metrics, "orders_total", &["kind"]).expect("a metric");
        let again = counter(&metrics, "orders", &["kind"]).expect("the same");
        assert!(Arc::ptr_eq(&first, &again));
        let other = counter(&metrics, "orders_total", &["other"]).err();
        assert_eq!(other, Some(MetricError::Differs("counter")));
        let gauge = metrics.metric("orders", "", MetricKind::Gauge, &["kind"]);
        assert_eq!(gauge.err(), Some(MetricError::Differs("counter")));
    }

    #[test]
    fn nothing_is_lost_between_threads() {
        let metrics = Metrics::default();
        let bounds: Arc<[f64]> = [1.0, 2.0].into();
        let kind = MetricKind::Histogram(bounds);
        let metric = metrics.metric("h", "", kind, &["a"]).expect("a metric");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for value in [0.5, 1.0, 1.5, 9.0].repeat(1000) {
                        let series = metric.series(&["x"]).expect("room");
                        metric.observe(&series, value);
                    }
                });
            }
        });
        let series = metric.series(&["x"]).expect("room");
        assert_eq!(series.buckets(), [8000, 4000, 4000]);
        assert!((series.value() - 48_000.0).abs() < 1e-6);
        assert_eq!(metric.all()[0].0, ["x"]);
    }

    #[test]
    fn names_labels_and_series_have_limits() {
        let metrics = Metrics::default();
        for name in [
            "",
            "9a",
            "a-b",
            "a b",
            "é",
            "a:b",
            "veche_x",
            "x_sum",
            "x_total_total",
        ] {
            assert!(counter(&metrics, name, &[]).is_err(), "{name}");
        }
        let gauge = metrics.metric("x_total", "", MetricKind::Gauge, &[]);
        assert!(gauge.is_err());
        for labels in [&["le"][..], &["__a"], &["a", "a"], &[""], &["a"; 9]] {
            assert!(counter(&metrics, "x", labels).is_err(), "{labels:?}");
        }
        let metric = counter(&metrics, "x", &["a", "b"]).expect("a metric");
        assert_eq!(metric.series(&["1"]).err(), Some(MetricError::Labels(2)));
        let long = "x".repeat(LABEL_BYTES_MAX + 1);
        assert_eq!(
            metric.series(&["1", &long]).err(),
            Some(MetricError::Labels(2))
        );
        // These label values are distinct although their concatenations are equal.
        for values in [["ab", "c"], ["a", "bc"], ["abc", ""]] {
            metric.series(&values).expect("room").add(1.0);
        }
        assert_eq!(metric.all().len(), 3);
        for number in 3..SERIES_MAX {
            metric.series(&["n", &number.to_string()]).expect("room");
        }
        assert_eq!(
            metric.series(&["n", "y"]).err(),
            Some(MetricError::TooManySeries)
        );
        metric.series(&["ab", "c"]).expect("what is there stays");
        for number in 1..METRICS_MAX {
            counter(&metrics, &format!("x{number}"), &[]).expect("room");
        }
        assert_eq!(
            counter(&metrics, "y", &[]).err(),
            Some(MetricError::TooMany)
        );
    }
}
