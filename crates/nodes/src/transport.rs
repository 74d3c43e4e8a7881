//! The seam to what carries messages between nodes.
//!
//! # Contract
//!
//! Each clause has a test of its name in `tests/carriers`, which runs on every carrier there is.
//!
//! * `order`: of what one node sends to another one, whatever arrives arrives in the order of sending.
//! * `once`: while the link lasts, each message arrives once, and equal to what was sent.
//! * `credit`: a data message ([`Message::is_data`](crate::Message::is_data)) takes a credit, which
//!   [`NodeTransport::return_credit`] gives back on the other side. Without one it stays with the sender, as [`NodeTransportFull`], until
//!   credits return. Other messages need none, so answers and commands never wait for it.
//! * `gap`: a link may break at any time and loses what was under way, whole messages only. The numbers of what arrives
//!   later show whether a command is missing: see [`Numbers`](crate::Numbers). How the command is had again (a log that
//!   is read, or a node that is asked) is the carrier's matter.
//! * `hostile`: bytes that are no message are counted and ignored, and so is a length that no message has.
//!
//! No method waits. A carrier between processes sends [`Envelope::encode`] and reads by [`Envelope::decode`]; between
//! workers of one process messages stay values.
//!
//! # Carriers to come
//!
//! * *Redis*: numbered messages go to a stream that each node reads from the last entry that it has carried out, before it
//!   serves again; the others to the channel of their node. Nothing tells there what a receiver has finished, so credits
//!   return when the bytes are written, and the receiver's queue is bounded.
//! * *A Unix socket* to the process before, at an upgrade: one link, frames of a length and an envelope, credits as frames
//!   of their own. The socket of `tests/carriers` is that.

use crate::{Envelope, NodeId};

/// Carries messages to other nodes, see the [module](self).
pub trait NodeTransport {
    /// Sends a message to a node.
    ///
    /// # Errors
    /// There is no credit for it, or no room.
    fn send(&mut self, to: NodeId, envelope: Envelope) -> Result<(), NodeTransportFull>;

    /// Returns the next message that has arrived.
    fn receive(&mut self) -> Option<Envelope>;

    /// Gives back the credit of a data message of that node.
    fn return_credit(&mut self, from: NodeId);
}

/// A message that could not be sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no message can be sent to that node now")]
pub struct NodeTransportFull(pub Box<Envelope>);
