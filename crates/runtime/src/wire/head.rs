//! The heads of frames: structs with the same fields as the JSON.
//!
//! An absent field and a `null` field are equivalent; unknown fields are ignored. Rules across fields are enforced by
//! [`FromWorker`](super::FromWorker) and [`ToWorker`](super::ToWorker).

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

/// The type of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FrameKind {
    /// The first frame of the worker process.
    Hello,
    /// Accepts the hello; the worker may start.
    Welcome,
    /// Rejects the hello, with a reason.
    Refuse,
    /// An event to be handled.
    Event,
    /// Effects of a handler that is still running, or effects that belong to no event.
    Effects,
    /// The end of a handler, with its last effects.
    Answer,
    /// A call that a handler makes.
    Call,
    /// The result of a call.
    Result,
    /// Cancels an event or a call whose answer is no longer needed.
    Cancel,
}

impl FrameKind {
    /// All types, in the order in which they first occur on a connection.
    pub const ALL: [Self; 9] = [
        Self::Hello,
        Self::Welcome,
        Self::Refuse,
        Self::Event,
        Self::Effects,
        Self::Answer,
        Self::Call,
        Self::Result,
        Self::Cancel,
    ];
}

/// The name of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventName {
    /// The process starts. Other events are sent only after the answer to this event.
    Start,
    /// The process ends. No other event follows.
    Stop,
    /// A WebSocket handshake whose 101 response has not been sent.
    Open,
    /// A complete message of a WebSocket.
    Message,
    /// The close of a WebSocket.
    Close,
    /// A complete HTTP request.
    Request,
    /// A client of Centrifugo's protocol connects without a token.
    Connect,
    /// A connection has reached its expiry: the handler decides whether it is extended.
    Refresh,
    /// A client subscribes to a channel.
    Subscribe,
    /// A subscription has reached its expiry: the handler decides whether it is extended.
    SubRefresh,
    /// A client publishes to a channel.
    Publish,
    /// A client calls an RPC method.
    Rpc,
    /// A client sends a message without expecting a reply.
    ClientMessage,
    /// A connected client has disconnected.
    Disconnect,
}

impl EventName {
    /// Returns the name by which frames refer to the event.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Stop => "stop",
            Self::Open => "open",
            Self::Message => "message",
            Self::Close => "close",
            Self::Request => "request",
            Self::Connect => "connect",
            Self::Refresh => "refresh",
            Self::Subscribe => "subscribe",
            Self::SubRefresh => "sub_refresh",
            Self::Publish => "publish",
            Self::Rpc => "rpc",
            Self::ClientMessage => "client_message",
            Self::Disconnect => "disconnect",
        }
    }

    /// All names of events.
    pub const ALL: [Self; 14] = [
        Self::Start,
        Self::Stop,
        Self::Open,
        Self::Message,
        Self::Close,
        Self::Request,
        Self::Connect,
        Self::Refresh,
        Self::Subscribe,
        Self::SubRefresh,
        Self::Publish,
        Self::Rpc,
        Self::ClientMessage,
        Self::Disconnect,
    ];

    /// Returns whether the event is about a connection, which is the default target of its effects.
    #[must_use]
    pub fn has_connection(self) -> bool {
        matches!(
            self,
            Self::Open | Self::Message | Self::Close | Self::Request
        )
    }
}

/// Deserializes a value, or `null` as the default value.
pub(super) fn nullable<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    from: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// The fields that all frames have in common.
#[derive(Debug, Deserialize)]
pub(super) struct FrameHeader {
    #[serde(rename = "type")]
    pub(super) kind: FrameKind,
    pub(super) id: Option<u64>,
}

/// The head of a [`FrameKind::Cancel`] frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelHead {
    /// The type of the frame, `type` in JSON.
    #[serde(rename = "type")]
    pub kind: FrameKind,
    /// The id of the event if Veche sends the frame, or of the call if the worker sends it.
    pub id: u64,
}

/// The value of a connection's attribute.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum AttributeValue {
    /// Either `true` or `false`.
    Boolean(bool),
    /// An integer that fits 64 bits.
    Whole(i64),
    /// A number with a fraction.
    Number(f64),
    /// Text of any length.
    Text(String),
}

