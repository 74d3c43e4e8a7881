//! Heads of frames, field by field, as JSON has them.
//!
//! A field that is absent and one that is `null` are the same; unknown fields are passed over. What fields mean together
//! [`FromWorker`](super::FromWorker) and [`ToWorker`](super::ToWorker) know.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FrameKind {
    /// The worker's first frame.
    Hello,
    /// The answer to it that lets the worker begin.
    Welcome,
    /// The answer to it that does not.
    Refuse,
    /// An event for the worker.
    Event,
    /// Effects of a handler that goes on, or of no event.
    Effects,
    /// The end of a handler, with its last effects.
    Answer,
    /// A question of a handler.
    Call,
    /// The answer to it.
    Result,
    /// An event or a call whose answer is not wanted any more.
    Cancel,
}

impl FrameKind {
    /// All kinds, in the order of a conversation.
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

/// The name of an event: what has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventName {
    /// The process begins: no other event comes before its answer.
    Start,
    /// The process ends: no other event comes.
    Stop,
    /// A handshake, before the 101.
    Open,
    /// A whole message of a WebSocket.
    Message,
    /// The end of a WebSocket.
    Close,
    /// A whole HTTP request.
    Request,
    /// A client of Centrifugo's protocol connects without a token.
    Connect,
    /// A connection's time is over.
    Refresh,
    /// A client subscribes to a channel.
    Subscribe,
    /// A subscription's time is over.
    SubRefresh,
    /// A client publishes to a channel.
    Publish,
    /// A client calls a method.
    Rpc,
    /// A client sends a message that is not answered.
    ClientMessage,
    /// A client that was connected is gone.
    Disconnect,
}

impl EventName {
    /// Returns the name that frames have.
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

    /// Returns whether it is about a connection, which its effects are for unless they name another one.
    #[must_use]
    pub fn has_connection(self) -> bool {
        matches!(
            self,
            Self::Open | Self::Message | Self::Close | Self::Request
        )
    }
}

/// A frame as far as every frame is alike.
#[derive(Debug, Deserialize)]
pub(super) struct Envelope {
    #[serde(rename = "type")]
    pub(super) kind: FrameKind,
    pub(super) id: Option<u64>,
}

/// The head of a [`FrameKind::Hello`] frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HelloHead<'a> {
    /// What the frame is: its `type`.
    #[serde(rename = "type")]
    pub kind: FrameKind,
    /// Versions of the protocol that the worker speaks.
    pub versions: Vec<u32>,
    /// The worker's library and its version, for logs.
    #[serde(borrow, default, skip_serializing_if = "str::is_empty")]
    pub sdk: Cow<'a, str>,
    /// The process, for logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Codecs of later heads that the worker can read and write, the best first; `json` is always among them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub codecs: Vec<String>,
    /// Names of events that the worker handles: no others are sent.
    pub events: Vec<String>,
    /// Events that it takes in hand at once.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub concurrency: u32,
}

fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_one(number: &u32) -> bool {
    *number == 1
}

/// The head of a [`FrameKind::Welcome`] frame.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WelcomeHead<'a> {
    /// What the frame is: its `type`.
    #[serde(rename = "type")]
    pub kind: FrameKind,
    /// The version that both sides speak from now on.
    pub version: u32,
    /// The codec of all heads from now on.
    #[serde(borrow)]
    pub codec: Cow<'a, str>,
    /// The name of the application.
    #[serde(borrow)]
    pub app: Cow<'a, str>,
    /// The number of the process among those of the application, from 1.
    pub instance: u32,
    /// Events that will come, of those that the worker handles.
    pub events: Vec<String>,
    /// Calls that will be answered.
    pub calls: Vec<String>,
    /// Bytes of a head that are taken.
    pub head_bytes_max: u32,
    /// Bytes of a payload that are taken.
    pub payload_bytes_max: u32,
    /// The application's options, as its configuration has them.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub options: Option<&'a RawValue>,
}

/// The head of a [`FrameKind::Refuse`] frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefuseHead<'a> {
    /// What the frame is: its `type`.
    #[serde(rename = "type")]
    pub kind: FrameKind,
    /// Why it is refused, for logs.
    #[serde(borrow)]
    pub message: Cow<'a, str>,
}

/// The head of a [`FrameKind::Cancel`] frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelHead {
    /// What the frame is: its `type`.
    #[serde(rename = "type")]
    pub kind: FrameKind,
    /// The event's where Veche cancels, the call's where the worker does.
    pub id: u64,
}

/// A value of a connection that outlives the code.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum AttributeValue {
    /// Either `true` or `false`.
    Boolean(bool),
    /// A number without a fraction.
    Whole(i64),
    /// A number with a fraction.
    Number(f64),
    /// Text of any length.
    Text(String),
}

