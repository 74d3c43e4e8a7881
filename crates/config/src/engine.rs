//! The configuration of the engine, which orders and stores channels.

use std::sync::Arc;

use veche_calls::Secret;
use veche_calls::redis::RedisDatabase;

/// `[engine]`: where channels are ordered and stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EngineConfig {
    /// This server orders and stores channels itself: in memory, and on disk with `[history]`.
    Memory,
    /// Redis orders and stores channels for several servers.
    Redis(RedisEngine),
}

/// The Sentinels of a Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sentinels {
    /// The name of the primary in the configuration of the Sentinels.
    pub primary: String,
    /// Hosts and ports of further Sentinels; the first one is in [`RedisEngine::keyspace`].
    pub others: Vec<(String, u16)>,
    /// The user name at the Sentinels, which may differ from the user name at the Redis servers.
    pub user: Option<String>,
    /// The password of the Sentinels' user.
    pub password: Option<Secret>,
}

/// The Redis that orders and stores channels for all servers with the same prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisEngine {
    /// The address and the database of the Redis server. With Sentinels, the address is that of the
    /// first Sentinel.
    pub keyspace: Arc<RedisDatabase>,
    /// The Sentinels that are asked for the current primary; `None` without Sentinels.
    pub sentinels: Option<Sentinels>,
    /// The beginning of the names of all keys and channels in Redis.
    pub prefix: String,
    /// Whether clients' positions stay valid after a failover.
    pub trusts_failover: bool,
}
