//! Metrics of hook requests.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use veche_frontends::hooks::HookKind;
use veche_webhooks::hooks::WebhookOutcome;

use super::histogram::histogram;
use crate::process_state::ProcessState;

/// Collects the values at each scrape; zeros without hooks.
pub(super) struct HookCollector(pub(super) Arc<ProcessState>);

impl fmt::Debug for HookCollector {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("HookCollector")
    }
}

impl Collector for HookCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let hooks = &self.0.hooks;
        let (name, help) = (
            "veche_hooks_questions",
            "Commands of clients that a hook decides on, by outcome, including those not sent to the back end",
        );
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for kind in HookKind::BACKEND_KINDS {
            let figures = hooks.figures().of(kind);
            for (how, outcome) in WebhookOutcome::ALL {
                let labels = [("kind", kind.name()), ("outcome", outcome)];
                let counter = ConstCounter::new(figures.asked[how as usize].read());
                counter.encode(family.encode_family(&labels)?)?;
            }
        }
        let (name, help) = (
            "veche_hooks_seconds",
            "Response time of the back end to hook requests",
        );
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for kind in HookKind::BACKEND_KINDS {
            let figures = hooks.figures().of(kind);
            let labels = [("kind", kind.name())];
            histogram(family.encode_family(&labels)?, &figures.took)?;
        }
        let (name, help) = (
            "veche_hooks_waiting",
            "Hook requests that the back end is processing or that are queued",
        );
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for kind in HookKind::BACKEND_KINDS {
            let gauge = ConstGauge::new(hooks.figures().of(kind).waiting.read() as i64);
            gauge.encode(family.encode_family(&[("kind", kind.name())])?)?;
        }
        let (name, help) = (
            "veche_hooks_paused",
            "1 while hook requests are paused because the back end failed, otherwise 0",
        );
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for kind in HookKind::BACKEND_KINDS {
            let gauge = ConstGauge::new(i64::from(hooks.is_paused(kind)));
            gauge.encode(family.encode_family(&[("kind", kind.name())])?)?;
        }
        Ok(())
    }
}
