//! Worker processes of applications, for `/metrics`, `veche status` and the admin page.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use serde_json::{Map, Value, json};
use veche_apps::{PoolFigures, PoolRegistry, RestartReason};

/// Collects the metrics of worker processes at each scrape. The number of lines is bounded by the number of
/// applications that the process has had.
pub(super) struct PoolCollector(pub(super) PoolRegistry);

impl fmt::Debug for PoolCollector {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Pools({})", self.0.all().len())
    }
}

/// The name, the help text and the source of a metric.
type Gauge = (&'static str, &'static str, fn(&PoolFigures) -> u64);
type Seconds = (&'static str, &'static str, fn(&PoolFigures) -> f64);

const GAUGES: [Gauge; 2] = [
    (
        "veche_app_queue",
        "Events that wait for a process of their application",
        |figures| figures.gauges().queued,
    ),
    (
        "veche_app_processes_memory_bytes",
        "Resident memory of an application's processes",
        |figures| figures.gauges().memory_bytes,
    ),
];

const SECONDS: [Seconds; 2] = [
    (
        "veche_app_wait_seconds",
        "Time that events waited for a process of their application",
        PoolFigures::wait_s,
    ),
    (
        "veche_app_run_seconds",
        "Time that an application's processes spent on handling events",
        PoolFigures::run_s,
    ),
];

/// Returns the number of an application's processes in each state.
fn states(figures: &PoolFigures) -> [(&'static str, u64); 4] {
    let gauges = figures.gauges();
    [
        ("starting", gauges.starting),
        ("idle", gauges.idle),
        ("busy", gauges.busy),
        ("stopping", gauges.stopping),
    ]
}

/// Returns the number of events by their outcome.
fn outcomes(figures: &PoolFigures) -> [(&'static str, u64); 3] {
    [
        ("answered", figures.answered()),
        ("failed", figures.failed()),
        ("refused", figures.refused()),
    ]
}

fn restarts(figures: &PoolFigures) -> [(&'static str, u64); RestartReason::ALL.len()] {
    RestartReason::ALL.map(|reason| (reason.name(), figures.restarts(reason)))
}

impl Collector for PoolCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let all = self.0.all();
        let each = || all.iter().map(|(app, figures)| (app.as_str(), figures));
        let (name, help) = (
            "veche_app_processes",
            "Processes of an application by their state",
        );
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (app, figures) in each() {
            for (state, count) in states(figures) {
                let gauge = ConstGauge::new(count as i64);
                let labels = [("app", app), ("state", state)];
                gauge.encode(family.encode_family(&labels)?)?;
            }
        }
        for (name, help, read) in GAUGES {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (app, figures) in each() {
                let gauge = ConstGauge::new(read(figures) as i64);
                gauge.encode(family.encode_family(&[("app", app)])?)?;
            }
        }
        for (name, help, read) in SECONDS {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (app, figures) in each() {
                let counter = ConstCounter::new(read(figures));
                counter.encode(family.encode_family(&[("app", app)])?)?;
            }
        }
        let (name, help) = (
            "veche_app_events",
            "Events for processes of an application, by result: answered, lost because the process failed, or refused because no process was free",
        );
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (app, figures) in each() {
            for (outcome, count) in outcomes(figures) {
                let labels = [("app", app), ("outcome", outcome)];
                ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
            }
        }
        let (name, help) = (
            "veche_app_process_restarts",
            "Processes of an application that were replaced or lost, by reason",
        );
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (app, figures) in each() {
            for (reason, count) in restarts(figures) {
                let labels = [("app", app), ("reason", reason)];
                ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

/// Returns an object for each application with processes.
pub(super) fn figures(pools: &PoolRegistry) -> Value {
    let of = |(app, figures): (String, Arc<PoolFigures>)| {
        let gauges = figures.gauges();
        json!({
            "app": app,
            "processes": object(&states(&figures)),
            "queue": gauges.queued,
            "events": object(&outcomes(&figures)),
            "wait_seconds": figures.wait_s(),
            "run_seconds": figures.run_s(),
            "restarts": object(&restarts(&figures)),
            "memory_bytes": gauges.memory_bytes,
        })
    };
    pools.all().into_iter().map(of).collect()
}

fn object(pairs: &[(&'static str, u64)]) -> Value {
    let pairs = pairs
        .iter()
        .map(|(name, count)| ((*name).to_owned(), (*count).into()));
    Value::Object(pairs.collect::<Map<_, _>>())
}
