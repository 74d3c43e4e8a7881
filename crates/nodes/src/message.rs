//! The types of messages between nodes.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use veche_types::{ConnectionId, MessageKind, WorkerId};

use crate::wire;
use crate::{
    Ban, BanError, Caller, ChannelList, ConnectionList, EmulationRequest, Glob, ListConnections,
    UserCommand, UserStatus,
};

/// A message between nodes. The [crate](crate) documents the guarantees for each type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeMessage {
    /// Announces the sending node; sent every few seconds.
    Announce(Box<Announcement>),
    /// The sending node has ended and has no connections any more.
    Leave,
    /// Commands an action on the connections of a user.
    Instruct(UserCommandRequest),
    /// Bans a user, revokes tokens, or lifts a ban.
    Block(BanRequest),
    /// Requests a list of connections.
    Connections(Arc<ListConnections>),
    /// Requests a list of channels.
    Channels(ChannelsQuery),
    /// Requests the online status of a user.
    UserStatus(UserStatusQuery),
    /// The reply to a query or command of another node.
    Answer(NodeReply),
    /// Commands of a client whose streaming response is held by the receiving node.
    Relay(EmulationRequest),
    /// Orders from an application to the same application on the receiving node.
    App(AppMessage),
}

/// The state that a node publishes about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announcement {
    /// The configured name of the node.
    pub name: Box<str>,
    /// The version of the program.
    pub version: Box<str>,
    /// A hash of the settings that must be equal on all nodes.
    pub settings: u64,
    /// The time since the start of the node, in seconds.
    pub uptime_s: u64,
    /// The number of open sessions.
    pub clients: u64,
    /// The number of users of these sessions; a user with connections to two nodes is counted by both.
    pub users: u64,
    /// The number of channels with subscribers on the node.
    pub channels: u64,
    /// The number of subscriptions of the sessions.
    pub subscriptions: u64,
    /// Whether the node accepts no new connections and will end soon.
    pub is_draining: bool,
}

/// A command for connections of a user: [`NodeMessage::Instruct`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserCommandRequest {
    /// Name of the user whose connections are addressed.
    #[serde(with = "wire::text")]
    pub user: Arc<str>,
    /// The action, and which of the user's connections it applies to.
    #[serde(with = "wire::shared")]
    pub instruction: Arc<UserCommand>,
    /// The caller that receives [`NodeAnswer::Instructed`], if any.
    pub caller: Option<Caller>,
}

/// A ban or revocation, or the end of a ban: [`NodeMessage::Block`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BanRequest {
    /// The ban or revocation, or the end of a ban.
    pub block: Ban,
    /// The caller that receives [`NodeAnswer::Blocked`], if any.
    pub caller: Option<Caller>,
}

/// A query for the channels that have subscribers: [`NodeMessage::Channels`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelsQuery {
    /// The pattern of the channel names.
    #[serde(with = "wire::shared")]
    pub pattern: Arc<Glob>,
    /// The caller that receives [`NodeAnswer::Channels`].
    pub caller: Caller,
}

/// A query for the online status of a user: [`NodeMessage::UserStatus`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserStatusQuery {
    /// Name of the user to look up.
    #[serde(with = "wire::text")]
    pub user: Arc<str>,
    /// The caller that receives [`NodeAnswer::UserStatus`].
    pub caller: Caller,
}

/// The answer of one node to a caller on another node: [`NodeMessage::Answer`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReply {
    /// The caller in the message that is answered.
    pub caller: Caller,
    /// The answer of the node, which covers only its own connections.
    pub answer: NodeAnswer,
}

/// The answer of a node to a query or command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeAnswer {
    /// All connections of the user on the node have executed the command, and the homes of their channels have counted
    /// the changes.
    Instructed {
        /// The number of connections of the user on the node.
        connections: u32,
    },
    /// Whether the ban is in force on the node.
    Blocked(Result<(), BanError>),
    /// The matching connections of the node.
    Connections(ConnectionList),
    /// The channels with subscribers on the node, with their numbers of subscribers.
    Channels(ChannelList),
    /// The number of the user's connections to the node, and the time at which the last one ended.
    UserStatus(UserStatus),
}

/// Orders from an application to the same application on another node: [`NodeMessage::App`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppMessage {
    /// The name of the application.
    #[serde(with = "wire::text")]
    pub app: Arc<str>,
    /// The orders, to be executed in sequence.
    pub orders: Vec<AppOrder>,
}

/// The address of a connection within its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ConnectionAddress {
    /// The worker of the connection.
    #[serde(with = "wire::WireWorker")]
    pub worker: WorkerId,
    /// The connection's id on `worker`.
    #[serde(with = "wire::WireConnection")]
    pub session: ConnectionId,
}

/// An order of an application for connections on another node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AppOrder {
    /// Sends a WebSocket message on a connection.
    Send {
        /// The connection to send on.
        to: ConnectionAddress,
        /// The type of the message.
        #[serde(with = "wire::WireMessageKind")]
        kind: MessageKind,
        /// The content of the message.
        #[serde(with = "wire::raw")]
        data: Vec<u8>,
    },
    /// Closes a connection of the application.
    Close {
        /// The connection to close.
        to: ConnectionAddress,
        /// The WebSocket close code.
        code: u16,
        /// The reason, sent with the code.
        reason: String,
    },
    /// Requests the connections of a user that belong to the application.
    Find {
        /// Name of the user to search for.
        user: String,
        /// The maximum number of connections to return.
        limit: u32,
        /// The call that receives [`Found`](Self::Found).
        caller: AppCaller,
    },
    /// The answer to [`Find`](Self::Find).
    Found {
        /// The call that sent [`Find`](Self::Find).
        caller: AppCaller,
        /// The matching connections on the answering node.
        places: Vec<ConnectionAddress>,
    },
}

/// A pending call of an application's script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AppCaller {
    /// The worker on the requesting node.
    #[serde(with = "wire::WireWorker")]
    pub worker: WorkerId,
    /// Identifies the call among those of `worker`.
    pub token: u64,
}

impl NodeMessage {
    /// Returns whether the message has a sequence number of its own, so that every node notices if it is lost.
    #[must_use]
    pub fn is_sequenced(&self) -> bool {
        matches!(self, Self::Instruct(_) | Self::Block(_))
    }

    /// Returns whether the message uses a credit until its receiver has processed it.
    #[must_use]
    pub fn is_data(&self) -> bool {
        matches!(self, Self::Relay(_) | Self::App(_))
    }
}
