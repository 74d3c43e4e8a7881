//! Metrics of lost log lines.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;

use crate::process_state::ProcessState;

/// Collects the numbers of lost log lines at each scrape.
pub(super) struct LogCollector(pub(super) Arc<ProcessState>);

impl fmt::Debug for LogCollector {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("LogCollector")
    }
}

impl Collector for LogCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut family = encoder.encode_descriptor(
            "veche_log_lines_lost",
            "Log lines not written, because the disk or the reader was too slow or failed",
            None,
            MetricType::Counter,
        )?;
        for (log, lost) in [
            ("server", self.0.log.lost()),
            ("access", self.0.access.lost()),
        ] {
            let labels = [("log", log)];
            ConstCounter::new(lost).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}
