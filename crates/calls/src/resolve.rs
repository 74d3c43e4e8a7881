//! Names of hosts.

use std::time::Duration;

/// Asks for the addresses of a host, as the system's resolver has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolveCall {
    /// A name, or an address as text.
    pub host: String,
    /// How long it may take.
    pub timeout: Duration,
}
