//! Metrics of certificates ordered by ACME.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use veche_acme::{CertificateManager, CertificateStatus};

/// The name, the help text and the source of a gauge.
type Gauge = (&'static str, &'static str, fn(&CertificateStatus) -> i64);

/// Collects the values at each scrape.
pub(super) struct AcmeCollector(pub(super) CertificateManager);

impl fmt::Debug for AcmeCollector {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("AcmeCollector")
    }
}

impl Collector for AcmeCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let figures = self.0.metrics();
        let mut family = encoder.encode_descriptor(
            "veche_acme_orders",
            "Certificate orders that have ended, by outcome",
            None,
            MetricType::Counter,
        )?;
        for (outcome, count) in [
            ("issued", &figures.issued),
            ("refused", &figures.refused),
            ("unreachable", &figures.unreachable),
        ] {
            let labels = [("outcome", outcome)];
            ConstCounter::new(count.read()).encode(family.encode_family(&labels)?)?;
        }
        let certificates = self.0.certificates();
        let gauges: [Gauge; 3] = [
            (
                "veche_acme_certificate_held",
                "1 while the server holds an unexpired certificate from the authority for the configured names, otherwise 0",
                |one| i64::from(one.is_held),
            ),
            (
                "veche_acme_failures",
                "Failed certificate orders since the last successful one",
                |one| i64::from(one.failures),
            ),
            (
                "veche_acme_next_order_seconds",
                "Unix time of the next certificate order",
                |one| one.due_s,
            ),
        ];
        for (name, help, value) in gauges {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for one in &certificates {
                let file = one.file.display().to_string();
                let labels = [("certificate", file.as_str())];
                ConstGauge::new(value(one)).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}
