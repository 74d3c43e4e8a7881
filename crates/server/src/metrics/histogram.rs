//! Histograms in the exposition format.

use std::fmt;

use prometheus_client::encoding::MetricEncoder;

use veche_outbound::LatencyHistogram;

/// The histogram has no exemplars; the library requires a type for their labels.
pub(super) type NoExemplar = [(&'static str, &'static str); 0];

/// Encodes a latency histogram.
pub(super) fn histogram(mut metric: MetricEncoder<'_>, latency: &LatencyHistogram) -> fmt::Result {
    let buckets = latency.buckets();
    let count = buckets.iter().map(|(_, count)| count).sum();
    metric.encode_histogram::<NoExemplar>(latency.sum(), count, &buckets, None)
}
