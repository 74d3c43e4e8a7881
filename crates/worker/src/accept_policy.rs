//! Accepting: what a process at its cap, and one that goes away, still takes.

use veche_frontends::ListenerRole;

/// The listeners that connections are accepted from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AcceptPolicy {
    /// Every listener: nothing restricts accepting.
    #[default]
    Everything,
    /// Those that are not public: the process is at its cap.
    BackEndsOnly,
    /// Those without push lines: in a drain, once no client is left that these could reach.
    ClientsOnly,
    /// None: another process takes over, or a drain waits for nothing any more.
    Nothing,
}

impl AcceptPolicy {
    /// Returns whether connections are accepted from listeners of a role.
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
