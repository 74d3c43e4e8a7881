//! Channel queries of scripts: history and presence. They are not calls to external services: the channel's home worker,
//! which owns the channel's state, answers them.

/// The kind of a channel query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AppChannelQuery {
    /// A part of the history.
    History {
        /// A position, `EPOCH:OFFSET`. Publications after it are returned, or before it if
        /// `is_reverse`.
        since: Option<String>,
        /// The maximum number of publications.
        limit: usize,
        /// Whether the latest publications are returned first.
        is_reverse: bool,
    },
    /// The members of the channel.
    Presence,
    /// The number of members.
    PresenceStats,
    /// The status of the user of a personal channel.
    UserStatus,
}

/// The answer of a channel's home worker.
#[derive(Clone, Debug, PartialEq)]
pub enum ChannelReply {
    /// The position at which a connection has joined the channel, for a subscription.
    Joined {
        /// Epoch and offset of the latest publication; `None` if the channel has no history.
        position: Option<(String, u64)>,
        /// Whether all missed publications were recovered; `None` if no recovery was requested.
        recovered: Option<bool>,
    },
    /// The answer to [`AppChannelQuery::History`].
    History {
        /// The publications in the requested order.
        publications: Vec<ChannelPublication>,
        /// The position of the latest publication: `EPOCH:OFFSET`.
        position: String,
    },
    /// The answer to [`AppChannelQuery::Presence`], unordered.
    Presence(Vec<ChannelMember>),
    /// The answer to [`AppChannelQuery::PresenceStats`].
    PresenceStats {
        /// The number of connections.
        clients: u32,
        /// The number of users.
        users: u32,
    },
    /// The answer to [`AppChannelQuery::UserStatus`].
    UserStatus {
        /// The number of the user's connections.
        connections: u32,
        /// When the last of the user's connections closed, in milliseconds since 1970, if known.
        last_seen_ms: Option<u64>,
    },
}

/// A publication in a channel's history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelPublication {
    /// Whether the data is text or arbitrary bytes.
    pub is_text: bool,
    /// The published data: text or arbitrary bytes.
    pub data: Vec<u8>,
    /// The position in the history: `EPOCH:OFFSET`.
    pub position: String,
    /// The time of publication, in milliseconds since 1970.
    pub at_ms: u64,
    /// The publisher, if it was a client.
    pub by: Option<ChannelMember>,
    /// Tag names and values.
    pub tags: Vec<(String, String)>,
}

/// A member of a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelMember {
    /// The user; empty for an anonymous client.
    pub user: String,
    /// The id of the connection.
    pub client: String,
    /// Public data of the connection: JSON or arbitrary bytes.
    pub info: Option<Vec<u8>>,
}
