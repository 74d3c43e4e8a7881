//! Metrics of the connections to an engine outside the process.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use veche_outbound::engine::{EngineFigures, RemoteStore};

/// Reads the engine's figures at each scrape; without an engine outside the process, all are zero.
pub(super) struct EngineMetrics(pub(super) Option<RemoteStore>);

impl fmt::Debug for EngineMetrics {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("EngineMetrics")
    }
}

/// The name, the help text and the source of a counter.
type Counter = (&'static str, &'static str, fn(&EngineFigures) -> &AtomicU64);

const COUNTERS: &[Counter] = &[
    (
        "veche_engine_connections_lost",
        "Connections to the engine that were lost",
        |figures| &figures.losses,
    ),
    (
        "veche_engine_commands",
        "Commands sent to the engine, including Redis scripts",
        |figures| &figures.commands,
    ),
    (
        "veche_engine_batches",
        "Batches of commands sent to the engine",
        |figures| &figures.batches,
    ),
    (
        "veche_engine_messages",
        "Messages received from the engine's feed",
        |figures| &figures.messages,
    ),
    (
        "veche_engine_messages_ignored",
        "Messages on the engine's channels that were ignored: foreign, too long, or of another version",
        |figures| &figures.ignored,
    ),
    (
        "veche_engine_messages_dropped",
        "Messages of the engine's feed that were dropped because a worker could not accept more; channels with history recover them",
        |figures| &figures.dropped,
    ),
    (
        "veche_engine_feeds_silent",
        "Connections of the engine's feed that were closed because a test message did not arrive in time",
        |figures| &figures.silent,
    ),
];

impl Collector for EngineMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for (name, help, read) in COUNTERS {
            let value = self
                .0
                .as_ref()
                .map_or(0, |store| read(store.figures()).load(Ordering::Relaxed));
            let metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            ConstCounter::new(value).encode(metric)?;
        }
        Ok(())
    }
}
