//! The compared figures of a report, and the direction in which each improves.

use serde::{Deserialize, Serialize};

use super::super::model::{Interval, Latency, Report};
use super::estimate::median;

/// Number of parts into which a single run is divided. Neighbouring seconds are correlated, so parts are long; eight
/// suffice for a 95 % interval.
const BATCHES: usize = 8;
/// A step of a shootout counts only if its 95th percentile of latency, in microseconds, is at most
/// this.
const SHOOTOUT_P95_US: f64 = 500_000.0;

/// The unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// A rate per second.
    PerSecond,
    /// A time in microseconds.
    Us,
    /// A size in bytes.
    Bytes,
    /// A plain number.
    Count,
}

/// The direction in which a figure improves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// Higher values are better.
    Higher,
    /// Lower values are better.
    Lower,
}

/// One figure of one run.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    pub(super) metric: String,
    pub(super) title: String,
    pub(super) unit: Unit,
    pub(super) better: Better,
    pub(super) value: f64,
    /// The figure in each part of the run; empty if the timeline does not contain it.
    pub(super) batches: Vec<f64>,
}

/// Returns the figures of a run, followed by those of its phases.
pub(super) fn of(report: &Report) -> Vec<Sample> {
    let mut samples = Samples::default();
    samples.all(report);
    for (index, phase) in report.phases.iter().enumerate() {
        let name = phase
            .settings
            .label
            .clone()
            .unwrap_or_else(|| format!("phase {}", index + 1));
        samples.key_prefix = format!("phases[{index}].");
        samples.title_prefix = format!("{name}: ");
        samples.all(phase);
    }
    samples.found
}

#[derive(Default)]
struct Samples {
    key_prefix: String,
    title_prefix: String,
    found: Vec<Sample>,
}

impl Samples {
    fn all(&mut self, report: &Report) {
        let timeline = &report.timeline;
        if report.messages.received > 0 && report.kind != "storm" {
            self.push(
                "messages.per_second",
                "throughput",
                Unit::PerSecond,
                Better::Higher,
                Some(report.messages.per_second),
            );
            self.batches(batches(timeline, |part| {
                let seconds: f64 = part.iter().map(|interval| interval.seconds).sum();
                Some(part.iter().map(|interval| interval.received).sum::<u64>() as f64 / seconds)
            }));
        }
        if let Some(latency) = &report.latency_us {
            self.latency("latency_us", "latency", latency);
            self.batches_of(
                "latency_us.p50",
                batches(timeline, |part| middle(part, |interval| interval.p50_us)),
            );
            self.batches_of(
                "latency_us.p99",
                batches(timeline, |part| middle(part, |interval| interval.p99_us)),
            );
        }
        if report.kind == "storm" {
            if let Some(handshake) = &report.handshake_us {
                self.latency("handshake_us", "handshake", handshake);
            }
            let all_open = report.connections.all_open_s.map(|seconds| seconds * 1e6);
            self.push(
                "connections.all_open_s",
                "all open",
                Unit::Us,
                Better::Lower,
                all_open,
            );
        }
        if !report.steps.is_empty() {
            let held = report
                .steps
                .iter()
                .filter(|step| step.p95_us <= SHOOTOUT_P95_US && step.errors == 0);
            let clients = held.map(|step| step.clients).max().unwrap_or(0);
            self.push(
                "steps",
                "clients held",
                Unit::Count,
                Better::Higher,
                Some(clients as f64),
            );
        }
        if let Some(server) = &report.server {
            self.push(
                "server.cpu_us_per_message",
                "CPU/message",
                Unit::Us,
                Better::Lower,
                server.cpu_us_per_message,
            );
            let memory = server.bytes_per_connection;
            self.push(
                "server.bytes_per_connection",
                "memory/conn.",
                Unit::Bytes,
                Better::Lower,
                memory,
            );
        }
    }

    fn latency(&mut self, key: &str, title: &str, latency: &Latency) {
        for (name, label, value) in [
            ("p50", "p50", latency.p50),
            ("p90", "p90", latency.p90),
            ("p99", "p99", latency.p99),
            ("p999", "p99.9", latency.p999),
            ("max", "max", latency.max),
            ("mean", "mean", latency.mean),
        ] {
            self.push(
                &format!("{key}.{name}"),
                &format!("{title} {label}"),
                Unit::Us,
                Better::Lower,
                Some(value),
            );
        }
    }

    fn push(&mut self, metric: &str, title: &str, unit: Unit, better: Better, value: Option<f64>) {
        if let Some(value) = value.filter(|value| value.is_finite()) {
            self.found.push(Sample {
                metric: format!("{}{metric}", self.key_prefix),
                title: format!("{}{title}", self.title_prefix),
                unit,
                better,
                value,
                batches: Vec::new(),
            });
        }
    }

    fn batches(&mut self, batches: Vec<f64>) {
        if let Some(last) = self.found.last_mut() {
            last.batches = batches;
        }
    }

    fn batches_of(&mut self, metric: &str, batches: Vec<f64>) {
        let metric = format!("{}{metric}", self.key_prefix);
        if let Some(sample) = self.found.iter_mut().find(|sample| sample.metric == metric) {
            sample.batches = batches;
        }
    }
}

/// Returns the figure for each part of the timeline; empty if the timeline is too short or a part
/// has no figure. All parts have the same length; surplus intervals at the beginning are dropped.
fn batches(timeline: &[Interval], figure: impl Fn(&[Interval]) -> Option<f64>) -> Vec<f64> {
    let length = timeline.len() / BATCHES;
    if length == 0 {
        return Vec::new();
    }
    let parts = timeline[timeline.len() - length * BATCHES..].chunks(length);
    parts
        .map(figure)
        .collect::<Option<Vec<f64>>>()
        .filter(|found| found.iter().all(|x| x.is_finite()))
        .unwrap_or_default()
}

fn middle(part: &[Interval], figure: impl Fn(&Interval) -> Option<f64>) -> Option<f64> {
    let mut values: Vec<f64> = part.iter().filter_map(figure).collect();
    values.sort_by(f64::total_cmp);
    (!values.is_empty()).then(|| median(&values))
}
