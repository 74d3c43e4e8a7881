//! Metrics of the expiry times of the listeners' certificates.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::tls_listeners::TlsListeners;

/// Collects the expiry times of certificates at each scrape.
pub(super) struct CertificateCollector(pub(super) Arc<TlsListeners>);

impl fmt::Debug for CertificateCollector {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("CertificateCollector")
    }
}

impl Collector for CertificateCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut family = encoder.encode_descriptor(
            "veche_tls_certificate_expiry_seconds",
            "Unix time at which a certificate expires, by listener and certificate",
            None,
            MetricType::Gauge,
        )?;
        for one in self.0.certificates() {
            let file = one.file.display().to_string();
            let labels = [
                ("listener", one.listener.as_str()),
                ("certificate", file.as_str()),
            ];
            ConstGauge::new(one.valid_until_s).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}
