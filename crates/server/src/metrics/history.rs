//! Metrics of the history archive.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::process_state::ProcessState;

/// Collects the metrics of the archive at each scrape; without an archive all values are 0.
pub(super) struct HistoryCollector(pub(super) Arc<ProcessState>);

impl fmt::Debug for HistoryCollector {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("HistoryCollector")
    }
}

impl Collector for HistoryCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let stats = self.0.history.stats();
        for (name, help, count) in [
            (
                "veche_history_disk_commits",
                "Batches of publications and removals written to the history archive",
                stats.commits,
            ),
            (
                "veche_history_disk_written_bytes",
                "Bytes of publications written to the history archive",
                stats.bytes,
            ),
            (
                "veche_history_disk_syncs",
                "Syncs of the history archive to disk; [history] fsync determines when",
                stats.fsyncs,
            ),
            (
                "veche_history_disk_errors",
                "Failed writes to the history archive; they are retried",
                stats.errors,
            ),
        ] {
            let family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            ConstCounter::new(count).encode(family)?;
        }
        for (name, help, value) in [
            (
                "veche_history_disk_bytes",
                "Size of the files in the folder [history] path, as last measured",
                stats.file_bytes,
            ),
            (
                "veche_history_disk_queue_bytes",
                "Bytes waiting to be written to the history archive",
                stats.queue_bytes,
            ),
            (
                "veche_history_disk_failing",
                "1 while the history archive can't be written, otherwise 0",
                stats.is_failing.into(),
            ),
        ] {
            let family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(value as i64).encode(family)?;
        }
        Ok(())
    }
}