/// A request, as part of an event.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestHead<'a> {
    /// The method of the request.
    #[serde(borrow)]
    pub method: Cow<'a, str>,
    /// The normalised path of the request.
    #[serde(borrow)]
    pub path: Cow<'a, str>,
    /// The query without its `?`, not decoded.
    #[serde(borrow, default, deserialize_with = "nullable")]
    #[serde(skip_serializing_if = "str::is_empty")]
    pub query: Cow<'a, str>,
    /// Header names in lower case and values, in order.
    #[serde(default, deserialize_with = "nullable")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// Route parameters and their values, decoded.
    #[serde(default, deserialize_with = "nullable")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub params: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// The address of the client.
    #[serde(borrow)]
    pub remote: Cow<'a, str>,
}

/// A client of Centrifugo's protocol.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientHead<'a> {
    /// The id of the client's session.
    #[serde(borrow)]
    pub id: Cow<'a, str>,
    /// The transport: `websocket`, `http_stream` or `sse`.
    #[serde(borrow)]
    pub transport: Cow<'a, str>,
    /// The encoding: `json` or `protobuf`.
    #[serde(borrow)]
    pub protocol: Cow<'a, str>,
    /// The name that the client reports.
    #[serde(borrow, default, deserialize_with = "nullable")]
    #[serde(skip_serializing_if = "str::is_empty")]
    pub name: Cow<'a, str>,
    /// The version that the client reports.
    #[serde(borrow, default, deserialize_with = "nullable")]
    #[serde(skip_serializing_if = "str::is_empty")]
    pub version: Cow<'a, str>,
    /// The address of the client.
    #[serde(borrow)]
    pub remote: Cow<'a, str>,
    /// The handshake headers that the route passes on; names in lower case.
    #[serde(default, deserialize_with = "nullable")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// The number of the payload part with the application's private data about the connection, as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<u32>,
}

/// The head of a [`FrameKind::Event`] frame.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EventHead<'a> {
    /// The type of the frame, `type` in JSON.
    #[serde(rename = "type")]
    pub kind: FrameKind,
    /// The id of the event, increasing within a process.
    pub id: u64,
    /// The name of the event.
    pub event: EventName,
    /// The id of the connection.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub connection: Option<Cow<'a, str>>,
    /// The user, if known.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub user: Option<Cow<'a, str>>,
    /// Attributes of the connection.
    #[serde(default, deserialize_with = "nullable")]
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, AttributeValue>,
    /// The HTTP request of the connection.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestHead<'a>>,
    /// The client that the event is about.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientHead<'a>>,
    /// The channel that the event is about.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<Cow<'a, str>>,
    /// The method of an RPC.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub method: Option<Cow<'a, str>>,
    /// The token sent with the command.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Cow<'a, str>>,
    /// Channels that a reconnecting client claims to have been subscribed to.
    #[serde(default, deserialize_with = "nullable")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub channels: Vec<Cow<'a, str>>,
    /// The close code of a connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<u16>,
    /// The close reason of a connection.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Cow<'a, str>>,
    /// The format of `data`: `text`, `binary` or `json`.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub data_kind: Option<Cow<'a, str>>,
    /// The number of the payload part with the message or body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<u32>,
    /// The lengths of the payload's parts in bytes, if there are several.
    #[serde(default, deserialize_with = "nullable")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<u32>,
}

/// The head of a [`FrameKind::Answer`] or [`FrameKind::Effects`] frame.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AnswerHead<'a> {
    /// The type of the frame, `type` in JSON.
    #[serde(rename = "type")]
    pub kind: FrameKind,
    /// The id of the event; `None` for effects that belong to no event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    /// The effects in order.
    #[serde(borrow, default, deserialize_with = "nullable")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub effects: Vec<EffectHead<'a>>,
    /// The reply, for events that need one.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub reply: Option<ReplyHead<'a>>,
    /// The error text if the handler failed: one line, or several with a traceback.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<Cow<'a, str>>,
    /// Whether the process accepts no further events and will end its stream.
    #[serde(default, deserialize_with = "nullable")]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub last: bool,
    /// The lengths of the payload's parts in bytes, if there are several.
    #[serde(default, deserialize_with = "nullable")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<u32>,
}

