//! The carrier of an engine outside this process: it holds the connections and carries out the orders of
//! [`veche_nodes::engine`].
//!
//! Each port has a task, a connection for its commands and one for its feed. Orders that arrive while commands are under way
//! go out together once those are answered, so a busy port pipelines without a timer.

mod port;

use std::sync::Arc;
use std::time::Duration;

use veche_calls::redis::Keyspace;
use veche_nodes::NodeId;

pub use port::EnginePort;

/// Where an engine is, and how this node uses it.
#[derive(Clone, Debug)]
pub struct EngineSettings {
    /// The server, or a Sentinel that names it.
    pub keyspace: Arc<Keyspace>,
    /// The name of the primary as Sentinels know it, and further Sentinels; `None`: the server itself.
    pub sentinel: Option<Sentinel>,
    /// What all keys and channels begin with.
    pub prefix: String,
    /// Whether positions outlive a failover although writes may be lost.
    pub trusts_failover: bool,
    /// This node.
    pub node: NodeId,
    /// An order that is not answered within this time ends its connection.
    pub timeout: Duration,
}

/// See [`EngineSettings::sentinel`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sentinel {
    /// The name of the primary.
    pub primary: String,
    /// Hosts and ports of Sentinels.
    pub addresses: Vec<(String, u16)>,
}
