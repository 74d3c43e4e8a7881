//! Orders of a channel's home for an engine outside this process, and the engine's events.

use std::sync::Arc;

use bytes::Bytes;
use veche_types::{Epoch, Position, Version};

use super::StoreState;
use super::peer::Entries;

/// An order of a home.
///
/// The *topic* of a channel is the name that its feed is subscribed by: the channel itself, or a wildcard channel by which all of a
/// namespace are covered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// The home has learned of the connection with this number. Until then all orders except follows are dropped: they
    /// were issued before.
    Begin(u64),
    /// Publishes. Answered by [`Event::Published`].
    Publish(Box<Publish>),
    /// Starts the feed of a topic. [`Event::Followed`] is sent then, and again after each loss of the feed.
    Follow(Arc<str>),
    /// Ends the feed of a topic.
    Unfollow(Arc<str>),
    /// Compares a channel with the last item that the home has seen. Answered by [`Event::Checked`].
    Check(Box<Check>),
    /// Reads publications. Answered by [`Event::Entries`].
    Read(Box<Read>),
    /// Removes all publications of a channel, but not its position. Answered by [`Event::Removed`].
    Remove {
        /// Identifies the order in its answer.
        ticket: u64,
        /// Name of the channel whose publications are removed.
        channel: Arc<str>,
    },
    /// Records a member of this node. Answered by [`Event::Member`].
    Member(Box<Member>),
    /// Records that a channel has its first subscriber on this node, or has lost the last one. Answered by
    /// [`Event::Occupancy`].
    Occupancy(Box<Occupancy>),
    /// Reads the members of a channel, or their number. Answered by [`Event::Members`].
    Members {
        /// Identifies the order in its answer.
        ticket: u64,
        /// Name of the channel whose members are read.
        channel: Arc<str>,
        /// Whether only the numbers are read.
        only_counts: bool,
    },
}

/// A publication to be published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publish {
    /// Identifies the order in its answer.
    pub ticket: u64,
    /// Name of the channel to publish to.
    pub channel: Arc<str>,
    /// The channel's topic, if it differs.
    pub topic: Option<Arc<str>>,
    /// The encoded publication. Its [id](crate::engine::channel::id_of) distinguishes it from others.
    pub data: Bytes,
    /// How the publication is stored; `None`: not stored.
    pub keep: Option<Keep>,
    /// The publisher's idempotency key.
    pub key: Option<Box<str>>,
    /// The version of the state in the publication.
    pub version: Option<Version>,
    /// It may have been stored before, behind this position or in another epoch: it is published only if it is certain that
    /// it was not.
    pub repeats_since: Option<Position>,
}

/// How a channel stores publications.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    /// The number of publications.
    pub size: u32,
    /// The time for which publications are stored, in milliseconds.
    pub ttl_ms: u64,
    /// The time for which the position of an unused channel is stored, in milliseconds.
    pub position_ttl_ms: u64,
    /// The epoch to begin with where the channel has none.
    pub epoch: Epoch,
}

/// The result of a publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Published {
    /// Published, with the position if it is stored, and the number of nodes that have the channel, which is unknown
    /// for one published by an earlier attempt.
    Done(Option<Position>, Option<u32>),
    /// Not published, because the version is not newer or the key was used; with the position of the channel or of the
    /// first publication, if it is stored.
    Skipped(Option<Position>),
    /// The publication may or may not be stored.
    Unknown,
    /// The publication was rejected and is not stored.
    Refused,
}

/// Parameters of [`Order::Check`], which looks up the position of a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Identifies the order in its answer.
    pub ticket: u64,
    /// Name of the channel to check.
    pub channel: Arc<str>,
    /// How the channel stores publications.
    pub keep: Keep,
    /// The latest publication known to this node, and its id.
    pub seen: Option<(Position, u64)>,
    /// Whether the channel begins a new epoch unless that publication is stored at its offset.
    pub is_verifying: bool,
    /// An epoch of the channel that has ended, if one is known. A store that is still in it was rolled back, and the channel
    /// begins a new one.
    pub ended: Option<Epoch>,
}

/// Parameters of [`Order::Read`], which reads stored publications.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// Identifies the order in its answer.
    pub ticket: u64,
    /// Name of the channel to read.
    pub channel: Arc<str>,
    /// How the channel stores publications.
    pub keep: Keep,
    /// The offset after which to read, or before which if the latest come first.
    pub since: Option<u64>,
    /// The maximum number of publications.
    pub limit: usize,
    /// The selection and the order of publications.
    pub direction: Direction,
}

/// The publications that a read returns if there are more than its limit, and their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The oldest publications, in ascending order.
    Forward,
    /// The latest, latest first.
    Reverse,
    /// The latest, oldest first.
    Latest,
}

