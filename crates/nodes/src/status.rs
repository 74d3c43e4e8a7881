//! Whether a user is there.

use serde::{Deserialize, Serialize};

/// Whether a user is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserStatus {
    /// His connections on all workers.
    pub connections: u32,
    /// When the last of them went, in milliseconds since 1970, if none is there and that is still known.
    pub last_seen_ms: Option<u64>,
}

impl UserStatus {
    /// Returns the status of a user with connections to two nodes.
    #[must_use]
    pub fn join(self, other: Self) -> Self {
        let connections = self.connections.saturating_add(other.connections);
        let last_seen_ms = self.last_seen_ms.max(other.last_seen_ms);
        Self {
            connections,
            last_seen_ms: last_seen_ms.filter(|_| connections == 0),
        }
    }
}
