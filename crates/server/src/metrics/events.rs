//! Metrics of event webhooks.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::process_state::ProcessState;

/// Collects the values at each scrape; zeros without event webhooks.
pub(super) struct EventCollector(pub(super) Arc<ProcessState>);

impl fmt::Debug for EventCollector {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("EventCollector")
    }
}

impl Collector for EventCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let figures = self.0.events.figures();
        for (name, help, count) in [
            (
                "veche_events_sent",
                "Events accepted by the back end of [events]",
                figures.sent.read(),
            ),
            (
                "veche_events_refused",
                "Events that the back end answered with a status from 400 to 499; they are not sent again",
                figures.refused.read(),
            ),
            (
                "veche_events_lost",
                "Events lost because the queue of [events] was full",
                figures.lost.read(),
            ),
            (
                "veche_events_failures",
                "Failed requests with events; they are repeated",
                figures.failures.read(),
            ),
        ] {
            let family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            ConstCounter::new(count).encode(family)?;
        }
        let (name, help) = ("veche_events_waiting", "Events waiting to be sent");
        let family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        ConstGauge::new(self.0.events.waiting() as i64).encode(family)
    }
}
