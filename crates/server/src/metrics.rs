//! The data of `/metrics`, `/api/info` and `veche status`: the counters of all workers, summed or per worker.

mod acme;
mod admin;
mod calls;
mod certificates;
mod engine;
mod events;
mod front;
mod histogram;
mod history;
mod hooks;
mod identity;
mod logs;
mod nodes;
mod pools;
mod process;
mod scripts;
mod tables;

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use veche_apps::PoolRegistry;
use veche_config::{Config, unix_now_ms};
use veche_frontends::credential_kind::CredentialKind;
use veche_frontends::stats::{
    AcceptRejection, HandshakeOutcome, SharedCounter, Stats, TURN_BUCKETS_US, TlsHandshakeFailure,
};
use veche_jwt::TokenError;
use veche_outbound::Outbound;
use veche_outbound::engine::RemoteStore;
use veche_store::Store;

use crate::dev::DevMode;
use crate::process_state::ProcessState;
use histogram::NoExemplar;

/// Reports about the process for the front ends.
pub(crate) struct MetricsReport {
    common: Arc<ProcessState>,
    registry: Registry,
    store: Arc<Store>,
    pools: PoolRegistry,
    uid: String,
    /// The configuration in force, for the admin page.
    shown: Mutex<Value>,
    /// The notices that `veche dev` shows on pages.
    dev: Option<Arc<DevMode>>,
}

impl MetricsReport {
    /// Creates the report of a process, and registers the collectors of its metrics.
    pub(crate) fn new(
        common: Arc<ProcessState>,
        outbound: Outbound,
        store: Arc<Store>,
        uid: String,
    ) -> Self {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Workers(Arc::clone(&common))));
        registry.register_collector(Box::new(calls::CallCollector(outbound)));
        registry.register_collector(Box::new(scripts::ScriptCollector(Arc::clone(&store))));
        registry.register_collector(Box::new(tables::TableCollector(Arc::clone(&store))));
        registry.register_collector(Box::new(certificates::CertificateCollector(Arc::clone(
            &common.tls_listeners,
        ))));
        registry.register_collector(Box::new(acme::AcmeCollector(common.orders.clone())));
        registry.register_collector(Box::new(history::HistoryCollector(Arc::clone(&common))));
        registry.register_collector(Box::new(nodes::Nodes(Arc::clone(&common))));
        registry.register_collector(Box::new(events::EventCollector(Arc::clone(&common))));
        registry.register_collector(Box::new(hooks::HookCollector(Arc::clone(&common))));
        registry.register_collector(Box::new(logs::LogCollector(Arc::clone(&common))));
        registry.register_collector(Box::new(process::ProcessCollector::new(Arc::clone(
            &common,
        ))));
        registry.register_collector(Box::new(identity::IdentityCollector(Arc::clone(
            &common.identities,
        ))));
        Self {
            common,
            registry,
            store,
            pools: PoolRegistry::default(),
            uid,
            shown: Mutex::default(),
            dev: None,
        }
    }

    /// Adds the figures of an engine outside the process, if there is one.
    pub(crate) fn with_engine(mut self, engine: Option<RemoteStore>) -> Self {
        let engine = Box::new(engine::EngineMetrics(engine));
        self.registry.register_collector(engine);
        self
    }

    /// Adds the figures of applications in processes.
    pub(crate) fn with_pools(mut self, pools: PoolRegistry) -> Self {
        let collector = Box::new(pools::PoolCollector(pools.clone()));
        self.registry.register_collector(collector);
        Self { pools, ..self }
    }

    /// Adds the notices that `veche dev` shows on pages; `None` outside of `veche dev`.
    pub(crate) fn with_dev(self, dev: Option<Arc<DevMode>>) -> Self {
        Self { dev, ..self }
    }

    /// Stores the configuration in force.
    pub(crate) fn configured(&self, config: &Config) {
        *self.shown.lock() = config.effective.shown();
    }

    /// Returns the figures of `veche status`.
    pub(crate) fn status(&self) -> Value {
        let mut status = json!({
            "workers": self.common.stats.len(),
            "connections": self.common.connections(),
            "connections_max": self.common.connections_max(),
            "sessions": self.sum(|s| &s.sessions),
            "users": self.sum(|s| &s.users),
            "channels": self.sum(|s| &s.channels),
            "messages_received": self.sum(|s| &s.messages_received),
            "messages_sent": self.sum(|s| &s.messages_sent),
            "slow": self.common.slow.show(unix_now_ms()),
            "pushes": self.sum(|s| &s.pushes),
            "slow_consumers": self.sum(|s| &s.slow_consumers),
            "services_running": self.sum(|s| &s.services_running),
            "service_restarts": self.sum(|s| &s.service_restarts),
            "tables": tables::figures(&self.store),
            "pools": pools::figures(&self.pools),
        });
        let history = self.common.history.stats();
        if let Some(cluster) = &self.common.cluster {
            let now_ms = veche_clock::monotonic_ms();
            status["cluster"] = cluster.seen().status(now_ms);
        }
        if let Some(error) = history.last_error.filter(|_| history.is_failing) {
            status["history_error"] = error.into();
        }
        status
    }

    fn sum(&self, cell: Read) -> u64 {
        self.common
            .stats
            .iter()
            .map(|stats| cell(stats).read())
            .sum()
    }
}

