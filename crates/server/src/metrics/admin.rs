//! The data of the admin page: the counters of `/metrics` as one object per worker, slow operations, the configuration,
//! and the end of the log.

use serde_json::{Map, Value, json};
use veche_config::unix_now_ms;
use veche_frontends::Stats;
use veche_frontends::admin::AdminView;
use veche_frontends::stats::{SharedCounter, TURN_BUCKETS_US};

use super::{COUNTERS, GAUGES, LABELLED, MetricsReport, pools, tables};

/// The prefix of all metrics.
const PREFIX: &str = "veche_";

impl MetricsReport {
    /// Returns the JSON object for a view of the admin page.
    pub(super) fn seen(&self, look: AdminView) -> Value {
        match look {
            AdminView::Figures => self.figures(),
            AdminView::Slow => json!({"slow": self.common.slow.show(unix_now_ms())}),
            AdminView::Config => self.shown.lock().clone(),
            AdminView::Tables => tables::seen(&self.store),
            AdminView::Log { after } => {
                let (lines, count) = self.common.log.recent(after);
                json!({"lines": lines, "count": count, "lost": self.common.log.lost()})
            }
        }
    }

    fn figures(&self) -> Value {
        let common = &self.common;
        let workers = common.stats.iter().map(|stats| of_worker(stats));
        let cluster = common.cluster.as_ref();
        let now_ms = veche_clock::monotonic_ms();
        json!({
            "cluster": cluster.map(|cluster| cluster.seen().status(now_ms)),
            "pools": pools::figures(&self.pools),
            "uid": self.uid,
            "version": env!("CARGO_PKG_VERSION"),
            "now_ms": unix_now_ms(),
            "uptime_ms": common.started.elapsed().as_millis() as u64,
            "is_ready": common.is_ready(),
            // The value 0 means that only the limit of descriptors, which is not known here, limits
            // connections.
            "connections_max": u32::try_from(common.connections_max()).unwrap_or(0),
            "memory_bytes": common.memory.used(),
            "memory_limit_bytes": common.memory.limit(),
            "turn_bounds_us": TURN_BUCKETS_US,
            "workers": workers.collect::<Vec<_>>(),
        })
    }
}

/// Returns counters by metric name without the prefix.
fn of_worker(stats: &Stats) -> Value {
    let named = |name: &'static str| name.strip_prefix(PREFIX).unwrap_or(name).to_owned();
    let mut figures = Map::new();
    for (name, _, read) in GAUGES.iter().chain(COUNTERS) {
        figures.insert(named(name), read(stats).read().into());
    }
    for (name, _, _, cells) in LABELLED {
        let cells = cells(stats).into_iter();
        let values = cells.map(|(label, cell)| (label.to_owned(), cell.read().into()));
        figures.insert(named(name), Value::Object(values.collect()));
    }
    let turns: Vec<u64> = stats.turns.iter().map(SharedCounter::read).collect();
    figures.insert("turns".to_owned(), turns.into());
    figures.insert("turn_us".to_owned(), stats.turn_us.read().into());
    Value::Object(figures)
}
