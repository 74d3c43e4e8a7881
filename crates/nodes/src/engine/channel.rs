//! What the home of channels orders from an engine outside this process, and what it is told.

use std::sync::Arc;

use bytes::Bytes;
use veche_types::{Epoch, Position, Version};

use super::Store;
use super::peer::Entries;

/// An order of a home.
///
/// The *topic* of a channel is what its feed is subscribed by: the channel itself, or a wildcard channel by which all of a
/// namespace are heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// The home has taken note of the connection of this number. Until then all orders but follows are dropped: they were
    /// given before it knew.
    Begin(u64),
    /// Publishes. Answered by [`Event::Published`].
    Publish(Box<Publish>),
    /// Begins the feed of a topic. [`Event::Followed`] follows, and again after each loss of the feed.
    Follow(Arc<str>),
    /// Ends the feed of a topic.
    Unfollow(Arc<str>),
    /// Compares a channel with what the home has seen of it. Answered by [`Event::Checked`].
    Check(Box<Check>),
    /// Reads publications. Answered by [`Event::Entries`].
    Read(Box<Read>),
    /// Removes all publications of a channel; its position stays. Answered by [`Event::Removed`].
    Remove {
        /// Names the order in its answer.
        ticket: u64,
        /// The channel.
        channel: Arc<str>,
    },
    /// Notes a member of this node. Answered by [`Event::Member`].
    Member(Box<Member>),
    /// Asks for the members of a channel, or their number. Answered by [`Event::Members`].
    Members {
        /// Names the order in its answer.
        ticket: u64,
        /// The channel.
        channel: Arc<str>,
        /// Whether only the numbers are wanted.
        only_counts: bool,
    },
}

/// A publication to be published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publish {
    /// Names the order in its answer.
    pub ticket: u64,
    /// The channel.
    pub channel: Arc<str>,
    /// Its topic, if that is another.
    pub topic: Option<Arc<str>>,
    /// The encoded publication. Its [id](crate::engine::channel::id_of) tells it from others.
    pub data: Bytes,
    /// How it is stored; `None`: not at all.
    pub keep: Option<Keep>,
    /// The publisher's key that tells it from repetitions.
    pub key: Option<Box<str>>,
    /// The version of the state that it tells.
    pub version: Option<Version>,
    /// It may have been stored before, behind this position or in a later epoch: it is published only if it is certain that it
    /// was not.
    pub repeats_since: Option<Position>,
}

/// How a channel stores publications.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    /// The number of publications.
    pub size: u32,
    /// Milliseconds for which publications are stored.
    pub ttl_ms: u64,
    /// Milliseconds for which the position of an unused channel is stored.
    pub position_ttl_ms: u64,
    /// The epoch to begin with where the channel has none.
    pub epoch: Epoch,
}

/// The result of a publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Published {
    /// Published, with its position where it is stored, and the number of nodes that have its channel; that is not known of
    /// one that was published by an earlier attempt.
    Done(Option<Position>, Option<u32>),
    /// Its version is not newer, or its key was used: with the position of the channel or of its first publication, where
    /// that is stored.
    Skipped(Option<Position>),
    /// It is not known whether it is stored.
    Unknown,
    /// It was refused and is not stored.
    Refused,
}

/// See [`Order::Check`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Names the order in its answer.
    pub ticket: u64,
    /// The channel.
    pub channel: Arc<str>,
    /// How the channel stores publications.
    pub keep: Keep,
    /// The latest publication that this node has seen, and its id.
    pub seen: Option<(Position, u64)>,
    /// Whether the channel begins a new epoch unless that publication is the stored one at its offset.
    pub is_verifying: bool,
    /// An epoch of the channel that has ended, if one is known. A store that is still in it was rolled back, and the channel
    /// begins a new one.
    pub ended: Option<Epoch>,
}