/// A request as events carry it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestHead<'a> {
    /// The method of the request.
    #[serde(borrow)]
    pub method: Cow<'a, str>,
    /// Its path in normal form.
    #[serde(borrow)]
    pub path: Cow<'a, str>,
    /// Its query without the `?`, still encoded.
    #[serde(borrow, default, skip_serializing_if = "str::is_empty")]
    pub query: Cow<'a, str>,
    /// Names in lower case and values, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// Names and values of the route's parameters, decoded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
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
    /// `websocket`, `http_stream` or `sse`.
    #[serde(borrow)]
    pub transport: Cow<'a, str>,
    /// What the client speaks: `json` or `protobuf`.
    #[serde(borrow)]
    pub protocol: Cow<'a, str>,
    /// The kind of client, as it says.
    #[serde(borrow, default, skip_serializing_if = "str::is_empty")]
    pub name: Cow<'a, str>,
    /// Its version, as it says.
    #[serde(borrow, default, skip_serializing_if = "str::is_empty")]
    pub version: Cow<'a, str>,
    /// The address of the client.
    #[serde(borrow)]
    pub remote: Cow<'a, str>,
    /// Headers of its request that the route passes on; names in lower case.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// The part with what the application keeps of the connection: JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<u32>,
}

/// The head of a [`FrameKind::Event`] frame.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EventHead<'a> {
    /// What the frame is: its `type`.
    #[serde(rename = "type")]
    pub kind: FrameKind,
    /// Of this process; each event has a higher one than the event before.
    pub id: u64,
    /// The name of the event.
    pub event: EventName,
    /// The id of the connection.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub connection: Option<Cow<'a, str>>,
    /// The user, where it is known.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub user: Option<Cow<'a, str>>,
    /// Attributes of the connection.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, AttributeValue>,
    /// The request that came by the connection.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestHead<'a>>,
    /// The client that the event is about.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientHead<'a>>,
    /// The channel that it is about.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<Cow<'a, str>>,
    /// The method of an RPC.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub method: Option<Cow<'a, str>>,
    /// The token that came with the command.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Cow<'a, str>>,
    /// Channels of which a client that comes back says that it was given them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub channels: Vec<Cow<'a, str>>,
    /// How a connection has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<u16>,
    /// The reason that came with the code.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Cow<'a, str>>,
    /// What `data` is: `text`, `binary` or `json`.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub data_kind: Option<Cow<'a, str>>,
    /// The part with the message or body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<u32>,
    /// Lengths of the payload's parts, where these are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<u32>,
}

/// Of a [`FrameKind::Answer`] or [`FrameKind::Effects`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AnswerHead<'a> {
    /// What the frame is: its `type`.
    #[serde(rename = "type")]
    pub kind: FrameKind,
    /// The id of the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    /// What is done, in order.
    #[serde(borrow, default, skip_serializing_if = "Vec::is_empty")]
    pub effects: Vec<EffectHead<'a>>,
    /// The reply to an event that has one.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub reply: Option<ReplyHead<'a>>,
    /// The handler has failed: one line, or several with a trace.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<Cow<'a, str>>,
    /// Lengths of the payload's parts, where these are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<u32>,
}

/// One effect; each kind has its own fields.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EffectHead<'a> {
    /// The name of the effect.
    #[serde(borrow)]
    pub effect: Cow<'a, str>,
    /// The connection's id, where that is not the event's own.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub connection: Option<Cow<'a, str>>,
    /// The user that is pushed to.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub user: Option<Cow<'a, str>>,
    /// The channel that it is about.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<Cow<'a, str>>,
    /// What `data` is: `text` (where it is absent), `binary` or `json`.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub data_kind: Option<Cow<'a, str>>,
    /// The part with the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<u32>,
    /// What the connection is closed with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<u16>,
    /// What the connection is closed with.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Cow<'a, str>>,
    /// Attributes by name; `null` removes one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub set: BTreeMap<String, Option<AttributeValue>>,
    /// Belongs to the beginning of a response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Belongs to the beginning of a response.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(String, String)>,
    /// Whether a response in parts is complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub complete: Option<bool>,
    /// Of a line for the log.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub level: Option<Cow<'a, str>>,
    /// Of a line for the log.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub text: Option<Cow<'a, str>>,
}

/// The reply to an event; each event has its own fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplyHead<'a> {
    /// The status of a response; of an open: of the one that refuses it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Names and values of the response.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(String, String)>,
    /// The part with its body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<u32>,
    /// A file below the application's folder in place of a body.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub file: Option<Cow<'a, str>>,
    /// Of an open that is accepted: the user.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub user: Option<Cow<'a, str>>,
    /// Of an open that is accepted: the subprotocol.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Cow<'a, str>>,
    /// What a hook grants.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub result: Option<GrantHead<'a>>,
    /// What a hook tells the client in place of that.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorHead<'a>>,
    /// With which a hook ends the client's connection.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub disconnect: Option<DisconnectHead<'a>>,
}

