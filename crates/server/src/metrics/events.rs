//! How the back end takes what it is told.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::common::Common;

/// Zeros where nobody is told anything.
pub(super) struct Told(pub(super) Arc<Common>);

impl fmt::Debug for Told {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Told")
    }
}

impl Collector for Told {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let figures = self.0.events.figures();
        for (name, help, count) in [
            (
                "veche_events_sent",
                "Events that the back end has taken, by [events]",
                figures.sent.read(),
            ),
            (
                "veche_events_refused",
                "Events that it has answered with 400 to 499, and that were not sent again",
                figures.refused.read(),
            ),
            (
                "veche_events_lost",
                "Events for which there was no room in [events] queue",
                figures.lost.read(),
            ),
            (
                "veche_events_failures",
                "Requests with events that have failed, and were made again",
                figures.failures.read(),
            ),
        ] {
            let family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            ConstCounter::new(count).encode(family)?;
        }
        let (name, help) = ("veche_events_waiting", "Events that wait to be sent");
        let family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        ConstGauge::new(self.0.events.waiting() as i64).encode(family)
    }
}
