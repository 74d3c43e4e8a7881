//! The listeners that accept connections at the connection limit and during a drain.

use veche_frontends::ListenerRole;

/// Selects the listeners that accept connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AcceptPolicy {
    /// All listeners accept connections.
    #[default]
    Everything,
    /// Only listeners for back ends accept connections, because the process has reached its connection limit.
    BackEndsOnly,
    /// All listeners except push listeners accept connections. In a drain without remaining clients, a push
    /// could reach no client.
    ClientsOnly,
    /// No listener accepts connections: another process has taken over, or a drain has finished.
    Nothing,
}

impl AcceptPolicy {
    /// Returns whether listeners with this role accept connections.
    #[must_use]
    pub fn accepts(self, role: ListenerRole) -> bool {
        match self {
            Self::Everything => true,
            Self::BackEndsOnly => role != ListenerRole::Public,
            Self::ClientsOnly => role != ListenerRole::Push,
            Self::Nothing => false,
        }
    }
}