struct Workers(Arc<ProcessState>);

impl fmt::Debug for Workers {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Workers({})", self.0.stats.len())
    }
}

type Read = fn(&Stats) -> &SharedCounter;

/// Counters without labels: name, help text and the function that reads the value.
const COUNTERS: &[(&str, &str, Read)] = &[
    ("veche_connections_accepted", "Connections accepted", |s| {
        &s.accepted
    }),
    (
        "veche_accepts_stalled",
        "Times that the server stopped accepting connections, because the connection limit was reached or no descriptor was free",
        |s| &s.accepts_stalled,
    ),
    (
        "veche_received_bytes",
        "Bytes received from connections",
        |s| &s.bytes_received,
    ),
    ("veche_sent_bytes", "Bytes sent to connections", |s| {
        &s.bytes_sent
    }),
    ("veche_pushes", "Executed commands of back ends", |s| {
        &s.pushes
    }),
    (
        "veche_pushes_refused",
        "Invalid commands of back ends",
        |s| &s.pushes_refused,
    ),
    (
        "veche_push_fan_out",
        "Deliveries of publications to connections, counted by the home worker of the channel",
        |s| &s.fanned_out,
    ),
    (
        "veche_paced",
        "Times that reading from a client was delayed because the client exceeded its rate",
        |s| &s.throttled,
    ),
    (
        "veche_messages_dropped",
        "Messages of clients, and commands in messages, dropped because the client exceeded its rate",
        |s| &s.messages_dropped,
    ),
    (
        "veche_outpaced",
        "Connections closed because the client exceeded its rate",
        |s| &s.rate_limited,
    ),
    (
        "veche_slow_consumers",
        "Connections closed because the client did not read its data",
        |s| &s.slow_consumers,
    ),
    (
        "veche_history_evicted",
        "Publications evicted from history before they expired",
        |s| &s.history_evicted,
    ),
    (
        "veche_joins_untold",
        "Joins and leaves not sent to subscribers because a queue was full",
        |s| &s.join_leaves_dropped,
    ),
    (
        "veche_silent_closed",
        "Connections closed because the client sent nothing",
        |s| &s.pong_timeouts,
    ),
    (
        "veche_protocol_errors",
        "Connections closed because of a protocol violation",
        |s| &s.protocol_errors,
    ),
    (
        "veche_tokens_expired",
        "Connections closed because their token expired",
        |s| &s.tokens_expired,
    ),
    (
        "veche_tokens_renewed",
        "Tokens renewed on open connections",
        |s| &s.tokens_renewed,
    ),
    (
        "veche_app_errors",
        "Errors of applications: failed or stopped handlers, code that did not load",
        |s| &s.app_errors,
    ),
    (
        "veche_service_restarts",
        "Restarts of service instances",
        |s| &s.service_restarts,
    ),
    (
        "veche_mailbox_credits_refused",
        "Times that a worker had to wait because another worker's mailbox was full",
        |s| &s.credits_refused,
    ),
];

