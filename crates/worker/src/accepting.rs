//! Accepting: what a process at its cap, and one that goes away, still takes.

use veche_frontends::Role;

/// The listeners that connections are accepted from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Accepting {
    /// Every listener: nothing restricts accepting.
    #[default]
    Everything,
    /// Those that are not public: the process is at its cap.
    BackEnds,
    /// Those without push lines: in a drain, once no client is left that these could reach.
    Clients,
    /// None: another process takes over, or a drain waits for nothing any more.
    Nothing,
}

impl Accepting {
    /// Returns whether connections are accepted from listeners of a role.
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
