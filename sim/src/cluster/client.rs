//! Subscribers and back ends, with the state that the world records of them.

use veche_hub::ConnectionId;

use super::channels::CHANNELS;
use super::ledger::Chain;

/// The place of a session: its node, its worker, and its id on that worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SessionLocation {
    pub(super) node: usize,
    pub(super) worker: usize,
    pub(super) session: ConnectionId,
}

/// A subscriber that keeps its positions while it moves from node to node.
#[derive(Debug, Default)]
pub(super) struct ClusterClient {
    pub(super) location: Option<SessionLocation>,
    /// The number of connections that the client has opened so far.
    pub(super) connections: usize,
    pub(super) subscriptions: [ClusterSubscription; CHANNELS.len()],
}

/// A client's subscription to a channel.
#[derive(Debug, Default)]
pub(super) struct ClusterSubscription {
    pub(super) state: State,
    /// The last publication that the client has.
    pub(super) chain: Option<Chain>,
    /// Whether the store has lost writes while the client was not subscribed. If no node used the
    /// channel then, no node can know that the client's position is invalid.
    pub(super) is_doubtful: bool,
    /// Whether the subscription ended because publications are missing, so that the client has to
    /// subscribe again.
    pub(super) is_lost: bool,
    /// The client has sent an unsubscribe command, which is not answered yet.
    pub(super) is_leaving: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    #[default]
    Off,
    /// The subscription was requested. The values are the request's ticket, and whether the
    /// subscription recovers.
    Waiting(u32, bool),
    Live,
}

/// The request behind a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Subscribe { client: usize, channel: usize },
    Unsubscribe { client: usize, channel: usize },
    Publish { publication: usize },
    Remove,
}

impl Asked {
    /// Returns whether the client with this number made the request.
    pub(super) fn is_of(self, number: usize) -> bool {
        match self {
            Self::Subscribe { client, .. } | Self::Unsubscribe { client, .. } => client == number,
            Self::Publish { .. } | Self::Remove => false,
        }
    }
}

/// A publication of a back end.
#[derive(Clone, Copy, Debug)]
pub(super) struct PushedPublication {
    pub(super) channel: usize,
    pub(super) is_keyed: bool,
    pub(super) progress: PublicationProgress,
    /// Whether the publication was submitted while the store had lost nothing.
    pub(super) is_safe: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PublicationProgress {
    Asked,
    /// The publication may be stored, or not.
    Unknown,
    /// The publication is stored, and the store has lost nothing since.
    Acknowledged,
    /// The publication was stored, and the store may have lost it since.
    Past,
}