/// What a hook grants.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantHead<'a> {
    /// The user; empty for an anonymous one.
    #[serde(borrow, default, skip_serializing_if = "str::is_empty")]
    pub user: Cow<'a, str>,
    /// Until when it holds, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expire_at: Option<u64>,
    /// Whether it holds no more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub expired: bool,
    /// The part with what others see.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub info: Option<u32>,
    /// What that is: `json` (where it is absent) or `binary`.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub info_kind: Option<Cow<'a, str>>,
    /// The part with what the client gets, or what is published.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<u32>,
    /// What that is, as `info_kind`.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub data_kind: Option<Cow<'a, str>>,
    /// Channels that the client is subscribed to.
    #[serde(borrow, default, skip_serializing_if = "Vec::is_empty")]
    pub subscriptions: Vec<SubscriptionHead<'a>>,
    /// The part with what comes back with each event of the connection: JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<u32>,
    /// Whether history leaves it out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub skip_history: bool,
}

/// A channel that a client is subscribed to as it connects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubscriptionHead<'a> {
    /// The name of the channel.
    #[serde(borrow)]
    pub channel: Cow<'a, str>,
    /// As of a grant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expire_at: Option<u64>,
    /// As of a grant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub info: Option<u32>,
    /// As of a grant.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub info_kind: Option<Cow<'a, str>>,
    /// As of a grant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<u32>,
    /// As of a grant.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub data_kind: Option<Cow<'a, str>>,
}

/// An error for the client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorHead<'a> {
    /// The number of the error, from 1.
    pub code: u32,
    /// The message that people read.
    #[serde(borrow, default, skip_serializing_if = "str::is_empty")]
    pub message: Cow<'a, str>,
    /// Whether the same command may succeed later.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub temporary: bool,
}

/// The end of the client's connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DisconnectHead<'a> {
    /// From 3000 to 4999.
    pub code: u16,
    /// The message that people read.
    #[serde(borrow, default, skip_serializing_if = "str::is_empty")]
    pub reason: Cow<'a, str>,
}

/// Of a [`FrameKind::Call`]; each call has its own fields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallHead<'a> {
    /// What the frame is: its `type`.
    #[serde(rename = "type")]
    pub kind: FrameKind,
    /// Of this process: never used twice.
    pub id: u64,
    /// The event whose handler calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<u64>,
    /// The name of the call.
    #[serde(borrow)]
    pub call: Cow<'a, str>,
    /// The method of the API.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub method: Option<Cow<'a, str>>,
    /// The connection's id, where that is not the event's own.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub connection: Option<Cow<'a, str>>,
    /// Whose connections are asked for.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub user: Option<Cow<'a, str>>,
    /// The most that are wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// The channel that it is about.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<Cow<'a, str>>,
    /// The position up to which the client knows the channel.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Cow<'a, str>>,
    /// The token that a client has sent.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Cow<'a, str>>,
    /// The name of a database's pool.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub database: Option<Cow<'a, str>>,
    /// A statement.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub sql: Option<Cow<'a, str>>,
    /// The part of a statement's result that is of interest.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub wanted: Option<Cow<'a, str>>,
    /// The address of an HTTP request.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub url: Option<Cow<'a, str>>,
    /// Its headers.
    #[serde(borrow, default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// The longest that it may take, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<f64>,
    /// The part with a body, or with values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<u32>,
}

/// Of a [`FrameKind::Result`]; each call has its own fields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResultHead<'a> {
    /// What the frame is: its `type`.
    #[serde(rename = "type")]
    pub kind: FrameKind,
    /// The id of the call.
    pub id: u64,
    /// Why there is none.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub error: Option<FaultHead<'a>>,
    /// The ids of the connections that were found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<Vec<String>>,
    /// Where a client has joined a channel that remembers.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub position: Option<Cow<'a, str>>,
    /// Whether it gets all that it has missed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovered: Option<bool>,
    /// For how many seconds a token holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in: Option<u64>,
    /// Whether a connection is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open: Option<bool>,
    /// The user that the connection is of.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub user: Option<Cow<'a, str>>,
    /// The attributes that are kept of the connection.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, AttributeValue>,
    /// The request that has opened it.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestHead<'a>>,
    /// The names of a result's columns.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub columns: Option<Vec<Cow<'a, str>>>,
    /// Rows that a statement has changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affected: Option<u64>,
    /// The first number that a database gave to a new row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_id: Option<u64>,
    /// The status of an HTTP response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Its headers, with names in lower case.
    #[serde(borrow, default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// The address that it came from after all redirects.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub url: Option<Cow<'a, str>>,
    /// The part with a body, or with values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<u32>,
}

/// Why a call has no result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultHead<'a> {
    /// `invalid`, `refused`, `timeout` and so on: [`veche_calls::FaultKind`].
    #[serde(borrow)]
    pub kind: Cow<'a, str>,
    /// The message that people read.
    #[serde(borrow)]
    pub message: Cow<'a, str>,
}
