//! The messages themselves.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use veche_types::{ConnectionId, MessageKind, WorkerId};

use crate::wire;
use crate::{
    Ban, BanError, Caller, ChannelList, ConnectionList, EmulationRequest, Glob, ListConnections,
    UserCommand, UserStatus,
};

/// A message between nodes; the [crate](crate)'s text says what each promises.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeMessage {
    /// Announces the node, every few seconds.
    Announce(Box<Announcement>),
    /// The node has ended, and has no connections any more.
    Leave,
    /// Orders an action on the connections of a user.
    Instruct(UserCommandRequest),
    /// Keep a user or a token out, or let a user in again.
    Block(BanRequest),
    /// Asks for a list of connections.
    Connections(Arc<ListConnections>),
    /// Asks for a list of channels.
    Channels(ChannelsQuery),
    /// Asks whether a user is connected.
    UserStatus(UserStatusQuery),
    /// The answer to one of the above.
    Answer(NodeReply),
    /// Commands of a client whose response is on the node.
    Relay(EmulationRequest),
    /// For the same application on the node.
    App(AppMessage),
}

/// The state that a node publishes about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announcement {
    /// The name that its configuration gives it.
    pub name: Box<str>,
    /// The version of the program.
    pub version: Box<str>,
    /// A hash of the settings on which nodes have to agree.
    pub settings: u64,
    /// The time since its start, in seconds.
    pub uptime_s: u64,
    /// The number of its open sessions.
    pub clients: u64,
    /// Users among them; a user with connections to two nodes is counted by both.
    pub users: u64,
    /// Channels with subscribers on the node.
    pub channels: u64,
    /// Subscriptions of its sessions.
    pub subscriptions: u64,
    /// It takes no new connections and ends soon.
    pub is_draining: bool,
}

/// See [`NodeMessage::Instruct`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserCommandRequest {
    /// The user.
    #[serde(with = "wire::text")]
    pub user: Arc<str>,
    /// The action, and the connections of the user that it applies to.
    #[serde(with = "wire::shared")]
    pub instruction: Arc<UserCommand>,
    /// Gets [`NodeAnswer::Instructed`].
    pub caller: Option<Caller>,
}

/// See [`NodeMessage::Ban`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BanRequest {
    /// The command itself.
    pub block: Ban,
    /// Gets [`NodeAnswer::Blocked`].
    pub caller: Option<Caller>,
}

/// See [`NodeMessage::Channels`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelsQuery {
    /// The pattern of their names.
    #[serde(with = "wire::shared")]
    pub pattern: Arc<Glob>,
    /// Gets [`NodeAnswer::Channels`].
    pub caller: Caller,
}

/// See [`NodeMessage::UserStatus`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserStatusQuery {
    /// The user.
    #[serde(with = "wire::text")]
    pub user: Arc<str>,
    /// Gets [`NodeAnswer::UserStatus`].
    pub caller: Caller,
}

/// See [`NodeMessage::NodeAnswer`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReply {
    /// The caller of the message that is answered.
    pub caller: Caller,
    /// The answer of one node, for its own connections.
    pub answer: NodeAnswer,
}

/// The answer of a node to a query or command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeAnswer {
    /// All connections of the user on the node have carried the instruction out, and their channels know.
    Instructed {
        /// The connections.
        connections: u32,
    },
    /// The block is in force on the node.
    Blocked(Result<(), BanError>),
    /// The connections of the node.
    Connections(ConnectionList),
    /// The channels with subscribers on the node, and the number of these.
    Channels(ChannelList),
    /// The user's connections to the node, and when the last one ended.
    UserStatus(UserStatus),
}

/// See [`NodeMessage::App`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppMessage {
    /// The name of the application.
    #[serde(with = "wire::text")]
    pub app: Arc<str>,
    /// The orders, to be carried out in sequence.
    pub orders: Vec<AppOrder>,
}

/// The place of a connection on its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ConnectionAddress {
    /// Its worker.
    #[serde(with = "wire::WireWorker")]
    pub worker: WorkerId,
    /// Its id there.
    #[serde(with = "wire::WireConnection")]
    pub session: ConnectionId,
}

/// An order of an application for connections on another node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AppOrder {
    /// Send a message.
    Send {
        /// The connection.
        to: ConnectionAddress,
        /// The kind of the message.
        #[serde(with = "wire::WireMessageKind")]
        kind: MessageKind,
        /// Its bytes.
        #[serde(with = "wire::raw")]
        data: Vec<u8>,
    },
    /// Close a connection.
    Close {
        /// The connection.
        to: ConnectionAddress,
        /// The close code.
        code: u16,
        /// The reason.
        reason: String,
    },
    /// Find connections of a user that the application has.
    Find {
        /// The user.
        user: String,
        /// The maximum number of connections to return.
        limit: u32,
        /// Gets [`Found`](Self::Found).
        caller: AppCaller,
    },
    /// The answer to [`Find`](Self::Find).
    Found {
        /// The call that asked for them.
        caller: AppCaller,
        /// Connections of the node that answers.
        places: Vec<ConnectionAddress>,
    },
}

/// A call of an application's script that waits for answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AppCaller {
    /// The worker on the node that asked.
    #[serde(with = "wire::WireWorker")]
    pub worker: WorkerId,
    /// The call on that worker.
    pub token: u64,
}

impl NodeMessage {
    /// Returns whether the message has a number of its own, so that each node notices its loss.
    #[must_use]
    pub fn is_sequenced(&self) -> bool {
        matches!(self, Self::Instruct(_) | Self::Block(_))
    }

    /// Returns whether the message uses a credit until its receiver has finished it.
    #[must_use]
    pub fn is_data(&self) -> bool {
        matches!(self, Self::Relay(_) | Self::App(_))
    }
}
