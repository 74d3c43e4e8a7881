//! Resolution of host names.

use std::time::Duration;

/// Resolves a host with the system's resolver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolve {
    /// A host name, or an address as text.
    pub host: String,
    /// The time limit.
    pub timeout: Duration,
}
