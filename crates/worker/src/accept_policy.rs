//! The listeners that accept connections at the connection limit and during a drain.

use veche_frontends::{ListenerRole, ShutdownReason};

use crate::drain::DrainProgress;

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

/// The number of open connections of the process, compared with its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionCount {
    /// So far below the limit that accepting may be resumed. The margin prevents resuming and pausing from alternating.
    Low,
    /// Below the limit.
    High,
    /// The limit is reached.
    AtLimit,
}

impl AcceptPolicy {
    /// Returns the policy from the beginning of a drain on. A process that is replaced accepts no connections, since the new
    /// process accepts them. If the server stops, no other process would accept them.
    #[must_use]
    pub fn in_drain(self, reason: ShutdownReason) -> Self {
        match reason {
            ShutdownReason::Replaced => Self::Nothing,
            ShutdownReason::Stopping => self,
        }
    }

    /// Returns the policy that follows from the state of the process. `drain` is `None` without a drain.
    #[must_use]
    pub fn settled(self, drain: Option<DrainProgress>, connections: ConnectionCount) -> Self {
        match (self, drain, connections) {
            (Self::Nothing, ..) => Self::Nothing,
            (_, Some(drain), _) if drain.have_services_ended => Self::Nothing,
            (_, Some(drain), _) if drain.are_clients_gone => Self::ClientsOnly,
            (Self::Everything, _, ConnectionCount::AtLimit) => Self::BackEndsOnly,
            (Self::BackEndsOnly, _, ConnectionCount::Low) => Self::Everything,
            (same, ..) => same,
        }
    }

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

#[cfg(test)]
mod tests {
    use super::AcceptPolicy::{BackEndsOnly, ClientsOnly, Everything, Nothing};
    use super::ConnectionCount::{AtLimit, High, Low};
    use super::*;

    #[test]
    fn the_limit_and_the_drain_determine_what_is_accepted() {
        for (before, connections, after) in [
            (Everything, Low, Everything),
            (Everything, High, Everything),
            (Everything, AtLimit, BackEndsOnly),
            (BackEndsOnly, AtLimit, BackEndsOnly),
            (BackEndsOnly, High, BackEndsOnly),
            (BackEndsOnly, Low, Everything),
            (Nothing, Low, Nothing),
        ] {
            assert_eq!(before.settled(None, connections), after, "{before:?}");
            let begun = Some(DrainProgress::default());
            assert_eq!(before.settled(begun, connections), after, "{before:?}");
        }
        let gone = DrainProgress {
            are_clients_gone: true,
            ..DrainProgress::default()
        };
        let ended = DrainProgress {
            have_services_ended: true,
            ..gone
        };
        for before in [Everything, BackEndsOnly, ClientsOnly] {
            assert_eq!(before.settled(Some(gone), AtLimit), ClientsOnly);
            assert_eq!(before.settled(Some(ended), Low), Nothing);
            assert_eq!(before.in_drain(ShutdownReason::Stopping), before);
            assert_eq!(before.in_drain(ShutdownReason::Replaced), Nothing);
        }
        assert_eq!(Nothing.settled(Some(gone), Low), Nothing);
    }
}
