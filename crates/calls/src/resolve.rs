//! Resolution of host names.

use std::time::Duration;

/// Resolves a host with the system's resolver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolveCall {
    /// A host name, or an address as text.
    pub host: String,
    /// The time limit of the query.
    pub timeout: Duration,
}
