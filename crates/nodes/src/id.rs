//! Ids of nodes, tickets of requests, and callers.

use std::fmt;

use serde::{Deserialize, Serialize};
use veche_types::{ConnectionId, WorkerId};

use crate::wire;

/// A node, identified by a random number chosen at the start of its process: a restarted node is another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Identifies a request of a session; the hub returns it with the reply and does not interpret it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Ticket(pub u32);

/// A request that waits for a reply: an API call of a back end, or a request of another session. The worker, session
/// and ticket belong to the requesting node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Caller {
    /// The worker of its connection.
    #[serde(with = "wire::WireWorker")]
    pub worker: WorkerId,
    /// The connection that sent the request.
    #[serde(with = "wire::WireConnection")]
    pub session: ConnectionId,
    /// The ticket of the request.
    pub ticket: Ticket,
}
