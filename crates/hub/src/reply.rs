//! Replies of the hub to its callers. They are plain data.

use std::sync::Arc;

use crate::page::HistoryPage;
use crate::{ChannelList, ClientInfo, ConnectionList, Position, Publication, UserStatus};

/// The hub's reply to a request, which a ticket identifies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HubReply {
    /// The subscription is registered at the channel's home. Contains the subscriber's initial state, if the channel
    /// has history.
    Subscribed(Option<Box<SubscribeOutcome>>),
    /// A publication was accepted by a home on another worker, or was completed by the engine, for example because it
    /// is durable.
    Published(PublishOutcome),
    /// A request has failed. A publication fails if the engine did not answer it; it may have been stored nevertheless.
    /// A subscription fails, and ends, if the engine can't follow its channel.
    Failed,
    /// A page of a channel's history, if it was not returned at once.
    History(Result<Box<HistoryPage>, HistoryError>),
    /// The result of removing a channel's history, if it was not returned at once.
    HistoryRemoved(Result<(), HistoryError>),
    /// The members of a channel.
    Presence(Result<Box<[Arc<ClientInfo>]>, PresenceError>),
    /// The number of members of a channel.
    PresenceStats(Result<PresenceStats, PresenceError>),
    /// The channels of another home whose names match the pattern of the request.
    Channels(ChannelList),
    /// Connections of another worker that are subscribed to a channel.
    Connections(ConnectionList),
    /// The online status of a user.
    UserStatus(UserStatus),
    /// A user's home on another worker has dispatched a command to the workers with connections of the user.
    CommandDispatched(CommandDispatch),
    /// After a user command, an affected home has counted all membership changes of the sessions of one worker.
    CommandAcknowledged,
    /// The reply that follows covers only some of the nodes.
    Partial {
        /// The number of nodes that have answered.
        answered: u32,
        /// The number of nodes with a valid lease.
        known: u32,
    },
}

/// The initial state of a new subscriber of a channel with history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubscribeOutcome {
    /// The position of the latest publication that was delivered; the next delivered publication follows it.
    pub position: Position,
    /// The missed publications; `None` if the subscriber did not request recovery from a position.
    pub recovered: Option<Recovered>,
}

/// Maximum number of recovered publications. A subscriber that has missed more learns that some are missing.
pub const RECOVERED_MAX: usize = 300;

/// The publications that a returning subscriber receives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Whether the subscriber is up to date once it has these publications. If only the latest publication is
    /// recovered: whether the subscriber then has it.
    pub is_complete: bool,
    /// The missed publications, oldest first; empty if some of them are no longer available.
    pub publications: Vec<Publication>,
    /// Whether `publications` has only the latest publications, whatever the subscriber has missed. The subscriber may
    /// already have some of them.
    pub is_latest_only: bool,
    /// The offset of the predecessor of the first publication; 0 if there are no publications.
    pub predecessor: u64,
}

impl Recovered {
    /// Returns the offset of the predecessor of the publication at an index. The offset can't be calculated, because
    /// offsets need not be dense.
    #[must_use]
    pub fn before(&self, index: usize) -> u64 {
        let previous = index.checked_sub(1);
        let previous = previous.and_then(|previous| self.publications.get(previous)?.position);
        previous.map_or(self.predecessor, |position| position.offset)
    }
}

/// The result of a publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishOutcome {
    /// The number of registered subscribers on all workers. For a skipped publication: 0, or the number for the first
    /// publication with the same idempotency key. `None` if this node does not know the number, because other nodes may
    /// have subscribers.
    pub receivers: Option<u32>,
    /// The number of nodes with subscribers, if `receivers` is `None` and the engine knows it.
    pub nodes: Option<u32>,
    /// The position of the publication, or of the channel if the publication was skipped. `None` without history.
    pub position: Option<Position>,
    /// Whether the publication was skipped, because its version is not newer or its idempotency key was used before.
    pub is_skipped: bool,
}

impl Default for PublishOutcome {
    /// Returns a result without receivers.
    fn default() -> Self {
        Self {
            receivers: Some(0),
            nodes: None,
            position: None,
            is_skipped: false,
        }
    }
}

/// The reason why a history request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HistoryError {
    /// The namespace has no history.
    #[error("the channel has no history")]
    Off,
    /// The position belongs to another epoch.
    #[error("the position does not belong to the channel's current stream")]
    Unrecoverable,
    /// The request asks for more publications than one reply may contain. The value is that
    /// maximum.
    #[error(
        "a reply has at most {0} publications: request pages, each since the last publication of the previous page"
    )]
    TooMany(usize),
    /// Replies that were not sent yet hold too many bytes of publications that streams have already dropped.
    #[error("too many history replies are queued for clients that read slowly")]
    Busy,
    /// The engine did not answer.
    #[error("the history is not available now")]
    Unavailable,
}

/// Maximum number of members in a list. For larger channels only the number of members is available.
pub const MEMBERS_MAX: usize = 10_000;

/// The number of members of a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PresenceStats {
    /// The number of member connections.
    pub clients: u32,
    /// The number of distinct users. All anonymous members together count as one.
    pub users: u32,
}

/// The reason why a presence query failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PresenceError {
    /// The namespace does not track presence.
    #[error("the channel has no presence")]
    Off,
    /// The channel has more than [`MEMBERS_MAX`] members.
    #[error("the channel has too many members to list; request their number instead")]
    TooMany,
    /// The engine did not answer.
    #[error("the members are not available now")]
    Unavailable,
}

/// The home's reply when it has dispatched a user command to the workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommandDispatch {
    /// The number of the user's connections on all workers.
    pub connections: u32,
    /// The number of [`HubReply::CommandAcknowledged`] replies that complete the command. Some may arrive before this
    /// reply.
    pub pending_acknowledgements: u32,
}
