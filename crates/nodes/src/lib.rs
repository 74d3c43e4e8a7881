//! Messages between nodes: what they are, and how they are serialised.
//!
//! A *node* is a server process with its workers. Workers of one node exchange messages of two sorts: those that make sense
//! there only, and those that mean the same on another node. The second sort is defined here, as plain data without
//! handles, shared state or callbacks; `WorkerMessage::into_node_message` is the list that tells the sorts apart. What
//! carries them is a [`Carrier`]: the mailbox between workers carries their parts as values, and a carrier between processes
//! the [serialised form](envelope).
//!
//! # One node only
//!
//! The home of a channel is a worker of each node, so all that concerns the order of a channel stays there: subscriptions,
//! publications on their way to the home and from it to workers with subscribers, the questions for history and presence
//! that the home answers from its engine, waiting for the log, and the steps by which a home passes an instruction on and
//! counts that it was carried out. Nodes share channels by their engine: a publication to a user or a channel, a join, a
//! member's presence and a history reach other nodes by the engine's feed and reads, not by messages.
//!
//! # Between nodes
//!
//! | message | goes to | lost | twice | answered |
//! |---|---|---|---|---|
//! | [`Announce`](Message::Announce) | all, every few seconds | the next one replaces it | harmless | no |
//! | [`Leave`](Message::Leave) | all, at the end | the lease ends instead | harmless | no |
//! | [`Instruct`](Message::Instruct) | all | noticed by its number, and had again | ignored by its number; carried out twice, a subscription or a refresh is the same, and a connection that came between is closed as well | [`Instructed`](Answer::Instructed) behind the last change |
//! | [`Block`](Message::Block) | all | noticed by its number, and had again | the last one counts | [`Blocked`](Answer::Blocked) |
//! | [`Connections`](Message::Connections), [`Channels`](Message::Channels), [`UserStatus`](Message::UserStatus) | all | the answer covers fewer nodes, and says so | answered twice, the second answer is ignored | by each node for itself: lists are joined, [channels](Listing::add) and counts of one user added, the latest time counts |
//! | [`Answer`](Message::Answer) | the node of the caller | as if the question were | ignored: its ticket is used up | – |
//! | [`Relay`](Message::Relay) | the node of the response | the client's own time limit finds out | a command is carried out twice: not to be repeated by a carrier | by the response |
//! | [`App`](Message::App) | the node of the connections; a search to all | as a message to a connection that has just closed | not to be repeated by a carrier | a search by each node |
//!
//! *Order.* Messages of one node to another arrive in the order of sending. Between nodes there is no order: a block and
//! its withdrawal, given to two nodes, come as they come.
//!
//! *Addresses.* A [`NodeId`] and a worker's number make an address. [`Caller`]s, [`Place`]s and [`Address`]es have the
//! worker, and belong to the source or the target of the envelope that they travel in; applications travel by name.
//!
//! *Time.* Clocks of nodes differ, so an envelope says how many milliseconds an answer is of use from its arrival. The
//! caller's own clock ends its waiting.
//!
//! *Numbers.* Commands are numbered by their source, and every message tells the number of the last command: [`Numbers`],
//! [`Followed`].

#![forbid(unsafe_code)]

mod block;
pub mod carrier;
mod census;
mod connected;
pub mod engine;
pub mod envelope;
mod glob;
mod id;
mod instruction;
mod listing;
mod message;
pub mod node;
mod numbers;
mod relay;
mod status;
mod wire;

pub use block::{Block, NotBlocked};
pub use carrier::{Carrier, Full};
pub use census::Census;
pub use connected::{CONNECTED_MAX, Connected, Connections};
pub use envelope::{
    EncodeError, Envelope, Header, Ignored, IgnoredCounts, MESSAGE_BYTES_MAX, VERSION,
};
pub use glob::{Glob, GlobError};
pub use id::{Caller, NodeId, Ticket};
pub use instruction::{Deed, Instruction, Subscribe};
pub use listing::{LISTED_MAX, Listing};
pub use message::{
    Announcement, Answer, AppCaller, AppMessage, AppOrder, BlockCommand, ChannelsQuery, Message,
    Place, Reply, UserCommand, UserStatusQuery,
};
pub use numbers::{Arrival, Followed, Numbers};
pub use relay::{Address, Relay};
pub use status::UserStatus;
