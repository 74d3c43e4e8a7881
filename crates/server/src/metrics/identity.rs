//! What `/metrics` says of questions to issuers and back ends.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::identity::{Asked, Identities};

/// Reads the figures when it is asked.
pub(super) struct Identity(pub(super) Arc<Identities>);

impl fmt::Debug for Identity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Identity")
    }
}

impl Collector for Identity {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let figures = self.0.figures();
        let asked = Asked::ALL.into_iter();
        let asked = asked.map(|(how, label)| (label, figures.asked[how as usize].read()));
        let fetched = ["fetched", "failed"].into_iter().zip(&figures.fetched);
        let fetched = fetched.map(|(label, count)| (label, count.read()));
        for (name, help, values) in [
            (
                "veche_hook_questions",
                "Questions who a client is: those that the back end answered or not, and those that it was spared",
                asked.collect::<Vec<_>>(),
            ),
            (
                "veche_jwks_refreshes",
                "Fetches of the issuer's keys",
                fetched.collect(),
            ),
        ] {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (outcome, count) in values {
                let labels = [("outcome", outcome)];
                ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
            }
        }
        let (keys, paused) = self.0.state();
        for (name, help, value) in [
            (
                "veche_hook_waiting",
                "Handshakes and requests that wait for a back end to say who asks",
                figures.waiting.read(),
            ),
            (
                "veche_hook_paused",
                "Back ends that are left alone for now, because they failed",
                paused as u64,
            ),
            (
                "veche_jwt_keys",
                "Keys that tokens are checked with",
                keys as u64,
            ),
        ] {
            let gauge = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(value as i64).encode(gauge)?;
        }
        Ok(())
    }
}
