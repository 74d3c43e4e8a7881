//! The query for a list of connections, answered by every worker.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{Caller, wire};

/// Requests the list of connections subscribed to a channel, which may be a personal one. Every worker answers for its
/// own connections.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListConnections {
    /// Name of the channel whose subscribers are listed.
    #[serde(with = "wire::text")]
    pub channel: Arc<str>,
    /// Restricts the list to clients that stated this application name when they connected; `None`: all clients.
    pub name: Option<Box<str>>,
    /// The caller that waits for the answers.
    pub caller: Caller,
}