const GAUGES: &[(&str, &str, Read)] = &[
    ("veche_connections", "Open connections", |s| &s.connections),
    ("veche_sessions", "Open WebSocket sessions", |s| &s.sessions),
    (
        "veche_users",
        "Connected users for whom this worker is responsible",
        |s| &s.users,
    ),
    (
        "veche_channels",
        "Channels with subscribers for which this worker is responsible",
        |s| &s.channels,
    ),
    (
        "veche_subscriptions",
        "Subscriptions of sessions on this worker",
        |s| &s.subscriptions,
    ),
    (
        "veche_history_channels",
        "Channels with history for which this worker is responsible",
        |s| &s.streams,
    ),
    (
        "veche_history_bytes",
        "Bytes that the history on this worker uses, including positions of channels without publications; limits.history_bytes limits the sum over all workers, excluding those positions",
        |s| &s.history_bytes,
    ),
    (
        "veche_history_pending",
        "Publications and channel events that wait for the disk",
        |s| &s.history_pending,
    ),
    (
        "veche_app_clients",
        "Open outgoing WebSocket connections of applications",
        |s| &s.clients,
    ),
    (
        "veche_app_coroutines",
        "Waiting coroutines of applications",
        |s| &s.app_coroutines,
    ),
    (
        "veche_app_memory_bytes",
        "Memory of applications' VMs",
        |s| &s.app_memory_bytes,
    ),
    (
        "veche_services_running",
        "Running instances of services",
        |s| &s.services_running,
    ),
    (
        "veche_mailbox_depth",
        "Messages from other workers that the worker processed in the last iteration of its event loop",
        |s| &s.mailbox_depth,
    ),
];

/// Returns the counters of a metric, each with the value of its label.
type Cells = for<'s> fn(&'s Stats) -> Vec<(&'static str, &'s SharedCounter)>;

/// Counters with a label: name, help text, label, and the function that reads the values.
const LABELLED: &[(&str, &str, &str, Cells)] = &[
    ("veche_messages", "Messages", "direction", |s| {
        vec![("in", &s.messages_received), ("out", &s.messages_sent)]
    }),
    (
        "veche_message_bytes",
        "Payload bytes of messages",
        "direction",
        |s| {
            vec![
                ("in", &s.message_bytes_received),
                ("out", &s.message_bytes_sent),
            ]
        },
    ),
    ("veche_handshakes", "WebSocket handshakes", "outcome", |s| {
        let cell = |(outcome, label)| (label, &s.handshakes[outcome as usize]);
        HandshakeOutcome::ALL.into_iter().map(cell).collect()
    }),
    (
        "veche_tls_handshakes",
        "Successful TLS handshakes of clients",
        "outcome",
        |s| {
            ["full", "resumed"]
                .into_iter()
                .zip(&s.tls_connections)
                .collect()
        },
    ),
    (
        "veche_tls_versions",
        "Successful TLS handshakes of clients",
        "version",
        |s| ["1.2", "1.3"].into_iter().zip(&s.tls_versions).collect(),
    ),
    (
        "veche_tls_handshake_failures",
        "Failed TLS handshakes of clients",
        "reason",
        |s| {
            let cell = |(why, label)| (label, &s.tls_failures[why as usize]);
            TlsHandshakeFailure::ALL.into_iter().map(cell).collect()
        },
    ),
    (
        "veche_turned_away",
        "Refused connections and requests",
        "reason",
        |s| {
            let cell = |(why, label)| (label, &s.accepts_rejected[why as usize]);
            AcceptRejection::ALL.into_iter().map(cell).collect()
        },
    ),
    (
        "veche_wrong_keys",
        "Wrong API keys, by their use: the API of back ends, or the admin page",
        "lock",
        |s| {
            let cell = |(lock, label)| (label, &s.wrong_api_keys[lock as usize]);
            CredentialKind::ALL.into_iter().map(cell).collect()
        },
    ),
    (
        "veche_pushes_turned_away",
        "Valid commands of back ends refused because of publish_rate or memory_limit",
        "reason",
        |s| {
            ["rate", "memory"]
                .into_iter()
                .zip(&s.push_connections_rejected)
                .collect()
        },
    ),
    (
        "veche_recoveries",
        "Attempts to recover a subscription, by result: all missed publications were delivered, or not",
        "outcome",
        |s| {
            ["recovered", "lost"]
                .into_iter()
                .zip(&s.recoveries)
                .collect()
        },
    ),
    (
        "veche_publications_dropped",
        "Publications not delivered to slow clients",
        "outbox_full",
        |s| {
            ["drop_oldest", "latest", "miss"]
                .into_iter()
                .zip(&s.publications_dropped)
                .collect()
        },
    ),
    (
        "veche_tokens_refused",
        "Invalid tokens, at handshakes and renewals",
        "reason",
        |s| {
            let reasons = TokenError::ALL.iter().zip(&s.tokens_refused);
            reasons.map(|((_, label), cell)| (*label, cell)).collect()
        },
    ),
    ("veche_http_answers", "HTTP answers", "status", |s| {
        let classes = ["1xx", "2xx", "3xx", "4xx", "5xx"];
        classes.into_iter().zip(&s.http_responses).collect()
    }),
];

