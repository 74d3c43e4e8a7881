//! What clients ask for. Everything here is as it came: who may do what, and what a field means, is the session's to
//! say.
//!
//! Texts borrow from the message unless something in them was escaped; data always do. A `bool` that is missing is
//! `false`, a number 0, a text empty.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;

use serde::Deserialize;

use crate::read::json;
use crate::{PublicationData, StreamPosition};

/// One command of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command<'a> {
    /// By which the client knows the answer; 0 where there is none to come: [`Request::Send`] and [`Request::Pong`].
    pub id: u32,
    /// What is asked for.
    pub request: Request<'a>,
}

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// To be a client: the first of all.
    Connect(ConnectRequest<'a>),
    /// To hear a channel.
    Subscribe(SubscribeRequest<'a>),
    /// To hear it no more.
    Unsubscribe(ChannelRequest<'a>),
    /// To publish into a channel.
    Publish(PublishRequest<'a>),
    /// Who is in a channel.
    Presence(ChannelRequest<'a>),
    /// How many are in a channel.
    PresenceStats(ChannelRequest<'a>),
    /// What was published into a channel.
    History(HistoryRequest<'a>),
    /// Whether the server is there. (Today servers ask, and the answer is [`Pong`](Self::Pong).)
    Ping,
    /// To tell the application something.
    Send(SendRequest<'a>),
    /// To ask the application something.
    Rpc(RpcRequest<'a>),
    /// More time for the connection.
    Refresh(RefreshRequest<'a>),
    /// More time for a subscription.
    SubRefresh(SubRefreshRequest<'a>),
    /// The answer to the server's ping: a command without anything.
    Pong,
}

/// A text that no log may hold.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct SecretText<'a>(pub Cow<'a, str>);

impl Deref for SecretText<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}

/// To be a client.
#[derive(Clone, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct ConnectRequest<'a> {
    /// Who it is; empty if the client does not say.
    #[serde(borrow, deserialize_with = "json::secret")]
    pub token: SecretText<'a>,
    /// What the client has to say to the application.
    #[serde(borrow, deserialize_with = "json::data")]
    pub data: Option<PublicationData<'a>>,
    /// Channels that the server once subscribed it to, and where it was in them. No name is looked at twice: who gives
    /// one twice has it here twice.
    #[serde(borrow, deserialize_with = "json::subs")]
    pub subs: Vec<ServerSub<'a>>,
    /// The kind of client.
    #[serde(borrow, deserialize_with = "json::text")]
    pub name: Cow<'a, str>,
    /// Its version.
    #[serde(borrow, deserialize_with = "json::text")]
    pub version: Cow<'a, str>,
    /// What stands for headers of HTTP that a browser does not let its pages set.
    #[serde(borrow, deserialize_with = "json::secrets")]
    pub headers: Vec<(Cow<'a, str>, SecretText<'a>)>,
    /// Bits of what else the client can do; none has to be granted.
    #[serde(deserialize_with = "json::zero")]
    pub flag: i64,
}

/// Where a client was in a channel that the server subscribed it to.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ServerSub<'a> {
    /// The channel.
    pub channel: Cow<'a, str>,
    /// Whether it wants what it missed since then.
    pub recover: bool,
    /// Where it was.
    pub position: StreamPosition<'a>,
    /// Whether it wants to know who subscribes and who leaves.
    pub join_leave: bool,
}

/// To hear a channel.
#[derive(Clone, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct SubscribeRequest<'a> {
    /// The channel.
    #[serde(borrow, deserialize_with = "json::text")]
    pub channel: Cow<'a, str>,
    /// That it may; empty if the client does not say.
    #[serde(borrow, deserialize_with = "json::secret")]
    pub token: SecretText<'a>,
    /// Whether it wants what it missed since then.
    #[serde(deserialize_with = "json::zero")]
    pub recover: bool,
    /// Which life of the stream the offset belongs to.
    #[serde(borrow, deserialize_with = "json::text")]
    pub epoch: Cow<'a, str>,
    /// The last publication that it has.
    #[serde(deserialize_with = "json::zero")]
    pub offset: u64,
    /// What the client has to say to the application.
    #[serde(borrow, deserialize_with = "json::data")]
    pub data: Option<PublicationData<'a>>,
    /// Whether publications should have offsets.
    #[serde(deserialize_with = "json::zero")]
    pub positioned: bool,
    /// Whether it wants to recover later what it misses.
    #[serde(deserialize_with = "json::zero")]
    pub recoverable: bool,
    /// Whether it wants to hear who comes and goes.
    #[serde(deserialize_with = "json::zero")]
    pub join_leave: bool,
    /// The kind of deltas that it knows (`fossil`); empty if none.
    #[serde(borrow, deserialize_with = "json::text")]
    pub delta: Cow<'a, str>,
    /// It wants only publications whose tags pass this: JSON, or binary data where it is Protobuf. What filter it is,
    /// [`Filter::read`](crate::Filter::read) says.
    #[serde(rename = "tf", borrow, deserialize_with = "json::raw")]
    pub filter: Option<PublicationData<'a>>,
    /// Bits of what else the client can do. 1: numbers in place of channels' names, which need not be granted. 2: it
    /// would rather be refused, with [`UnrecoverablePosition`](crate::ErrorCode::UnrecoverablePosition), than not
    /// recover.
    #[serde(deserialize_with = "json::zero")]
    pub flag: i64,
    /// 0 for a stream of publications; others are for maps, whose pages are asked for by fields that are not read.
    #[serde(rename = "type", deserialize_with = "json::zero")]
    pub kind: i32,
}

/// Something about a channel that needs nothing but its name.
#[derive(Clone, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct ChannelRequest<'a> {
    /// The channel.
    #[serde(borrow, deserialize_with = "json::text")]
    pub channel: Cow<'a, str>,
}

/// To publish into a channel.
#[derive(Clone, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct PublishRequest<'a> {
    /// The channel.
    #[serde(borrow, deserialize_with = "json::text")]
    pub channel: Cow<'a, str>,
    /// What is to be published.
    #[serde(borrow, deserialize_with = "json::data")]
    pub data: Option<PublicationData<'a>>,
    /// 0 for a stream of publications; others are for maps, whose keys are not read.
    #[serde(rename = "type", deserialize_with = "json::zero")]
    pub kind: i32,
}

/// What was published into a channel.
#[derive(Clone, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct HistoryRequest<'a> {
    /// The channel.
    #[serde(borrow, deserialize_with = "json::text")]
    pub channel: Cow<'a, str>,
    /// How many at most: 0 for none but where the stream is, less for all.
    #[serde(deserialize_with = "json::zero")]
    pub limit: i32,
    /// Only those after that, or before it where reversed.
    #[serde(borrow, deserialize_with = "json::object")]
    pub since: Option<StreamPosition<'a>>,
    /// Whether the newest is to come first.
    #[serde(deserialize_with = "json::zero")]
    pub reverse: bool,
}

/// To tell the application something.
#[derive(Clone, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct SendRequest<'a> {
    /// What.
    #[serde(borrow, deserialize_with = "json::data")]
    pub data: Option<PublicationData<'a>>,
}

/// To ask the application something.
#[derive(Clone, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct RpcRequest<'a> {
    /// With what.
    #[serde(borrow, deserialize_with = "json::data")]
    pub data: Option<PublicationData<'a>>,
    /// By which name.
    #[serde(borrow, deserialize_with = "json::text")]
    pub method: Cow<'a, str>,
}

/// More time for the connection.
#[derive(Clone, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct RefreshRequest<'a> {
    /// A new one.
    #[serde(borrow, deserialize_with = "json::secret")]
    pub token: SecretText<'a>,
}