/// See [`Order::Read`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// Names the order in its answer.
    pub ticket: u64,
    /// The channel.
    pub channel: Arc<str>,
    /// How the channel stores publications.
    pub keep: Keep,
    /// The offset behind which to read, or before which if the latest come first.
    pub since: Option<u64>,
    /// The maximum number of publications.
    pub limit: usize,
    /// Which of them, and in what order.
    pub direction: Direction,
}

/// Which publications a read returns where there are more than its limit, and in what order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The oldest, oldest first.
    Forward,
    /// The latest, latest first.
    Reverse,
    /// The latest, oldest first.
    Latest,
}

/// See [`Order::Member`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Names the order in its answer.
    pub ticket: u64,
    /// The channel.
    pub channel: Arc<str>,
    /// Names the member on its node: the id of its client.
    pub client: Box<str>,
    /// Its user.
    pub user: Box<str>,
    /// The encoded member; `None`: it has left.
    pub data: Option<Bytes>,
    /// Whether it has to be found out if the same user is a member elsewhere.
    pub finds_user: bool,
}

/// What an engine tells a home.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// There is a connection, with this number. Orders that were not answered may be given again behind
    /// [`Order::Begin`].
    Up(u64, Store),
    /// There is no connection any more; orders without an answer get none. Followed channels stay so.
    Down,
    /// A topic is followed from here on; what was published since the last event about it may be missing.
    Followed(Arc<str>),
    /// An item of the feed. Without a position it was not stored.
    Item {
        /// The channel.
        channel: Arc<str>,
        /// Its position and the offset of its predecessor in the same epoch.
        place: Option<(Position, u64)>,
        /// The encoded publication.
        data: Bytes,
    },
    /// The answer to [`Order::Publish`].
    Published {
        /// The ticket of the order.
        ticket: u64,
        /// The result.
        result: Published,
    },
    /// The answer to [`Order::Check`].
    Checked {
        /// The ticket of the order.
        ticket: u64,
        /// The state of the channel; `None`: the engine has not answered.
        found: Option<Found>,
    },
    /// The answer to [`Order::Read`], `None` where it can't be read. Entries are in the order that was asked for.
    Entries {
        /// The ticket of the order.
        ticket: u64,
        /// The publications.
        entries: Option<Box<Entries>>,
    },
    /// The answer to [`Order::Remove`]: whether they are removed.
    Removed {
        /// The ticket of the order.
        ticket: u64,
        /// Whether they are.
        is_removed: bool,
    },
    /// Members of this node are not stored any more: its lease had ended, or the store has lost them.
    Forgotten,
    /// The answer to [`Order::Member`]: whether the same user is a member on another node.
    Member {
        /// The ticket of the order.
        ticket: u64,
        /// Whether it is.
        is_elsewhere: bool,
    },
    /// The answer to [`Order::Members`]; `None` where they can't be read.
    Members {
        /// The ticket of the order.
        ticket: u64,
        /// The members.
        found: Option<Members>,
    },
    /// A member of another node whose lease has ended.
    Departed {
        /// The channel.
        channel: Arc<str>,
        /// The encoded member.
        data: Bytes,
    },
}

/// The state of a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its position.
    pub top: Position,
    /// The id of the publication there, 0 where that is not known.
    pub id: u64,
    /// That publication and the offset before it, if it is stored and is behind the one that was seen.
    pub latest: Option<(u64, Bytes)>,
}

/// See [`Order::Members`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Members {
    /// The encoded members.
    List(Vec<Bytes>),
    /// The numbers of clients and of users.
    Counts(u32, u32),
    /// There are too many to be listed.
    TooMany,
}

/// The first byte of encoded publications of this version.
pub const DATA_VERSION: u8 = 1;

/// Returns the id of an encoded publication: bytes 1 to 8, big-endian. `None`: the bytes are no publication.
#[must_use]
pub fn id_of(data: &[u8]) -> Option<u64> {
    let (version, rest) = data.split_first()?;
    let id = rest.first_chunk()?;
    (*version == DATA_VERSION).then_some(u64::from_be_bytes(*id))
}
