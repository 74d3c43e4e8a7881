//! What `/metrics` says of questions to issuers, back ends and PAM.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::histogram;
use veche_identity::{Asked, Identities};

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
        let asked = Asked::OF_HOOKS.into_iter();
        let asked = asked.map(|(how, label)| (label, figures.asked[how as usize].read()));
        let passwords = &figures.passwords;
        let checks = Asked::OF_PAM.into_iter();
        let checks = checks.map(|(how, label)| (label, passwords.checks[how as usize].read()));
        let fetched = ["fetched", "failed"].into_iter().zip(&figures.fetched);
        let fetched = fetched.map(|(label, count)| (label, count.read()));
        for (name, help, values) in [
            (
                "veche_identity_hook_questions",
                "Questions who a client is: those that the back end answered or not, and those that it was spared",
                asked.collect::<Vec<_>>(),
            ),
            (
                "veche_jwks_refreshes",
                "Fetches of the issuer's keys",
                fetched.collect(),
            ),
            (
                "veche_pam_checks",
                "Passwords: those that PAM judged or not, and those that it was spared",
                checks.collect(),
            ),
        ] {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (outcome, count) in values {
                let labels = [("outcome", outcome)];
                ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
            }
        }
        let seconds = encoder.encode_descriptor(
            "veche_identity_hook_seconds",
            "How long the back end took to say who a client is",
            None,
            MetricType::Histogram,
        )?;
        histogram(seconds, &figures.took)?;
        let started = encoder.encode_descriptor(
            "veche_pam_helpers_started",
            "Helper processes that have begun",
            None,
            MetricType::Counter,
        )?;
        ConstCounter::new(passwords.started.read()).encode(started)?;
        let (keys, paused) = self.0.state();
        for (name, help, value) in [
            (
                "veche_identity_hook_waiting",
                "Handshakes and requests that wait for a back end to say who asks",
                figures.waiting.read(),
            ),
            (
                "veche_identity_hook_paused",
                "Back ends that are left alone for now, because they failed",
                paused as u64,
            ),
            (
                "veche_jwt_keys",
                "Keys that tokens are checked with",
                keys as u64,
            ),
            (
                "veche_pam_waiting",
                "Handshakes and requests that wait for a password to be judged",
                passwords.waiting.read(),
            ),
            (
                "veche_pam_helpers",
                "Helper processes that run",
                passwords.helpers.read(),
            ),
        ] {
            let gauge = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(value as i64).encode(gauge)?;
        }
        Ok(())
    }
}
