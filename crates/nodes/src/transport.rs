//! The transport of messages between nodes, as a trait.
//!
//! # Contract
//!
//! Each clause has a test of the same name in `tests/carriers`, which runs on every implementation.
//!
//! * `order`: messages from one node to another that arrive do so in the order of sending.
//! * `once`: while the link lasts, each message arrives once, equal to what was sent.
//! * `credit`: a data message ([`NodeMessage::is_data`](crate::NodeMessage::is_data)) takes a credit, which
//!   [`NodeTransport::return_credit`] returns on the other side. Without a credit the message stays with the sender, as [`NodeTransportFull`],
//!   until credits return. Other messages need none, so replies and commands never wait for credit.
//! * `gap`: a link may break at any time and lose whole messages in flight. The sequence numbers of later messages
//!   reveal a missing command: see [`Sequencer`](crate::Sequencer). How the command is obtained again (from a log, or by
//!   asking a node) is up to the implementation.
//! * `hostile`: bytes that are not a message are counted and ignored, and so is a length that no message can have.
//!
//! No method blocks. A transport between processes sends [`Envelope::encode`] and reads with [`Envelope::decode`];
//! between workers of one process messages stay values.
//!
//! # Planned implementations
//!
//! * *Redis*: sequenced messages go to a stream that each node reads from the last entry it has executed before it
//!   serves again; the others go to the channel of their node. Redis does not report which messages a receiver has processed, so
//!   credits return when the bytes are written, and the receiver's queue is bounded.
//! * *A Unix socket* to the previous process during an upgrade: one link, frames of a length and an envelope, and
//!   credits as separate frames. The socket in `tests/carriers` works like this.

use crate::{Envelope, NodeId};

/// Transports messages to other nodes; see the [module](self).
pub trait NodeTransport {
    /// Sends a message to a node.
    ///
    /// # Errors
    /// The sender has no credit, or the queue is full.
    fn send(&mut self, to: NodeId, envelope: Envelope) -> Result<(), NodeTransportFull>;

    /// Returns the next received message.
    fn receive(&mut self) -> Option<Envelope>;

    /// Returns the credit of a data message from that node.
    fn return_credit(&mut self, from: NodeId);
}

/// A message that could not be sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no message can be sent to that node now")]
pub struct NodeTransportFull(pub Box<Envelope>);
