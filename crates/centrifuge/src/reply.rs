//! Answers to commands.

use veche_types::codes::ErrorCode;

use crate::data::PublicationData;
use crate::publication::{ClientInfo, Publication};
use crate::write::fields::{Empty, Fields, Message};

/// The answer to one command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply<'a> {
    /// The command's id.
    pub id: u32,
    /// What came of it.
    pub outcome: Outcome<'a>,
}

/// What came of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// It failed.
    Error(CommandError<'a>),
    /// The connection is a client's.
    Connect(ConnectResult<'a>),
    /// It is subscribed.
    Subscribe(SubscribeResult<'a>),
    /// It is subscribed no more.
    Unsubscribe,
    /// It was published.
    Publish,
    /// Who is in the channel.
    Presence(PresenceResult<'a>),
    /// How many are in the channel.
    PresenceStats(PresenceStatsResult),
    /// What was published into the channel.
    History(HistoryResult<'a>),
    /// The server is there.
    Ping,
    /// What the method gave.
    Rpc(RpcResult<'a>),
    /// The connection's new time.
    Refresh(RefreshResult<'a>),
    /// The subscription's new time.
    SubRefresh(SubRefreshResult),
}

/// Why a command failed. Those of the protocol are made of an [`ErrorCode`](crate::ErrorCode).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandError<'a> {
    /// From 100 to 399 the protocol's, from 400 to 1999 an application's. Less than 100 is for SDKs.
    pub code: u32,
    /// For people.
    pub message: &'a str,
    /// Whether the same command may succeed later.
    pub is_temporary: bool,
}

impl From<ErrorCode> for CommandError<'static> {
    fn from(code: ErrorCode) -> Self {
        Self {
            code: code.code(),
            message: code.text(),
            is_temporary: code.is_temporary(),
        }
    }
}

/// What a client is told about its new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ConnectResult<'a> {
    /// The connection's id, unique among all.
    pub client: &'a str,
    /// The server's version.
    pub version: &'a str,
    /// Whether the connection ends unless it is refreshed.
    pub expires: bool,
    /// When, in seconds from now.
    pub ttl_s: u32,
    /// What the application has to say to it.
    pub data: Option<PublicationData<'a>>,
    /// The channels that the server subscribed it to.
    pub subs: &'a [(&'a str, SubscribeResult<'a>)],
    /// How often the server pings, in seconds; 0 if never.
    pub ping_s: u32,
    /// Whether the client has to answer pings.
    pub pong: bool,
    /// By what commands find this connection if they come another way.
    pub session: &'a str,
    /// The node on which it is.
    pub node: &'a str,
    /// The server's time, in milliseconds since 1970; 0 if it is not said.
    pub time_ms: i64,
}

/// What a client is told about its new subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SubscribeResult<'a> {
    /// Whether the subscription ends unless it is refreshed.
    pub expires: bool,
    /// When, in seconds from now.
    pub ttl_s: u32,
    /// Whether the client can recover what it misses.
    pub recoverable: bool,
    /// Which life of the stream the offset belongs to.
    pub epoch: &'a str,
    /// What the client missed, oldest first.
    pub publications: &'a [Publication<'a>],
    /// Whether that is all that it missed.
    pub recovered: bool,
    /// The last publication's number in the stream.
    pub offset: u64,
    /// Whether publications have offsets.
    pub positioned: bool,
    /// What the application has to say to it.
    pub data: Option<PublicationData<'a>>,
    /// Whether the client has asked to recover.
    pub was_recovering: bool,
    /// Whether deltas are agreed on.
    pub delta: bool,
}

/// Who is in a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct PresenceResult<'a> {
    /// Connections by their ids.
    pub presence: &'a [(&'a str, ClientInfo<'a>)],
}

/// How many are in a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct PresenceStatsResult {
    /// Connections.
    pub num_clients: u32,
    /// Users.
    pub num_users: u32,
}

/// What was published into a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct HistoryResult<'a> {
    /// In the order asked for.
    pub publications: &'a [Publication<'a>],
    /// Which life of the stream the offset belongs to.
    pub epoch: &'a str,
    /// The last publication's number in the stream.
    pub offset: u64,
}

/// What a method gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct RpcResult<'a> {
    /// The data, if it gave any.
    pub data: Option<PublicationData<'a>>,
}

/// A connection's new time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct RefreshResult<'a> {
    /// The connection's id.
    pub client: &'a str,
    /// The server's version.
    pub version: &'a str,
    /// Whether the connection ends unless it is refreshed again.
    pub expires: bool,
    /// When, in seconds from now.
    pub ttl_s: u32,
}

