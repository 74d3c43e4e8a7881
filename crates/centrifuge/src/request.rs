//! Requests of clients, as received: the session decides on permissions and on the meaning of
//! fields.
//!
//! Texts borrow from the message unless they contain escapes; data always borrows. Missing values
//! are `false`, 0 or empty.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;

use serde::Deserialize;

use crate::depth;
use crate::read::json;
use crate::{DEPTH_MAX, MalformedMessage, PublicationData, StreamPosition};

/// Maximum number of entries of a map in a command (`subs`, `headers`). A command with more entries is rejected.
pub const ENTRIES_MAX: usize = 4096;

/// A command of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command<'a> {
    /// Identifies the reply; 0 for commands without one: [`ClientRequest::Send`] and [`ClientRequest::Pong`].
    pub id: u32,
    /// The content of the request.
    pub request: ClientRequest<'a>,
}

/// A request of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientRequest<'a> {
    /// Connect: the first request.
    Connect(ConnectRequest<'a>),
    /// Subscribe to a channel.
    Subscribe(SubscribeRequest<'a>),
    /// Unsubscribe from a channel.
    Unsubscribe(ChannelRequest<'a>),
    /// Publish to a channel.
    Publish(PublishRequest<'a>),
    /// List the members of a channel.
    Presence(ChannelRequest<'a>),
    /// Count the members of a channel.
    PresenceStats(ChannelRequest<'a>),
    /// Read publications of a channel.
    History(HistoryRequest<'a>),
    /// Ping the server. (In the current protocol the server pings, and the client answers with [`Pong`](Self::Pong).)
    Ping,
    /// Send a message to the application.
    Send(SendRequest<'a>),
    /// Call a method of the application.
    Rpc(RpcRequest<'a>),
    /// Renew the connection's token.
    Refresh(RefreshRequest<'a>),
    /// Renew a subscription's token.
    SubRefresh(SubRefreshRequest<'a>),
    /// The answer to a server ping: an empty command.
    Pong,
}

/// A text that must not be logged.
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

/// Parameters of a connect request.
#[derive(Clone, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct ConnectRequest<'a> {
    /// The token; may be empty.
    #[serde(borrow, deserialize_with = "json::secret")]
    pub token: SecretText<'a>,
    /// Data for the application.
    #[serde(borrow, deserialize_with = "json::data")]
    pub data: Option<PublicationData<'a>>,
    /// Positions in previous server-side subscriptions. The channel names are not checked for duplicates.
    #[serde(borrow, deserialize_with = "json::subs")]
    pub subs: Vec<ServerSub<'a>>,
    /// The name of the client software.
    #[serde(borrow, deserialize_with = "json::text")]
    pub name: Cow<'a, str>,
    /// The version of the client software.
    #[serde(borrow, deserialize_with = "json::text")]
    pub version: Cow<'a, str>,
    /// Substitutes for HTTP headers that browsers do not let pages set.
    #[serde(borrow, deserialize_with = "json::secrets")]
    pub headers: Vec<(Cow<'a, str>, SecretText<'a>)>,
    /// Bits for optional capabilities of the client.
    #[serde(deserialize_with = "json::zero")]
    pub flag: i64,
}

/// A client's position in a server-side subscription.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ServerSub<'a> {
    /// The name of the channel.
    pub channel: Cow<'a, str>,
    /// Whether to recover the publications after `position`.
    pub recover: bool,
    /// The client's last position.
    pub position: StreamPosition<'a>,
    /// Whether to receive join and leave events.
    pub join_leave: bool,
}

/// Parameters of a subscribe request.
#[derive(Clone, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct SubscribeRequest<'a> {
    /// The name of the channel.
    #[serde(borrow, deserialize_with = "json::text")]
    pub channel: Cow<'a, str>,
    /// The subscription token; may be empty.
    #[serde(borrow, deserialize_with = "json::secret")]
    pub token: SecretText<'a>,
    /// Whether to recover publications since the position.
    #[serde(deserialize_with = "json::zero")]
    pub recover: bool,
    /// Epoch of the stream that the offset belongs to.
    #[serde(borrow, deserialize_with = "json::text")]
    pub epoch: Cow<'a, str>,
    /// Offset of the last received publication.
    #[serde(deserialize_with = "json::zero")]
    pub offset: u64,
    /// Data for the application.
    #[serde(borrow, deserialize_with = "json::data")]
    pub data: Option<PublicationData<'a>>,
    /// Whether publications should have offsets.
    #[serde(deserialize_with = "json::zero")]
    pub positioned: bool,
    /// Whether the client will recover later.
    #[serde(deserialize_with = "json::zero")]
    pub recoverable: bool,
    /// Whether to receive join and leave events.
    #[serde(deserialize_with = "json::zero")]
    pub join_leave: bool,
    /// The supported kind of deltas (`fossil`); empty if none.
    #[serde(borrow, deserialize_with = "json::text")]
    pub delta: Cow<'a, str>,
    /// A filter of publications by tags: JSON, or binary data if it is Protobuf. [`TagsFilter::read`](crate::TagsFilter::read)
    /// parses it.
    #[serde(rename = "tf", borrow, deserialize_with = "json::raw")]
    pub filter: Option<PublicationData<'a>>,
    /// Bits for optional capabilities of the client. The bit with value 1 permits numbers in place of channel names,
    /// which the server need not use. The bit with value 2 makes an incomplete recovery an error,
    /// [`UnrecoverablePosition`](crate::ErrorCode::UnrecoverablePosition).
    #[serde(deserialize_with = "json::zero")]
    pub flag: i64,
    /// The type of the subscription: 0 for a stream of publications. Other values are for map subscriptions, whose
    /// additional fields are ignored.
    #[serde(rename = "type", deserialize_with = "json::zero")]
    pub kind: i32,
}

/// Parameters of requests that need only a channel.
#[derive(Clone, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct ChannelRequest<'a> {
    /// The name of the channel.
    #[serde(borrow, deserialize_with = "json::text")]
    pub channel: Cow<'a, str>,
}

/// Parameters of a publish request.
#[derive(Clone, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct PublishRequest<'a> {
    /// The name of the channel.
    #[serde(borrow, deserialize_with = "json::text")]
    pub channel: Cow<'a, str>,
    /// The data to publish.
    #[serde(borrow, deserialize_with = "json::data")]
    pub data: Option<PublicationData<'a>>,
    /// The type of the channel: 0 for a stream of publications. Other values are for map subscriptions, whose keys are
    /// ignored.
    #[serde(rename = "type", deserialize_with = "json::zero")]
    pub kind: i32,
}

/// Parameters of a history request.
#[derive(Clone, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct HistoryRequest<'a> {
    /// The name of the channel.
    #[serde(borrow, deserialize_with = "json::text")]
    pub channel: Cow<'a, str>,
    /// Maximum number of publications: 0 for only the position, negative for all.
    #[serde(deserialize_with = "json::zero")]
    pub limit: i32,
    /// The position after which publications are requested; in reverse order, the position before
    /// which they are requested.
    #[serde(borrow, deserialize_with = "json::object")]
    pub since: Option<StreamPosition<'a>>,
    /// Whether the newest publication is returned first.
    #[serde(deserialize_with = "json::zero")]
    pub reverse: bool,
}

/// Parameters of a message to the application.
#[derive(Clone, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct SendRequest<'a> {
    /// The data of the message.
    #[serde(borrow, deserialize_with = "json::data")]
    pub data: Option<PublicationData<'a>>,
}

/// Parameters of a method call.
#[derive(Clone, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct RpcRequest<'a> {
    /// The data of the method call.
    #[serde(borrow, deserialize_with = "json::data")]
    pub data: Option<PublicationData<'a>>,
    /// The name of the method.
    #[serde(borrow, deserialize_with = "json::text")]
    pub method: Cow<'a, str>,
}

/// Parameters of a refresh request.
#[derive(Clone, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct RefreshRequest<'a> {
    /// The token that replaces the current one.
    #[serde(borrow, deserialize_with = "json::secret")]
    pub token: SecretText<'a>,
}

/// Parameters of a subscription refresh.
#[derive(Clone, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct SubRefreshRequest<'a> {
    /// The name of the channel.
    #[serde(borrow, deserialize_with = "json::text")]
    pub channel: Cow<'a, str>,
    /// The token that replaces the current one.
    #[serde(borrow, deserialize_with = "json::secret")]
    pub token: SecretText<'a>,
    /// The type of the refresh: 0 for a new token. Refreshes of other types concern the keys of map subscriptions and
    /// are ignored.
    #[serde(rename = "type", deserialize_with = "json::zero")]
    pub kind: i32,
}

