//! The online status of a user.

use serde::{Deserialize, Serialize};

/// The online status of a user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserStatus {
    /// The number of the user's connections on all workers.
    pub connections: u32,
    /// The time at which the user's last connection ended, in milliseconds since 1970; `None` if it is unknown or the
    /// user is connected.
    pub last_seen_ms: Option<u64>,
}

impl UserStatus {
    /// Returns the combined status of a user from the statuses on two nodes.
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
