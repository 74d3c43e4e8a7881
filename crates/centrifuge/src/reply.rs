//! Replies to commands.

use veche_types::codes::ErrorCode;

use crate::data::PublicationData;
use crate::publication::{ClientInfo, Publication};
use crate::write::fields::{Empty, Fields, Message};

/// The reply to one command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply<'a> {
    /// The id of the command.
    pub id: u32,
    /// The result of the command.
    pub outcome: Outcome<'a>,
}

/// The result of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// The command failed with an error.
    Error(CommandError<'a>),
    /// The client is connected.
    Connect(ConnectResult<'a>),
    /// The client is subscribed.
    Subscribe(SubscribeResult<'a>),
    /// The client is unsubscribed.
    Unsubscribe,
    /// The data were published.
    Publish,
    /// The members of the channel.
    Presence(PresenceResult<'a>),
    /// The number of members of the channel.
    PresenceStats(PresenceStatsResult),
    /// Publications of the channel.
    History(HistoryResult<'a>),
    /// The answer to a ping.
    Ping,
    /// The result of an RPC method.
    Rpc(RpcResult<'a>),
    /// A new expiry of the connection.
    Refresh(RefreshResult<'a>),
    /// A new expiry of the subscription.
    SubRefresh(SubRefreshResult),
}

/// An error of a command. Protocol errors are created from an [`ErrorCode`](crate::ErrorCode).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandError<'a> {
    /// The number of the error. The protocol defines the codes 100 to 399, applications define 400 to 1999. Codes below
    /// 100 are reserved for SDKs.
    pub code: u32,
    /// The text of the error, meant for people.
    pub message: &'a str,
    /// Whether the command may succeed later.
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

/// The result of a connect command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ConnectResult<'a> {
    /// The unique id of the connection.
    pub client: &'a str,
    /// The version of the server.
    pub version: &'a str,
    /// Whether the connection expires.
    pub expires: bool,
    /// Seconds until the connection expires.
    pub ttl_s: u32,
    /// Data from the application.
    pub data: Option<PublicationData<'a>>,
    /// Server-side subscriptions by channel name.
    pub subs: &'a [(&'a str, SubscribeResult<'a>)],
    /// The server's ping interval in seconds; 0 without pings.
    pub ping_s: u32,
    /// Whether the client has to answer pings.
    pub pong: bool,
    /// The session id with which the client sends commands in separate requests.
    pub session: &'a str,
    /// The node of the connection.
    pub node: &'a str,
    /// The server's time in milliseconds since 1970; 0 if omitted.
    pub time_ms: i64,
}

/// The result of a subscribe command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SubscribeResult<'a> {
    /// Whether the subscription expires.
    pub expires: bool,
    /// Seconds until the subscription expires.
    pub ttl_s: u32,
    /// Whether the client can recover missed publications.
    pub recoverable: bool,
    /// Epoch of the stream that the offset belongs to.
    pub epoch: &'a str,
    /// The missed publications, oldest first.
    pub publications: &'a [Publication<'a>],
    /// Whether recovery is complete.
    pub recovered: bool,
    /// Offset of the last publication in the stream.
    pub offset: u64,
    /// Whether publications have offsets.
    pub positioned: bool,
    /// Data from the application.
    pub data: Option<PublicationData<'a>>,
    /// Whether the client requested recovery.
    pub was_recovering: bool,
    /// Whether the client and the server have agreed on deltas.
    pub delta: bool,
}

/// The members of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct PresenceResult<'a> {
    /// Members of the channel by connection id.
    pub presence: &'a [(&'a str, ClientInfo<'a>)],
}

/// The number of members of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct PresenceStatsResult {
    /// Number of subscribed connections.
    pub num_clients: u32,
    /// Number of distinct users.
    pub num_users: u32,
}

/// Publications of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct HistoryResult<'a> {
    /// The publications in the requested order.
    pub publications: &'a [Publication<'a>],
    /// Epoch of the stream that the offset belongs to.
    pub epoch: &'a str,
    /// Offset of the last publication in the stream.
    pub offset: u64,
}

/// The result of an RPC method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct RpcResult<'a> {
    /// The returned data, if any.
    pub data: Option<PublicationData<'a>>,
}

/// A new expiry of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct RefreshResult<'a> {
    /// The id of the connection.
    pub client: &'a str,
    /// The version of the server.
    pub version: &'a str,
    /// Whether the connection expires.
    pub expires: bool,
    /// Seconds until the connection expires.
    pub ttl_s: u32,
}

/// A new expiry of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SubRefreshResult {
    /// Whether the subscription expires.
    pub expires: bool,
    /// Seconds until the subscription expires.
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
