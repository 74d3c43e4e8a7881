//! Which listeners accept connections at the connection limit and during a drain.

use veche_frontends::ListenerRole;

/// Selects the listeners that accept connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AcceptPolicy {
    /// Every listener: nothing restricts accepting.
    #[default]
    Everything,
    /// Only listeners for back ends accept: the process is at its connection limit.
    BackEndsOnly,
    /// All but push listeners: a drain has no clients left that pushes could reach.
    ClientsOnly,
    /// None: another process has taken over, or a drain is finished.
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
