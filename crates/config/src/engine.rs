//! The engine of channels, as configured.

use std::sync::Arc;

use veche_calls::redis::RedisDatabase;

/// `[engine]`: where channels are ordered and stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Engine {
    /// In this server: in memory, and on disk with `[history]`.
    Memory,
    /// In Redis, together with other servers.
    Redis(RedisEngine),
}

/// The Redis that orders and stores channels for all servers with the same prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisEngine {
    /// The server, or the first Sentinel.
    pub keyspace: Arc<RedisDatabase>,
    /// The name of the primary among the Sentinels, with further Sentinels; `None` without Sentinels.
    pub sentinels: Option<(String, Vec<(String, u16)>)>,
    /// The beginning of all names in Redis.
    pub prefix: String,
    /// Whether positions outlive a failover.
    pub trusts_failover: bool,
}
