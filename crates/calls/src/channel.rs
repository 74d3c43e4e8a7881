//! What scripts ask of a channel: its history, and who is there. No call to the world: the channel's home answers.

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChannelRequest {
    /// A part of its history.
    History {
        /// Those behind it, or before it if the latest come first: `EPOCH:OFFSET`.
        since: Option<String>,
        /// At most so many.
        limit: usize,
        /// The latest first.
        is_reverse: bool,
    },
    /// Who is there.
    Presence,
    /// How many are there.
    PresenceStats,
    /// Whether the user is there whose channel it is.
    UserStatus,
}

/// What the home says.
#[derive(Clone, Debug, PartialEq)]
pub enum ChannelReply {
    /// To a subscription: where a connection has joined the channel.
    Joined {
        /// Of the latest publication so far: its epoch and offset; `None` where the channel does not remember.
        position: Option<(String, u64)>,
        /// Whether the client gets all that it has missed; `None` if it has not come back.
        recovered: Option<bool>,
    },
    /// To [`ChannelRequest::History`].
    History {
        /// In the order that was asked for.
        publications: Vec<ChannelPublication>,
        /// Of the latest publication: `EPOCH:OFFSET`.
        position: String,
    },
    /// To [`ChannelRequest::Presence`], in no order.
    Presence(Vec<ChannelMember>),
    /// To [`ChannelRequest::PresenceStats`].
    PresenceStats {
        /// Connections.
        clients: u32,
        /// Users.
        users: u32,
    },
    /// To [`ChannelRequest::UserStatus`].
    UserStatus {
        /// Connections of the user.
        connections: u32,
        /// When the last of them went, in milliseconds since 1970, if that is known.
        last_seen_ms: Option<u64>,
    },
}

/// A publication of a channel's history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelPublication {
    /// Text, or any bytes.
    pub is_text: bool,
    /// What was published.
    pub data: Vec<u8>,
    /// `EPOCH:OFFSET`.
    pub position: String,
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// Who published it, where a client did.
    pub by: Option<ChannelMember>,
    /// Names and values.
    pub tags: Vec<(String, String)>,
}

/// A connection, as others see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelMember {
    /// The user; empty if anonymous.
    pub user: String,
    /// The connection.
    pub client: String,
    /// What is known of the connection: JSON, or any bytes.
    pub info: Option<Vec<u8>>,
}
