//! The metrics that applications define in their scripts.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use veche_store::Store;
use veche_store::metrics::{Metric, MetricKind, Series};

use super::histogram::NoExemplar;

pub(super) struct ScriptCollector(pub(super) Arc<Store>);

impl fmt::Debug for ScriptCollector {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Scripts({})", self.0.metrics.all().len())
    }
}

impl Collector for ScriptCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for metric in self.0.metrics.all() {
            let kind = match metric.kind {
                MetricKind::Counter => MetricType::Counter,
                MetricKind::Gauge => MetricType::Gauge,
                MetricKind::Histogram(_) => MetricType::Histogram,
            };
            let mut family = encoder.encode_descriptor(&metric.name, &metric.help, None, kind)?;
            let mut all = metric.all();
            if metric.labels.is_empty() {
                if let Some((_, series)) = all.pop() {
                    write(&metric, &series, family)?;
                }
                continue;
            }
            for (values, series) in all {
                let names = metric.labels.iter().map(|name| &**name);
                let labels: Vec<(&str, &str)> =
                    names.zip(values.iter().map(String::as_str)).collect();
                write(&metric, &series, family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

fn write(metric: &Metric, series: &Series, mut encoder: MetricEncoder<'_>) -> fmt::Result {
    match &metric.kind {
        MetricKind::Counter => ConstCounter::new(series.value()).encode(encoder),
        MetricKind::Gauge => ConstGauge::new(series.value()).encode(encoder),
        MetricKind::Histogram(bounds) => {
            let counts = series.buckets();
            let count = counts.iter().sum();
            let bounds = bounds.iter().copied().chain([f64::INFINITY]);
            let buckets: Vec<(f64, u64)> = bounds.zip(counts).collect();
            encoder.encode_histogram::<NoExemplar>(series.value(), count, &buckets, None)
        }
    }
}
