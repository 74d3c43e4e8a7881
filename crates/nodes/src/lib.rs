//! Messages between nodes and their serialised form.
//!
//! A *node* is a server process with its workers. Workers of one node exchange two sorts of messages: those that are
//! meaningful only within the node, and those that mean the same on another node. The second sort is defined here, as
//! plain data without handles, shared state or callbacks; `WorkerMessage::into_node_message` distinguishes the sorts.
//! The mailbox between workers passes these messages as values. Between processes they are sent in their [serialised
//! form](envelope), through an [engine](engine::peer) or a [`NodeTransport`].
//!
//! # Within one node
//!
//! A channel has a home on each node, so everything that concerns the order of a channel stays within a node:
//! subscriptions; publications on their way to the home, and from there to the workers with subscribers; queries for
//! history and presence, which the home answers from its engine; waiting for the log; and the steps by which a home
//! dispatches a user command and counts its execution. Nodes share channels through their engine: a publication to a
//! user or a channel, a join, a member's presence and a history reach other nodes by the engine's feed and reads, not
//! by messages.
//!
//! # Between nodes
//!
//! | message | sent to | if lost | if repeated | reply |
//! |---|---|---|---|---|
//! | [`Announce`](NodeMessage::Announce) | all, every few seconds | replaced by the next one | harmless | no |
//! | [`Leave`](NodeMessage::Leave) | all, at shutdown | the lease expires instead | harmless | no |
//! | [`Instruct`](NodeMessage::Instruct) | all | noticed by its sequence number, and fetched again | ignored by its sequence number; if executed twice, a subscription or refresh has the same effect, and a connection opened in between is closed as well | [`Instructed`](NodeAnswer::Instructed) after the last change |
//! | [`Block`](NodeMessage::Block) | all | noticed by its sequence number, and fetched again | the last one received applies | [`Blocked`](NodeAnswer::Blocked) |
//! | [`Connections`](NodeMessage::Connections), [`Channels`](NodeMessage::Channels), [`UserStatus`](NodeMessage::UserStatus) | all | the result covers fewer nodes, and states how many | answered twice, the second reply is ignored | from each node: lists are concatenated, [channels](ChannelList::add) and a user's connection counts are added up, and the latest time is kept |
//! | [`Answer`](NodeMessage::Answer) | the node of the caller | as if the query were lost | ignored: its ticket is used up | – |
//! | [`Relay`](NodeMessage::Relay) | the node of the response | noticed by the client's own timeout | executes a command twice: must not be repeated by a transport | on the response |
//! | [`App`](NodeMessage::App) | the node of the connections; a search to all | like a message to a connection that has just closed | must not be repeated by a transport | a search by each node |
//!
//! *Order.* Messages from one node to another arrive in the order of sending. Messages of different nodes have no
//! order: if a ban is sent by one node and its withdrawal by another, they may arrive in either order.
//!
//! *Addresses.* A [`NodeId`] and a worker number form an address. [`Caller`]s, [`ConnectionAddress`]es and
//! [`EmulationAddress`]es contain only the worker; the node is the source or the target of their envelope. Applications are
//! identified by name.
//!
//! *Time.* The clocks of nodes differ, so an envelope states for how many milliseconds after its arrival a reply is
//! useful. The caller's own clock determines when the caller stops waiting.
//!
//! *Sequence.* Commands are numbered by the node that sends them, and every message carries the number of the node's
//! last command; see [`Sequencer`] and [`SequenceTracker`].

#![forbid(unsafe_code)]

mod ban;
mod channel_list;
mod connection_list;
mod emulation;
pub mod engine;
pub mod envelope;
mod glob;
mod id;
mod list_connections;
mod message;
pub mod node;
mod sequence;
mod status;
pub mod transport;
mod user_command;
mod wire;

pub use ban::{Ban, BanError};
pub use channel_list::{CHANNELS_LISTED_MAX, ChannelList};
pub use connection_list::{CONNECTIONS_LISTED_MAX, ConnectionInfo, ConnectionList};
pub use emulation::{EmulationAddress, EmulationRequest};
pub use envelope::{
    DecodeError, DecodeErrorCounts, EncodeError, Envelope, EnvelopeHeader, MESSAGE_BYTES_MAX,
    VERSION,
};
pub use glob::{Glob, GlobError};
pub use id::{Caller, NodeId, Ticket};
pub use list_connections::ListConnections;
pub use message::{
    Announcement, AppCaller, AppMessage, AppOrder, BanRequest, ChannelsQuery, ConnectionAddress,
    NodeAnswer, NodeMessage, NodeReply, UserCommandRequest, UserStatusQuery,
};
pub use sequence::{SequenceCheck, SequenceTracker, Sequencer};
pub use status::UserStatus;
pub use transport::{NodeTransport, NodeTransportFull};
pub use user_command::{SubscribeAction, UserAction, UserCommand};
