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
