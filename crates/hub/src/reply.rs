//! What the hub replies to its callers: plain data.

use std::sync::Arc;

use crate::page::Page;
use crate::{ClientInfo, Connections, Listing, Position, Publication, UserStatus};

/// What a ticket is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The subscription is registered at the channel's home; with what it joins where the channel remembers.
    Subscribed(Option<Box<Joined>>),
    /// A publication was taken by a home on another worker, or has waited for the log.
    Published(Published),
    /// The engine has not answered a publication: it may have been stored or not. Or it can't follow the channel of a
    /// subscription, which has ended.
    Failed,
    /// A home on another worker has read a part of a channel's history.
    History(Result<Box<Page>, HistoryError>),
    /// A home on another worker, or the log, has let go of a channel's history.
    HistoryRemoved(Result<(), HistoryError>),
    /// Who is in a channel.
    Presence(Result<Box<[Arc<ClientInfo>]>, PresenceError>),
    /// How many are.
    PresenceStats(Result<PresenceStats, PresenceError>),
    /// Channels with their home on another worker.
    Channels(Listing),
    /// Connections of another worker that hear a channel.
    Connections(Connections),
    /// Whether a user is there.
    UserStatus(UserStatus),
    /// A user's home on another worker has passed an instruction on.
    Instructed(Instructed),
    /// A home has counted all that one worker's part in an instruction has changed.
    Settled,
    /// The answer that follows covers only some of the nodes.
    Partial {
        /// Nodes that have answered.
        answered: u32,
        /// Nodes with a valid lease.
        known: u32,
    },
}

/// What somebody joins who subscribes to a channel that remembers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    /// Of the latest publication so far: what he gets next has the next one.
    pub position: Position,
    /// What he has missed, if he had said up to where he knew the channel.
    pub recovered: Option<Recovered>,
}

/// The most publications that somebody gets who comes back; who has missed more is told so.
pub const RECOVERED_MAX: usize = 300;

/// What somebody gets who comes back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Nothing is missing: with these he has all that there is. Where channels keep the latest publication only, he has
    /// that one.
    pub is_whole: bool,
    /// What he has missed, oldest first; none if something is missing.
    pub publications: Vec<Publication>,
    /// They are the latest, of which he may have some, and of what was before nothing is known.
    pub are_latest: bool,
    /// The offset of the predecessor of the first publication; 0 without publications.
    pub before: u64,
}

impl Recovered {
    /// Returns the offset of the predecessor of the publication at this index: offsets need not be dense, so it can't be
    /// calculated.
    #[must_use]
    pub fn before(&self, index: usize) -> u64 {
        let previous = index.checked_sub(1);
        let previous = previous.and_then(|previous| self.publications.get(previous)?.position);
        previous.map_or(self.before, |position| position.offset)
    }
}

/// What became of a publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    /// Registered subscribers on all workers to whom it goes; 0 if it was not taken, as its
    /// [`PublishOptions`](crate::PublishOptions) wanted it. `None` where only the nodes of the engine together know.
    pub handed: Option<u32>,
    /// Nodes with subscribers, where `handed` is not known.
    pub nodes: Option<u32>,
    /// Its position, or the channel's if it was not taken. `None` where the channel does not
    /// remember.
    pub position: Option<Position>,
    /// It was not taken: its version is not newer, or its idempotency key has been used.
    pub is_skipped: bool,
}

impl Default for Published {
    /// It has no receivers.
    fn default() -> Self {
        Self {
            handed: Some(0),
            nodes: None,
            position: None,
            is_skipped: false,
        }
    }
}

/// Why there is no history to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HistoryError {
    /// Channels of its namespace don't remember.
    #[error("the channel keeps no history")]
    Off,
    /// The position is one of another epoch.
    #[error("the position does not belong to the channel's current stream")]
    Unrecoverable,
    /// One answer has at most so many publications.
    #[error(
        "a reply has at most {0} publications: request fewer, then the rest since the last of them"
    )]
    TooMany(usize),
    /// Answers that are on their way refer to too much of what channels have dropped.
    #[error("too many history replies are queued for clients that read slowly")]
    Busy,
    /// The engine has not answered.
    #[error("the history is not available now")]
    Unavailable,
}

/// The most members that are told at once; of larger channels there are the numbers.
pub const MEMBERS_MAX: usize = 10_000;

/// How many are in a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PresenceStats {
    /// Connections.
    pub clients: u32,
    /// Users; all that are anonymous are one.
    pub users: u32,
}

/// Why nobody says who is in a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PresenceError {
    /// Channels of its namespace don't keep presence.
    #[error("the channel keeps no presence")]
    Off,
    /// There are more than [`MEMBERS_MAX`].
    #[error("the channel has too many members to list; request their number instead")]
    TooMany,
    /// The engine has not answered.
    #[error("the members are not available now")]
    Unavailable,
}

/// What the user's home says of an instruction that it has passed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Instructed {
    /// The connections of the user, on all workers.
    pub connections: u32,
    /// How many times [`Answer::Settled`] comes before it is carried out; in any order with this answer.
    pub open: u32,
}
