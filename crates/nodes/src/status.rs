//! The online status of a user.

use serde::{Deserialize, Serialize};

/// The online status of a user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserStatus {
    /// The user's connections on all workers.
    pub connections: u32,
    /// When the last connection ended, in milliseconds since 1970, if there is none and the time is known.
    pub last_seen_ms: Option<u64>,
}
