//! The configured engine: within this process, or shared with other nodes.

use std::sync::Arc;

use tracing::{info, warn};
use veche_config::{EngineConfig, RedisEngine};
use veche_hub::{NodeEngine, RemoteEngine};
use veche_nodes::NodeId;
use veche_nodes::engine::channel::{Event, Order};
use veche_outbound::Outbound;
use veche_outbound::engine::{EnginePort, EngineSettings, Notice, RemoteStore, Sentinel};

/// The target of log lines of an engine.
const LOG: &str = "veche::engine";

/// The port through which a worker uses an engine outside the process.
pub(crate) type HomePort = EnginePort<Order, Event>;

/// Connects to the engine; `None` if it is within this process.
pub(crate) fn connect(
    engine: &EngineConfig,
    outbound: &Outbound,
    node: NodeId,
) -> Result<Option<RemoteStore>, String> {
    let EngineConfig::Redis(redis) = engine else {
        return Ok(None);
    };
    let store = outbound.engine(settings(redis, node));
    let store = store.map_err(|fault| format!("[engine] url: {}", fault.words))?;
    let server = redis.keyspace.server.pool_name(&redis.prefix);
    info!(target: LOG, %node, %server, "connected to the engine");
    Ok(Some(store))
}

/// Returns a hub's side of an engine outside the process.
pub(crate) fn of_hub(seed: u64) -> NodeEngine {
    NodeEngine::Remote(Box::new(RemoteEngine::new(seed)))
}

fn settings(redis: &RedisEngine, node: NodeId) -> EngineSettings {
    EngineSettings {
        keyspace: Arc::clone(&redis.keyspace),
        sentinel: redis.sentinels.clone().map(|found| Sentinel {
            primary: found.primary,
            others: found.others,
            user: found.user,
            password: found.password,
        }),
        prefix: redis.prefix.clone(),
        trusts_failover: redis.trusts_failover,
        node,
        notice: Arc::new(say),
    }
}

fn say(notice: &Notice) {
    match notice {
        Notice::Connected => info!(target: LOG, "the engine is connected again"),
        Notice::Lost(error) => {
            warn!(target: LOG, %error, "the engine is disconnected; publications wait for it, and fail if it stays disconnected");
        }
        Notice::Restarted => {
            info!(target: LOG, "Redis was restarted: comparing the positions of channels");
        }
        Notice::Promoted => {
            warn!(target: LOG, "a replica of Redis was promoted, so all channels begin new epochs");
        }
        Notice::Trusted => {
            warn!(target: LOG, "a replica of Redis was promoted; because of on_failover = \"trust\" positions stay valid, and lost publications go unnoticed");
        }
        Notice::Refused(error) => {
            warn!(target: LOG, %error, "Redis refuses commands, so publications fail");
        }
    }
}
