//! Orders of the home worker of channels to an engine outside this process, and the events of the engine for that
//! worker.

use std::sync::Arc;

use bytes::Bytes;
use veche_types::{Epoch, Position, Version};

use super::StoreState;
use super::peer::Entries;

/// An order of a home worker, called *home* here, to its engine.
///
/// The *topic* of a channel is the name under which its feed is subscribed: the channel itself, or the wildcard channel
/// that covers all channels of its namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// The home has handled the [`Event::Up`] of the connection with this number. Until this order arrives, the owner
    /// of the connection drops all orders except `Follow` and `Unfollow`, because the home issued the others before it
    /// knew of the connection.
    Begin(u64),
    /// Publishes to a channel. Answered by [`Event::Published`].
    Publish(Box<Publish>),
    /// Starts the feed of a topic. [`Event::Followed`] is sent when it has started, and again after each interruption.
    Follow(Arc<str>),
    /// Ends the feed of a topic.
    Unfollow(Arc<str>),
    /// Compares the store's latest publication of a channel with the latest one that the home
    /// knows. Answered by [`Event::Checked`].
    Check(Box<Check>),
    /// Reads stored publications of a channel. Answered by [`Event::Entries`].
    Read(Box<Read>),
    /// Removes all publications of a channel, but not its position. Answered by [`Event::Removed`].
    Remove {
        /// The answer to this order carries the same ticket.
        ticket: u64,
        /// Name of the channel whose publications are removed.
        channel: Arc<str>,
    },
    /// Records that a member on this node has joined or left. Answered by [`Event::Member`].
    Member(Box<Member>),
    /// Records that a channel has got its first subscriber on this node or lost its last one.
    /// Answered by [`Event::Occupancy`].
    Occupancy(Box<Occupancy>),
    /// Reads the members of a channel, or their number. Answered by [`Event::Members`].
    Members {
        /// The answer to this order carries the same ticket.
        ticket: u64,
        /// Name of the channel whose members are read.
        channel: Arc<str>,
        /// Whether only the number of members is read.
        only_counts: bool,
    },
}

/// Parameters of [`Order::Publish`], which publishes to a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publish {
    /// The answer to this order carries the same ticket.
    pub ticket: u64,
    /// Name of the channel to which the publication belongs.
    pub channel: Arc<str>,
    /// The channel's topic, if it differs from the channel's name.
    pub topic: Option<Arc<str>>,
    /// The encoded publication. Its [id](crate::engine::channel::id_of) distinguishes it from all
    /// other publications and from earlier attempts to publish it.
    pub data: Bytes,
    /// How the channel stores publications; `None` if this publication is not stored.
    pub keep: Option<Keep>,
    /// The publisher's idempotency key.
    pub key: Option<Box<str>>,
    /// The version of the channel's state that the publication contains.
    pub version: Option<Version>,
    /// Set if the order is repeated. An earlier attempt may have stored the publication after this
    /// position or in another epoch. The publication is published only if it is certain that no
    /// earlier attempt has stored it.
    pub repeats_since: Option<Position>,
}

/// How a channel stores publications.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    /// The maximum number of stored publications.
    pub size: u32,
    /// The time for which publications are stored, in milliseconds.
    pub ttl_ms: u64,
    /// The time for which the position of an unused channel is stored, in milliseconds.
    pub position_ttl_ms: u64,
    /// The epoch that the channel begins if the store has no epoch for it.
    pub epoch: Epoch,
}

/// The result of [`Order::Publish`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Published {
    /// The publication was published. Contains the position, if the publication is stored, and the number of nodes with
    /// subscribers, which is unknown if an earlier attempt published the publication.
    Done(Option<Position>, Option<u32>),
    /// The publication was not published, because its version is not newer or its key was used before. Contains the
    /// position of the channel, or that of the first publication with the same key if that publication is stored.
    Skipped(Option<Position>),
    /// It is unknown whether the publication was published.
    Unknown,
    /// The publication was rejected and is not stored.
    Refused,
}

/// Parameters of [`Order::Check`], which looks up the position of a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The answer to this order carries the same ticket.
    pub ticket: u64,
    /// Name of the channel to check.
    pub channel: Arc<str>,
    /// How the channel stores publications.
    pub keep: Keep,
    /// The position and id of the latest publication that this node knows; `None` if it knows none.
    pub seen: Option<(Position, u64)>,
    /// Whether the channel must begin a new epoch if the store does not have the publication that
    /// `seen` identifies.
    pub is_verifying: bool,
    /// An epoch of the channel that has ended, if one is known. If the store still has this epoch,
    /// the store was rolled back, and the channel begins a new epoch.
    pub ended: Option<Epoch>,
    /// The read of publications that follows the comparison in the same command, if one is needed. The ticket of this
    /// read is not used.
    pub read: Option<Box<Read>>,
}

/// Parameters of [`Order::Read`], which reads stored publications.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// The answer to this order carries the same ticket.
    pub ticket: u64,
    /// Name of the channel to read.
    pub channel: Arc<str>,
    /// How the channel stores publications.
    pub keep: Keep,
    /// The offset after which publications are read, or before which they are read in descending
    /// order; `None` for no restriction.
    pub since: Option<u64>,
    /// The maximum number of publications.
    pub limit: usize,
    /// Which publications are returned, and in which order.
    pub direction: Direction,
}

/// The order in which a read returns publications, and which publications it returns if there are more than the read's
/// limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The oldest publications, oldest first.
    Forward,
    /// The latest publications, latest first.
    Reverse,
    /// The latest publications, oldest first.
    Latest,
}