impl Collector for Workers {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for (name, help, read) in GAUGES {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (worker, stats) in self.each() {
                let labels = [("worker", worker.as_str())];
                let gauge = ConstGauge::new(read(stats).read() as i64);
                gauge.encode(family.encode_family(&labels)?)?;
            }
        }
        for (name, help, read) in COUNTERS {
            self.counters(&mut encoder, name, help, "", |s| vec![("", read(s))])?;
        }
        for (name, help, label, cells) in LABELLED {
            self.counters(&mut encoder, name, help, label, cells)?;
        }
        self.memory(&mut encoder)?;
        self.turns(&mut encoder)
    }
}

impl Workers {
    fn each(&self) -> impl Iterator<Item = (String, &Stats)> {
        let stats = self.0.stats.iter().enumerate();
        stats.map(|(index, stats)| (index.to_string(), &**stats))
    }

    /// Encodes a counter metric of all workers. If `label` is empty, the number of the worker is the only label.
    fn counters<'s>(
        &'s self,
        encoder: &mut DescriptorEncoder<'_>,
        name: &str,
        help: &str,
        label: &str,
        cells: impl Fn(&'s Stats) -> Vec<(&'static str, &'s SharedCounter)>,
    ) -> Result<(), fmt::Error> {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (worker, stats) in self.each() {
            for (value, cell) in cells(stats) {
                let mut labels = vec![("worker", worker.as_str()), (label, value)];
                labels.retain(|(label, _)| !label.is_empty());
                ConstCounter::new(cell.read()).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }

    /// Encodes the memory and the memory limit of the process.
    fn memory(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let memory = &self.0.memory;
        for (name, help, bytes) in [
            (
                "veche_memory_bytes",
                "Resident memory of the process, not counting pages of files",
                memory.used(),
            ),
            (
                "veche_memory_limit_bytes",
                "The memory_limit that is in force, in bytes; 0 if there is none",
                memory.limit(),
            ),
        ] {
            let family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(bytes as i64).encode(family)?;
        }
        Ok(())
    }

    fn turns(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let help =
            "Duration of a turn of the worker's event loop, not counting the wait for events";
        let mut family =
            encoder.encode_descriptor("veche_turn_seconds", help, None, MetricType::Histogram)?;
        let seconds = |us: u64| us as f64 / 1e6;
        for (worker, stats) in self.each() {
            let bounds = TURN_BUCKETS_US.iter().map(|&us| seconds(us));
            let counts = stats.turns.iter().map(SharedCounter::read);
            let buckets: Vec<(f64, u64)> = bounds.chain([f64::INFINITY]).zip(counts).collect();
            let count = buckets.iter().map(|(_, count)| count).sum();
            let sum = seconds(stats.turn_us.read());
            let labels = [("worker", worker.as_str())];
            let mut metric = family.encode_family(&labels)?;
            metric.encode_histogram::<NoExemplar>(sum, count, &buckets, None)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use veche_frontends::ProcessServices as _;

    use super::*;

    fn report(workers: usize) -> (Arc<ProcessState>, MetricsReport) {
        report_on(workers, Arc::default())
    }

    fn report_on(workers: usize, store: Arc<Store>) -> (Arc<ProcessState>, MetricsReport) {
        let common = Arc::new(ProcessState::new(workers, veche_clock::now()));
        let report = MetricsReport::new(
            Arc::clone(&common),
            Outbound::default(),
            store,
            "0".to_owned(),
        );
        let pools = PoolRegistry::default();
        // Creates the figures of an application, so that their labels are listed.
        let _ = pools.of("chat");
        let report = report.with_engine(None).with_pools(pools);
        (common, report)
    }

    #[test]
    fn every_worker_has_its_own_line_and_its_own_count() {
        let (common, report) = report(2);
        common.stats[1].pushes.add(3);
        common.stats[0].handshake(HandshakeOutcome::ForeignOrigin);
        common.stats[1].turn(70);
        common.stats[1].turn(1_000_000);
        let text = report.metrics();
        for line in [
            "veche_pushes_total{worker=\"0\"} 0",
            "veche_pushes_total{worker=\"1\"} 3",
            "veche_handshakes_total{worker=\"0\",outcome=\"foreign_origin\"} 1",
            "veche_turn_seconds_bucket{le=\"0.0001\",worker=\"1\"} 1",
            "veche_turn_seconds_count{worker=\"1\"} 2",
        ] {
            assert!(
                text.lines().any(|found| found == line),
                "{line}\nin\n{text}"
            );
        }
        assert!(text.ends_with("# EOF\n"));
    }

    /// Generates the reference page of the metrics from a scrape.
    #[test]
    fn the_reference_lists_every_metric() {
        let store = Arc::new(Store::default());
        tables::tests::make(&store, "users");
        let (_, report) = report_on(1, store);
        let text = report.metrics();
        let mut page = String::from(
            "# Metrics\n\n`GET /metrics` on an internal listener returns these metrics for Prometheus, one line per \
             `worker`, per `client` or `table` of scripts, or per `app` with processes. Counters end in `_total`.\n\nA test generates this page from \
             a scrape; `VECHE_BLESS=1 cargo test -p veche reference` updates it.\n\n| metric | kind | labels | \
             meaning |\n|---|---|---|---|\n",
        );
        let after = |prefix: &str, name: &str| {
            let start = format!("# {prefix} {name} ");
            let found = text.lines().find_map(|line| line.strip_prefix(&start));
            found.unwrap_or_default().trim_end_matches('.').to_owned()
        };
        for line in text.lines().filter_map(|line| line.strip_prefix("# HELP ")) {
            let name = line.split(' ').next().unwrap_or_default();
            let sample = text
                .lines()
                .find(|line| !line.starts_with('#') && line.starts_with(name));
            let labels = sample
                .and_then(|sample| sample.split(['{', '}']).nth(1))
                .unwrap_or_default();
            let labels = labels
                .split(',')
                .filter_map(|label| label.split('=').next());
            let labels: Vec<String> = labels
                .filter(|&label| !matches!(label, "" | "le"))
                .map(|label| format!("`{label}`"))
                .collect();
            let kind = after("TYPE", name);
            page.push_str(&format!(
                "| `{name}` | {kind} | {} | {} |\n",
                labels.join(", "),
                after("HELP", name)
            ));
        }
        crate::generated_page::assert_page_is_current("metrics.md", &page);
    }
}
