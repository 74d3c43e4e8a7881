//! Replies of the hub to its callers: plain data.

use std::sync::Arc;

use crate::page::HistoryPage;
use crate::{ChannelList, ClientInfo, ConnectionList, Position, Publication, UserStatus};

/// The reply to a ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HubReply {
    /// The subscription is registered at the channel's home; with the joined state if the channel has history.
    Subscribed(Option<Box<SubscribeOutcome>>),
    /// A home on another worker accepted a publication, or it has become durable.
    Published(PublishOutcome),
    /// The engine did not answer a publication, which may have been stored, or it can't follow the channel of a
    /// subscription, which has ended.
    Failed,
    /// A page of a channel's history from a home on another worker.
    History(Result<Box<HistoryPage>, HistoryError>),
    /// The result of removing a channel's history, from another worker or after the log.
    HistoryRemoved(Result<(), HistoryError>),
    /// The members of a channel.
    Presence(Result<Box<[Arc<ClientInfo>]>, PresenceError>),
    /// The number of members of a channel.
    PresenceStats(Result<PresenceStats, PresenceError>),
    /// Channels homed on another worker.
    Channels(ChannelList),
    /// Connections of another worker that are subscribed to a channel.
    Connections(ConnectionList),
    /// The online status of a user.
    UserStatus(UserStatus),
    /// A user's home on another worker has dispatched a command.
    CommandDispatched(CommandDispatch),
    /// A home has counted all changes that a worker's execution of a command caused.
    CommandAcknowledged,
    /// The answer that follows covers only some of the nodes.
    Partial {
        /// Nodes that have answered.
        answered: u32,
        /// Nodes with a valid lease.
        known: u32,
    },
}

/// The outcome for a new subscriber of a channel with history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubscribeOutcome {
    /// The position of the latest publication; the next delivered publication follows it.
    pub position: Position,
    /// The missed publications, if the subscriber sent a known position.
    pub recovered: Option<Recovered>,
}

/// Maximum number of recovered publications; a subscriber that missed more learns that some are missing.
pub const RECOVERED_MAX: usize = 300;

/// The publications that a returning subscriber receives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// No publication is missing: with these the subscriber is up to date. If only the latest publication is stored,
    /// the subscriber has it.
    pub is_complete: bool,
    /// The missed publications, oldest first; empty if some are missing.
    pub publications: Vec<Publication>,
    /// Only the latest publications were returned, some of which the subscriber may have; earlier ones are unknown.
    pub is_latest_only: bool,
    /// The offset of the predecessor of the first publication; 0 without publications.
    pub predecessor: u64,
}

impl Recovered {
    /// Returns the offset of the predecessor of the publication at an index. Offsets need not be dense, so it can't be
    /// calculated.
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
    /// The number of registered subscribers on all workers; 0 if it was skipped, as its
    /// [`PublishOptions`](crate::PublishOptions) required. `None` if only all nodes of the engine together know the number.
    pub receivers: Option<u32>,
    /// Nodes with subscribers, where `receivers` is not known.
    pub nodes: Option<u32>,
    /// The position of the publication, or of the channel if it was skipped. `None` without history.
    pub position: Option<Position>,
    /// The publication was skipped: its version is not newer, or its idempotency key was used before.
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

/// Why a history request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HistoryError {
    /// The namespace has no history.
    #[error("the channel has no history")]
    Off,
    /// The position belongs to another epoch.
    #[error("the position does not belong to the channel's current stream")]
    Unrecoverable,
    /// The most publications of one answer.
    #[error(
        "a reply has at most {0} publications: request fewer, then the rest since the last of them"
    )]
    TooMany(usize),
    /// Replies in flight hold too many bytes that streams have already dropped.
    #[error("too many history replies are queued for clients that read slowly")]
    Busy,
    /// The engine did not answer.
    #[error("the history is not available now")]
    Unavailable,
}

/// Maximum number of members that are listed; of larger channels only the numbers are available.
pub const MEMBERS_MAX: usize = 10_000;

/// The number of members of a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PresenceStats {
    /// The number of member connections.
    pub clients: u32,
    /// Distinct users; all anonymous members count as one.
    pub users: u32,
}

/// Why a presence query failed.
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

/// The home's reply to a dispatched user command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommandDispatch {
    /// The number of the user's connections on all workers.
    pub connections: u32,
    /// The number of [`HubReply::CommandAcknowledged`] that complete the command; they may arrive before this reply.
    pub pending_acknowledgements: u32,
}
