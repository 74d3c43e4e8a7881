//! Which listeners accept connections at the connection limit and during a drain.

use veche_frontends::Role;

/// Selects the listeners that accept connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Accepting {
    /// Every listener: nothing restricts accepting.
    #[default]
    Everything,
    /// Listeners that are not public: the process is at its connection limit.
    BackEnds,
    /// All but push listeners: a drain has no clients left that pushes could reach.
    Clients,
    /// None: another process has taken over, or a drain is finished.
    Nothing,
}

impl Accepting {
    /// Returns whether listeners with this role accept connections.
    #[must_use]
    pub fn takes(self, role: Role) -> bool {
        match self {
            Self::Everything => true,
            Self::BackEnds => role != Role::Public,
            Self::Clients => role != Role::Push,
            Self::Nothing => false,
        }
    }
}