/// A subscription's new time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SubRefreshResult {
    /// Whether the subscription ends unless it is refreshed again.
    pub expires: bool,
    /// When, in seconds from now.
    pub ttl_s: u32,
}

impl Message for Reply<'_> {
    fn write(&self, fields: &mut impl Fields) {
        fields.unsigned(1, "id", self.id.into());
        match &self.outcome {
            Outcome::Error(error) => fields.message(2, "error", error),
            Outcome::Connect(result) => fields.message(5, "connect", result),
            Outcome::Subscribe(result) => fields.message(6, "subscribe", result),
            Outcome::Unsubscribe => fields.message(7, "unsubscribe", &Empty),
            Outcome::Publish => fields.message(8, "publish", &Empty),
            Outcome::Presence(result) => fields.message(9, "presence", result),
            Outcome::PresenceStats(result) => fields.message(10, "presence_stats", result),
            Outcome::History(result) => fields.message(11, "history", result),
            Outcome::Ping => fields.message(12, "ping", &Empty),
            Outcome::Rpc(result) => fields.message(13, "rpc", result),
            Outcome::Refresh(result) => fields.message(14, "refresh", result),
            Outcome::SubRefresh(result) => fields.message(15, "sub_refresh", result),
        }
    }
}

impl Message for CommandError<'_> {
    fn write(&self, fields: &mut impl Fields) {
        fields.unsigned(1, "code", self.code.into());
        fields.text(2, "message", self.message);
        fields.flag(3, "temporary", self.is_temporary);
    }
}

impl Message for ConnectResult<'_> {
    fn write(&self, fields: &mut impl Fields) {
        fields.text(1, "client", self.client);
        fields.text(2, "version", self.version);
        fields.flag(3, "expires", self.expires);
        fields.unsigned(4, "ttl", self.ttl_s.into());
        fields.data(5, "data", self.data);
        fields.map(6, "subs", self.subs);
        fields.unsigned(7, "ping", self.ping_s.into());
        fields.flag(8, "pong", self.pong);
        fields.text(9, "session", self.session);
        fields.text(10, "node", self.node);
        fields.signed(11, "time", self.time_ms);
    }
}

impl Message for SubscribeResult<'_> {
    fn write(&self, fields: &mut impl Fields) {
        fields.flag(1, "expires", self.expires);
        fields.unsigned(2, "ttl", self.ttl_s.into());
        fields.flag(3, "recoverable", self.recoverable);
        fields.text(6, "epoch", self.epoch);
        fields.messages(7, "publications", self.publications);
        fields.flag(8, "recovered", self.recovered);
        fields.unsigned(9, "offset", self.offset);
        fields.flag(10, "positioned", self.positioned);
        fields.data(11, "data", self.data);
        fields.flag(12, "was_recovering", self.was_recovering);
        fields.flag(13, "delta", self.delta);
    }
}

impl Message for PresenceResult<'_> {
    const KEEPS_ZEROS: bool = true;

    fn write(&self, fields: &mut impl Fields) {
        fields.map(1, "presence", self.presence);
    }
}

impl Message for PresenceStatsResult {
    const KEEPS_ZEROS: bool = true;

    fn write(&self, fields: &mut impl Fields) {
        fields.unsigned(1, "num_clients", self.num_clients.into());
        fields.unsigned(2, "num_users", self.num_users.into());
    }
}

impl Message for HistoryResult<'_> {
    const KEEPS_ZEROS: bool = true;

    fn write(&self, fields: &mut impl Fields) {
        fields.messages(1, "publications", self.publications);
        fields.text(2, "epoch", self.epoch);
        fields.unsigned(3, "offset", self.offset);
    }
}

impl Message for RpcResult<'_> {
    fn write(&self, fields: &mut impl Fields) {
        fields.data(1, "data", self.data);
    }
}

impl Message for RefreshResult<'_> {
    fn write(&self, fields: &mut impl Fields) {
        fields.text(1, "client", self.client);
        fields.text(2, "version", self.version);
        fields.flag(3, "expires", self.expires);
        fields.unsigned(4, "ttl", self.ttl_s.into());
    }
}

impl Message for SubRefreshResult {
    fn write(&self, fields: &mut impl Fields) {
        fields.flag(1, "expires", self.expires);
        fields.unsigned(2, "ttl", self.ttl_s.into());
    }
}