/// An effect. Each kind uses some of the fields.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EffectHead<'a> {
    /// The name of the effect.
    #[serde(borrow)]
    pub effect: Cow<'a, str>,
    /// The id of the connection that the effect applies to; `None` for the connection of the event.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub connection: Option<Cow<'a, str>>,
    /// The user to push to.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub user: Option<Cow<'a, str>>,
    /// The channel that the effect is about.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<Cow<'a, str>>,
    /// The format of `data`: `text` (the default), `binary` or `json`.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub data_kind: Option<Cow<'a, str>>,
    /// The number of the payload part with the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<u32>,
    /// The close code, for the effect `close`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<u16>,
    /// The close reason, for the effect `close`.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Cow<'a, str>>,
    /// New attribute values by name; `null` removes the attribute.
    #[serde(default, deserialize_with = "nullable")]
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub set: BTreeMap<String, Option<AttributeValue>>,
    /// The status of a streamed response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The headers of a streamed response.
    #[serde(default, deserialize_with = "nullable")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(String, String)>,
    /// Whether a streamed response is complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub complete: Option<bool>,
    /// The level of a log line.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub level: Option<Cow<'a, str>>,
    /// The text of a log line.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub text: Option<Cow<'a, str>>,
}

/// The reply to an event. Each event uses some of the fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplyHead<'a> {
    /// The status of a response, or of the refusal of a handshake.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Header names and values of the response.
    #[serde(default, deserialize_with = "nullable")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(String, String)>,
    /// The number of the payload part with the response body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<u32>,
    /// A file below the application's folder, in place of a body.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub file: Option<Cow<'a, str>>,
    /// The user of an accepted handshake.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub user: Option<Cow<'a, str>>,
    /// The subprotocol of an accepted handshake.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Cow<'a, str>>,
    /// The grant of a hook.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub result: Option<GrantHead<'a>>,
    /// The error that a hook returns instead of a grant.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorHead<'a>>,
    /// The disconnect that a hook returns instead of a grant.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub disconnect: Option<DisconnectHead<'a>>,
}

/// The grant of a hook.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantHead<'a> {
    /// The user; empty for an anonymous client.
    #[serde(borrow, default, deserialize_with = "nullable")]
    #[serde(skip_serializing_if = "str::is_empty")]
    pub user: Cow<'a, str>,
    /// The expiry in seconds since 1970; `None` if it never expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expire_at: Option<u64>,
    /// Whether the connection or subscription has expired.
    #[serde(default, deserialize_with = "nullable")]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub expired: bool,
    /// The number of the payload part with the client's public data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub info: Option<u32>,
    /// The format of `info`: `json` (the default) or `binary`.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub info_kind: Option<Cow<'a, str>>,
    /// The number of the payload part with the data for the client, or with the published data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<u32>,
    /// The format of `data`: `json` (the default) or `binary`.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub data_kind: Option<Cow<'a, str>>,
    /// Server-side subscriptions of the client.
    #[serde(borrow, default, deserialize_with = "nullable")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub subscriptions: Vec<SubscriptionHead<'a>>,
    /// The number of the payload part with JSON that is included in every further event of the connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<u32>,
    /// Whether the publication is not stored in the history.
    #[serde(default, deserialize_with = "nullable")]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub skip_history: bool,
}

/// A server-side subscription made when a client connects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubscriptionHead<'a> {
    /// The name of the channel.
    #[serde(borrow)]
    pub channel: Cow<'a, str>,
    /// The expiry in seconds since 1970; `None` if it never expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expire_at: Option<u64>,
    /// The number of the payload part with the client's public data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub info: Option<u32>,
    /// The format of `info`: `json` (the default) or `binary`.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub info_kind: Option<Cow<'a, str>>,
    /// The number of the payload part with the data for the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<u32>,
    /// The format of `data`: `json` (the default) or `binary`.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub data_kind: Option<Cow<'a, str>>,
}

/// An error reply to the client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorHead<'a> {
    /// The number of the error, at least 1.
    pub code: u32,
    /// The message, for human readers.
    #[serde(borrow, default, deserialize_with = "nullable")]
    #[serde(skip_serializing_if = "str::is_empty")]
    pub message: Cow<'a, str>,
    /// Whether a retry of the command may succeed.
    #[serde(default, deserialize_with = "nullable")]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub temporary: bool,
}

