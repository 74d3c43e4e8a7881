//! Ids of nodes, tickets of requests, and callers.

use std::fmt;

use serde::{Deserialize, Serialize};
use veche_types::{ConnectionId, WorkerId};

use crate::wire;

/// A node, identified by a random number chosen at the start of its process. A restarted process is
/// a different node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Identifies a request of a session. The hub does not interpret it and returns it with the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Ticket(pub u32);

/// The session and ticket that wait for the reply to a request: an API call of a back end, or a request of another
/// session. Worker, session and ticket are those of the requesting node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Caller {
    /// The worker of the session.
    #[serde(with = "wire::WireWorker")]
    pub worker: WorkerId,
    /// The connection that sent the request.
    #[serde(with = "wire::WireConnection")]
    pub session: ConnectionId,
    /// The ticket of the request.
    pub ticket: Ticket,
}
