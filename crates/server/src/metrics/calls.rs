//! Metrics of outgoing calls, by kind of client (HTTP, Redis and others), summed over all workers.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use veche_calls::CallErrorKind;
use veche_outbound::{ClientKind, ClientMetrics, Outbound, WAIT_BUCKETS_MS};

use super::histogram::NoExemplar;

/// Collects the metrics of outgoing calls at each scrape.
pub(super) struct CallCollector(pub(super) Outbound);

impl fmt::Debug for CallCollector {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("CallCollector")
    }
}

/// The name, the help text and the source of a gauge.
type Gauge = (&'static str, &'static str, fn(&ClientMetrics) -> u64);

const GAUGES: &[Gauge] = &[
    (
        "veche_outbound_connections",
        "Open connections to other servers",
        ClientMetrics::connections,
    ),
    (
        "veche_outbound_busy",
        "Connections to other servers that a call is using",
        ClientMetrics::busy,
    ),
    (
        "veche_outbound_waiting",
        "Calls to other servers waiting for a connection of a pool",
        ClientMetrics::waiting,
    ),
];

impl Collector for CallCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for (name, help, read) in GAUGES {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (client, figures) in self.each() {
                let gauge = ConstGauge::new(read(figures) as i64);
                gauge.encode(family.encode_family(&[("client", client)])?)?;
            }
        }
        let (name, help) = ("veche_outbound_calls", "Calls of scripts to other servers");
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (client, figures) in self.each() {
            let counter = ConstCounter::new(figures.calls());
            counter.encode(family.encode_family(&[("client", client)])?)?;
        }
        let (name, help) = (
            "veche_outbound_errors",
            "Failed calls of scripts to other servers",
        );
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (client, figures) in self.each() {
            for kind in CallErrorKind::ALL {
                let counter = ConstCounter::new(figures.errors(kind));
                let labels = [("client", client), ("kind", kind.name())];
                counter.encode(family.encode_family(&labels)?)?;
            }
        }
        let help = "Time for which calls waited for a connection of a pool; calls that did not have to wait are not counted";
        let name = "veche_outbound_wait_seconds";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for (client, figures) in self.each() {
            let bounds = WAIT_BUCKETS_MS.iter().map(|&ms| ms as f64 / 1e3);
            let waits = bounds.chain([f64::INFINITY]).zip(figures.waits());
            let buckets: Vec<(f64, u64)> = waits.collect();
            let count = buckets.iter().map(|(_, count)| count).sum();
            let sum = figures.wait_us() as f64 / 1e6;
            let labels = [("client", client)];
            let mut metric = family.encode_family(&labels)?;
            metric.encode_histogram::<NoExemplar>(sum, count, &buckets, None)?;
        }
        Ok(())
    }
}

impl CallCollector {
    fn each(&self) -> impl Iterator<Item = (&'static str, &ClientMetrics)> {
        let of = |client: ClientKind| (client.name(), &**self.0.metrics().of(client));
        ClientKind::ALL.into_iter().map(of)
    }
}
