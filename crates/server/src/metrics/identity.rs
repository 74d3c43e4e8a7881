//! Metrics of requests to issuers, back ends and PAM.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::histogram::histogram;
use veche_identity::{IdentityProviders, LookupOutcome};

/// Collects the metrics of the identity providers at each scrape.
pub(super) struct IdentityCollector(pub(super) Arc<IdentityProviders>);

impl fmt::Debug for IdentityCollector {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("IdentityCollector")
    }
}

impl Collector for IdentityCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let figures = self.0.metrics();
        let asked = LookupOutcome::OF_HOOKS.into_iter();
        let asked = asked.map(|(how, label)| (label, figures.asked[how as usize].read()));
        let passwords = &figures.passwords;
        let checks = LookupOutcome::OF_PAM.into_iter();
        let checks = checks.map(|(how, label)| (label, passwords.checks[how as usize].read()));
        let fetched = ["fetched", "failed"].into_iter().zip(&figures.fetched);
        let fetched = fetched.map(|(label, count)| (label, count.read()));
        for (name, help, values) in [
            (
                "veche_identity_hook_questions",
                "Identity hook requests, by outcome, including those not sent to the back end",
                asked.collect::<Vec<_>>(),
            ),
            (
                "veche_jwks_refreshes",
                "Fetches of the issuer's keys",
                fetched.collect(),
            ),
            (
                "veche_pam_checks",
                "Password checks, by outcome, including those not passed to PAM",
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
            "Response time of the identity hook's back end",
            None,
            MetricType::Histogram,
        )?;
        histogram(seconds, &figures.took)?;
        let started = encoder.encode_descriptor(
            "veche_pam_helpers_started",
            "Helper processes started for password checks",
            None,
            MetricType::Counter,
        )?;
        ConstCounter::new(passwords.started.read()).encode(started)?;
        let (keys, paused) = self.0.state();
        for (name, help, value) in [
            (
                "veche_identity_hook_waiting",
                "Handshakes and requests waiting for the identity hook",
                figures.waiting.read(),
            ),
            (
                "veche_identity_hook_paused",
                "Back ends whose requests are paused because they failed",
                paused as u64,
            ),
            (
                "veche_jwt_keys",
                "Keys with which tokens are verified",
                keys as u64,
            ),
            (
                "veche_pam_waiting",
                "Handshakes and requests waiting for a password check",
                passwords.waiting.read(),
            ),
            (
                "veche_pam_helpers",
                "Running helper processes for password checks",
                passwords.helpers.read(),
            ),
        ] {
            let gauge = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(value as i64).encode(gauge)?;
        }
        Ok(())
    }
}