/// A disconnect of the client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DisconnectHead<'a> {
    /// The disconnect code, from 3000 to 4999.
    pub code: u16,
    /// The reason, for human readers.
    #[serde(borrow, default, deserialize_with = "nullable")]
    #[serde(skip_serializing_if = "str::is_empty")]
    pub reason: Cow<'a, str>,
}

/// The head of a [`FrameKind::Call`] frame. Each call uses some of the fields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallHead<'a> {
    /// The type of the frame, `type` in JSON.
    #[serde(rename = "type")]
    pub kind: FrameKind,
    /// The id of the call, unique within the process.
    pub id: u64,
    /// The event whose handler makes the call; `None` if the call belongs to no event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<u64>,
    /// The name of the call.
    #[serde(borrow)]
    pub call: Cow<'a, str>,
    /// The method of the server API.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub method: Option<Cow<'a, str>>,
    /// The id of the connection that the call applies to; `None` for the connection of the event.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub connection: Option<Cow<'a, str>>,
    /// The user to search for.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub user: Option<Cow<'a, str>>,
    /// The maximum number of results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// The channel that the call is about.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<Cow<'a, str>>,
    /// The client's last known position in the channel.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Cow<'a, str>>,
    /// The token sent by a client.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Cow<'a, str>>,
    /// The name of a database's pool.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub database: Option<Cow<'a, str>>,
    /// The SQL statement, for calls of a database.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub sql: Option<Cow<'a, str>>,
    /// The part of a statement's result that is requested.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub wanted: Option<Cow<'a, str>>,
    /// The address of an HTTP request.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub url: Option<Cow<'a, str>>,
    /// Names and values of the request's headers.
    #[serde(borrow, default, deserialize_with = "nullable")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// The time limit of an HTTP request in seconds, if it differs from the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<f64>,
    /// The number of the payload part with a body or values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<u32>,
}

/// The head of a [`FrameKind::Result`] frame. Each call uses some of the fields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResultHead<'a> {
    /// The type of the frame, `type` in JSON.
    #[serde(rename = "type")]
    pub kind: FrameKind,
    /// The id of the call.
    pub id: u64,
    /// The error, if the call failed.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub error: Option<FaultHead<'a>>,
    /// The ids of the connections found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<Vec<String>>,
    /// The position at which a subscription to a channel with history started.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub position: Option<Cow<'a, str>>,
    /// Whether all missed publications were recovered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovered: Option<bool>,
    /// The lifetime of a token in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in: Option<u64>,
    /// Whether a connection is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open: Option<bool>,
    /// The user of the connection.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub user: Option<Cow<'a, str>>,
    /// The attributes of the connection.
    #[serde(default, deserialize_with = "nullable")]
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, AttributeValue>,
    /// The handshake request of the connection.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestHead<'a>>,
    /// The names of a result's columns.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub columns: Option<Vec<Cow<'a, str>>>,
    /// The number of rows that a statement has changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affected: Option<u64>,
    /// The first value that a statement generated for an `AUTO_INCREMENT` column.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_id: Option<u64>,
    /// The status of an HTTP response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The headers, with names in lower case.
    #[serde(borrow, default, deserialize_with = "nullable")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// The final address after all redirects.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub url: Option<Cow<'a, str>>,
    /// The number of the payload part with a body or values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<u32>,
}

/// The error of a failed call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultHead<'a> {
    /// The kind, such as `invalid`, `refused` or `timeout`: see [`veche_calls::CallErrorKind`].
    #[serde(borrow)]
    pub kind: Cow<'a, str>,
    /// The message, for human readers.
    #[serde(borrow)]
    pub message: Cow<'a, str>,
    /// The error code of the called server, such as a database, if it sent one.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub code: Option<FaultCode<'a>>,
    /// Whether the call had no effect and may succeed if it is repeated later.
    #[serde(default, deserialize_with = "nullable")]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub retryable: bool,
}

/// The error code of a called server, such as a database.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum FaultCode<'a> {
    /// A numeric error code, such as those of MySQL.
    Number(u32),
    /// A named error code, such as those of Redis.
    #[serde(borrow)]
    Name(Cow<'a, str>),
}