impl<'a> ClientRequest<'a> {
    /// Returns whether the client expects a reply, so that the command needs an id.
    #[must_use]
    pub const fn is_answered(&self) -> bool {
        !matches!(self, Self::Send(_) | Self::Pong)
    }

    /// Returns the data of the request.
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

/// A command whose fields were decoded but not validated together.
#[derive(Default)]
pub(crate) struct CommandBuilder<'a> {
    pub(crate) id: u32,
    pub(crate) request: Option<ClientRequest<'a>>,
    pub(crate) has_many: bool,
}

impl<'a> CommandBuilder<'a> {
    pub(crate) fn add(&mut self, request: ClientRequest<'a>) {
        self.has_many |= self.request.is_some();
        self.request = Some(request);
    }

    pub(crate) fn finish(self) -> Result<Command<'a>, MalformedMessage> {
        let request = match self.request {
            Some(_) if self.has_many => return Err(MalformedMessage::ManyRequests),
            Some(request) => request,
            None if self.id == 0 => ClientRequest::Pong,
            None => return Err(MalformedMessage::NoRequest),
        };
        if self.id == 0 && request.is_answered() {
            return Err(MalformedMessage::NoId);
        }
        if let Some(PublicationData::Json(text)) = request.data()
            && depth::is_over(text, DEPTH_MAX)
        {
            return Err(MalformedMessage::TooDeep);
        }
        if let ClientRequest::Connect(connect) = &request {
            check(connect)?;
        }
        Ok(Command {
            id: self.id,
            request,
        })
    }
}

fn check(connect: &ConnectRequest<'_>) -> Result<(), MalformedMessage> {
    match connect.subs.len().max(connect.headers.len()) > ENTRIES_MAX {
        true => Err(MalformedMessage::TooManyEntries),
        false => Ok(()),
    }
}
