//! One worker: its connections, its part of the hub, its applications, and the only implementation of a turn.
//!
//! [`Worker`] is a state machine without I/O. A driver passes events in (`handle_*`), runs the turn
//! ([`Worker::finish_turn`]) and takes the resulting work out (`poll_*`). The server drives it with sockets, TLS and
//! mailboxes; the simulator, the front ends' tests and the fuzz targets drive it with bytes in memory. The crate uses
//! no socket, clock, thread or global random number, and no other code contains steps of a turn.
//!
//! Messages between the workers of a node are plain values. [`WorkerMessage::into_node_message`] lists those that also
//! exist between nodes; `veche-nodes` defines and serialises them.
//!
//! Start reading at [`Worker`].

#![forbid(unsafe_code)]

mod accept_policy;
mod apps;
mod drain;
mod limits;
mod message;
mod node_messages;
mod pending_work;
mod slab;
mod turn;
mod worker;
mod write;

pub use accept_policy::{AcceptPolicy, ConnectionCount};
pub use apps::{AppHost, NoApps};
pub use drain::DrainProgress;
pub use limits::{APP_CREDITS, TurnLimits, TurnState};
pub use message::{OutgoingMail, WorkerMessage};
pub use worker::{ClosedConnection, ExternalRequest, TransportCommand, Worker};
pub use write::PendingWrite;
