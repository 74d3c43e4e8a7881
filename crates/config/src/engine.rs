//! The engine of channels, as configured.

use std::sync::Arc;

use veche_calls::Secret;
use veche_calls::redis::RedisDatabase;

/// `[engine]`: where channels are ordered and stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EngineConfig {
    /// In this server: in memory, and on disk with `[history]`.
    Memory,
    /// In Redis, together with other servers.
    Redis(RedisEngine),
}

/// The Sentinels of a Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sentinels {
    /// The name of the primary in the configuration of the Sentinels.
    pub primary: String,
    /// Hosts and ports of the Sentinels after the first.
    pub others: Vec<(String, u16)>,
    /// The user of the Sentinels, which may differ from that of the servers.
    pub user: Option<String>,
    /// The password of that user.
    pub password: Option<Secret>,
}

/// The Redis that orders and stores channels for all servers with the same prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisEngine {
    /// The server, or the first Sentinel.
    pub keyspace: Arc<RedisDatabase>,
    /// How Sentinels are asked for the primary; `None` without Sentinels.
    pub sentinels: Option<Sentinels>,
    /// The beginning of all names in Redis.
    pub prefix: String,
    /// Whether positions outlive a failover.
    pub trusts_failover: bool,
}