/// Parameters of [`Order::Member`], which adds or removes a member of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The answer to this order carries the same ticket.
    pub ticket: u64,
    /// Name of the member's channel.
    pub channel: Arc<str>,
    /// The client id of the member, unique on its node.
    pub client: Box<str>,
    /// Name of the member's user.
    pub user: Box<str>,
    /// The encoded member if it has joined; `None` if it has left.
    pub data: Option<Bytes>,
    /// Whether the answer must state whether the user of the member is also a member on another node.
    pub finds_user: bool,
}

/// Parameters of [`Order::Occupancy`], which records whether a channel has subscribers on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Occupancy {
    /// The answer to this order carries the same ticket.
    pub ticket: u64,
    /// Name of the channel.
    pub channel: Arc<str>,
    /// Whether the channel has subscribers on this node.
    pub is_occupied: bool,
    /// Whether the order repeats an earlier one whose answer was lost and that may have been
    /// executed.
    pub is_repeated: bool,
}

/// An event of an engine for a home.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The connection with this number was opened. The home sends [`Order::Begin`], and may then
    /// repeat unanswered orders.
    Up(u64, StoreState),
    /// The connection was lost, so unanswered orders get no answer. Followed topics remain
    /// followed.
    Down,
    /// The connection of the feed was lost. [`Event::Followed`] is sent again for each followed
    /// topic once its feed continues.
    Interrupted,
    /// The feed of a topic has started, or continues after an interruption. Publications between
    /// the topic's last event and this one may be missing.
    Followed(Arc<str>),
    /// An item of the feed. Items without a position are not stored.
    Item {
        /// Name of the publication's channel.
        channel: Arc<str>,
        /// The position of the item, and the offset of its predecessor in the same epoch; `None` if
        /// the item is not stored.
        place: Option<(Position, u64)>,
        /// The encoded publication, equal to [`Publish::data`] of the publishing node's order.
        data: Bytes,
    },
    /// The answer to [`Order::Publish`].
    Published {
        /// The ticket of the order that this event answers.
        ticket: u64,
        /// Whether the publication was published, and its position.
        result: Published,
    },
    /// The answer to [`Order::Check`].
    Checked {
        /// The ticket of the order that this event answers.
        ticket: u64,
        /// The state of the channel; `None` if the engine gave no valid answer.
        found: Option<Found>,
    },
    /// The answer to [`Order::Read`].
    Entries {
        /// The ticket of the order that this event answers.
        ticket: u64,
        /// The stored publications in the requested order; `None` if they can't be read.
        entries: Option<Box<Entries>>,
    },
    /// The answer to [`Order::Remove`].
    Removed {
        /// The ticket of the order that this event answers.
        ticket: u64,
        /// Whether the channel's publications were removed; false if the store could not do so.
        is_removed: bool,
    },
    /// The store no longer has the members of this node, because the node's lease has ended or the
    /// store has lost data.
    Forgotten,
    /// The answer to [`Order::Member`].
    Member {
        /// The ticket of the order that this event answers.
        ticket: u64,
        /// Whether another node has a member of the same user.
        is_elsewhere: bool,
    },
    /// The answer to [`Order::Members`].
    Members {
        /// The ticket of the order that this event answers.
        ticket: u64,
        /// The members or their number; `None` if they can't be read.
        found: Option<Members>,
    },
    /// A member of another node has left because the lease of that node has ended.
    Departed {
        /// Name of the channel that the member belonged to.
        channel: Arc<str>,
        /// The member, as its node encoded it.
        data: Bytes,
        /// Whether the same user is a member on a node whose lease is valid.
        is_elsewhere: bool,
    },
    /// The answer to [`Order::Occupancy`].
    Occupancy {
        /// The ticket of the order that this event answers.
        ticket: u64,
        /// Whether the order changed the channel's occupancy in the whole cluster, and the time of
        /// the store's clock in milliseconds since 1970; `None` if the order was not executed.
        outcome: Option<(bool, u64)>,
    },
    /// A channel no longer has subscribers: its last ones were on another node, whose lease has
    /// ended.
    Vacated {
        /// Name of the channel.
        channel: Arc<str>,
        /// The time of the store's clock, in milliseconds since 1970.
        at_ms: u64,
    },
}

/// The state of a channel in the store, as [`Order::Check`] found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Position of the latest publication.
    pub top: Position,
    /// The id of the publication at `top`; 0 if unknown.
    pub id: u64,
    /// The offset of the publication before the latest one, and the latest publication itself; `None` if the latest
    /// publication is not stored or not later than [`Check::seen`].
    pub latest: Option<(u64, Bytes)>,
    /// The result of [`Check::read`]; `None` if no read was ordered, or if the read failed.
    pub entries: Option<Box<Entries>>,
}

/// The answer to [`Order::Members`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Members {
    /// The members, as their nodes encoded them.
    List(Vec<Bytes>),
    /// The numbers of clients and of users.
    Counts(u32, u32),
    /// There are too many members to list.
    TooMany,
}

/// The first byte of encoded publications, which identifies the version of the encoding.
pub const DATA_VERSION: u8 = 1;

/// Returns the id of an encoded publication, which is in bytes 1 to 8 in big-endian order; `None` if the bytes are not
/// a publication. The last byte of the id is the number of the attempt. Without this number, a loss of publications
/// could go unnoticed: a store that was rolled back may store a later attempt at the offset of the lost first attempt,
/// after different publications.
#[must_use]
pub fn id_of(data: &[u8]) -> Option<u64> {
    let (version, rest) = data.split_first()?;
    let id = rest.first_chunk()?;
    (*version == DATA_VERSION).then_some(u64::from_be_bytes(*id))
}

/// Returns whether two ids belong to attempts to publish the same publication.
#[must_use]
pub fn is_same_publication(one: u64, other: u64) -> bool {
    one >> u8::BITS == other >> u8::BITS
}
