//! Histograms as the exposition format has them.

use std::fmt;

use prometheus_client::encoding::MetricEncoder;

use veche_outbound::LatencyHistogram;

/// The histogram has no exemplars; the library wants to know what labels they don't have.
pub(super) type NoExemplar = [(&'static str, &'static str); 0];

/// Writes how long answers took.
pub(super) fn histogram(mut metric: MetricEncoder<'_>, latency: &LatencyHistogram) -> fmt::Result {
    let buckets = latency.buckets();
    let count = buckets.iter().map(|(_, count)| count).sum();
    metric.encode_histogram::<NoExemplar>(latency.sum(), count, &buckets, None)
}