/// Parameters of [`Order::Member`], which adds or removes a member of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Identifies the order in its answer.
    pub ticket: u64,
    /// Name of the channel that the member belongs to.
    pub channel: Arc<str>,
    /// The id of the member's client, which identifies it on its node.
    pub client: Box<str>,
    /// Name of the member's user.
    pub user: Box<str>,
    /// The encoded member; `None`: it has left.
    pub data: Option<Bytes>,
    /// Whether to determine if the same user is a member elsewhere.
    pub finds_user: bool,
}

/// Parameters of [`Order::Occupancy`], which records whether a channel has subscribers on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Occupancy {
    /// Identifies the order in its answer.
    pub ticket: u64,
    /// Name of the channel.
    pub channel: Arc<str>,
    /// Whether the channel has subscribers on this node.
    pub is_occupied: bool,
    /// The change may have been recorded before, without an answer having arrived.
    pub is_repeated: bool,
}

/// An event of an engine for a home.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A connection with this number was opened. Unanswered orders may be repeated after [`Order::Begin`].
    Up(u64, StoreState),
    /// Disconnected; pending orders get no answer. Followed channels stay followed.
    Down,
    /// A topic is followed from here on; publications since the last event about it may be missing.
    Followed(Arc<str>),
    /// An item of the feed. Items without a position are not stored.
    Item {
        /// Name of the channel that was published to.
        channel: Arc<str>,
        /// The item's position and the offset of its predecessor in the same epoch.
        place: Option<(Position, u64)>,
        /// The encoded publication, as its node ordered it.
        data: Bytes,
    },
    /// The answer to [`Order::Publish`].
    Published {
        /// The ticket of the answered order.
        ticket: u64,
        /// Whether the publication was ordered, and at which position.
        result: Published,
    },
    /// The answer to [`Order::Check`].
    Checked {
        /// The ticket of the answered order.
        ticket: u64,
        /// The state of the channel; `None`: the engine has not answered.
        found: Option<Found>,
    },
    /// The answer to [`Order::Read`], `None` where it can't be read. Entries are in the requested order.
    Entries {
        /// The ticket of the answered order.
        ticket: u64,
        /// The stored publications; `None` where they can't be read.
        entries: Option<Box<Entries>>,
    },
    /// The answer to [`Order::Remove`]: whether the publications are removed.
    Removed {
        /// The ticket of the answered order.
        ticket: u64,
        /// Whether the publications are removed.
        is_removed: bool,
    },
    /// Members of this node are no longer stored: its lease had ended, or the store has lost them.
    Forgotten,
    /// The answer to [`Order::Member`]: whether the same user is a member on another node.
    Member {
        /// The ticket of the answered order.
        ticket: u64,
        /// Whether another node has a member of the same user.
        is_elsewhere: bool,
    },
    /// The answer to [`Order::Members`]; `None` where they can't be read.
    Members {
        /// The ticket of the answered order.
        ticket: u64,
        /// The members or their number; `None` where they can't be read.
        found: Option<Members>,
    },
    /// A member of another node whose lease has ended.
    Departed {
        /// Name of the channel that the member belonged to.
        channel: Arc<str>,
        /// The member, as its node encoded it.
        data: Bytes,
        /// Whether a node with a lease has a member of the same user.
        is_elsewhere: bool,
    },
    /// The answer to [`Order::Occupancy`].
    Occupancy {
        /// The ticket of the answered order.
        ticket: u64,
        /// Whether the order changed the channel's occupancy in the whole cluster, and the time of the store, in
        /// milliseconds since 1970; `None`: it is not recorded.
        outcome: Option<(bool, u64)>,
    },
    /// A channel whose last subscribers were on another node, whose lease has ended.
    Vacated {
        /// Name of the channel.
        channel: Arc<str>,
        /// The time of the store, in milliseconds since 1970.
        at_ms: u64,
    },
}

/// The state of a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Position of the latest publication.
    pub top: Position,
    /// The id of the publication there, 0 if unknown.
    pub id: u64,
    /// The latest publication and the offset before it, if it is stored after the known one.
    pub latest: Option<(u64, Bytes)>,
}

/// The answer to [`Order::Members`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Members {
    /// The members, as their nodes encoded them.
    List(Vec<Bytes>),
    /// The numbers of clients and of users.
    Counts(u32, u32),
    /// There are too many to list.
    TooMany,
}

/// The first byte of encoded publications of this version.
pub const DATA_VERSION: u8 = 1;

/// Returns the id of an encoded publication: bytes 1 to 8, big-endian. `None`: the bytes are not a publication.
#[must_use]
pub fn id_of(data: &[u8]) -> Option<u64> {
    let (version, rest) = data.split_first()?;
    let id = rest.first_chunk()?;
    (*version == DATA_VERSION).then_some(u64::from_be_bytes(*id))
}