/// More time for a subscription.
#[derive(Clone, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct SubRefreshRequest<'a> {
    /// The channel.
    #[serde(borrow, deserialize_with = "json::text")]
    pub channel: Cow<'a, str>,
    /// A new one.
    #[serde(borrow, deserialize_with = "json::secret")]
    pub token: SecretText<'a>,
    /// 0 for more time; others are for keys of maps, which are not read.
    #[serde(rename = "type", deserialize_with = "json::zero")]
    pub kind: i32,
}

impl<'a> Request<'a> {
    /// Whether the client waits for an answer, so that the command needs an id.
    #[must_use]
    pub const fn is_answered(&self) -> bool {
        !matches!(self, Self::Send(_) | Self::Pong)
    }

    /// The data that came with it.
    #[must_use]
    pub const fn data(&self) -> Option<PublicationData<'a>> {
        match self {
            Self::Connect(request) => request.data,
            Self::Subscribe(request) => request.data,
            Self::Publish(request) => request.data,
            Self::Send(request) => request.data,
            Self::Rpc(request) => request.data,
            Self::Unsubscribe(_)
            | Self::Presence(_)
            | Self::PresenceStats(_)
            | Self::History(_)
            | Self::Ping
            | Self::Refresh(_)
            | Self::SubRefresh(_)
            | Self::Pong => None,
        }
    }
}
