//! One worker: its connections, its part of the hub, its applications, and the one order of steps in a turn.
//!
//! [`Worker`] is a state machine without I/O. A driver hands it what happened (`handle_*`), has it carry out the turn
//! ([`Worker::finish_turn`]) and takes out what is to be done (`poll_*`). The server drives it with sockets, TLS and
//! mailboxes; the simulator, the front ends' tests and the fuzz targets drive it with bytes in memory. No socket, clock,
//! thread or global randomness is reachable from here, and no step of a turn exists anywhere else.
//!
//! Messages between workers of one node are values. Those that mean the same on another node are listed by
//! [`WorkerMessage::into_node_message`], and defined and serialised in `veche-nodes`.
//!
//! Start reading at [`Worker`].

#![forbid(unsafe_code)]

mod accept_policy;
mod apps;
mod drain;
mod limits;
mod message;
mod node_messages;
mod slab;
mod turn;
mod worker;
mod write;

pub use accept_policy::AcceptPolicy;
pub use apps::{AppHost, NoApps};
pub use limits::{APP_CREDITS, TurnLimits, TurnState};
pub use message::{OutgoingMail, WorkerMessage};
pub use worker::{ClosedConnection, ExternalRequest, TransportCommand, Worker};
pub use write::PendingWrite;
