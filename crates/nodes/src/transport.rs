//! The transport of messages between nodes, as a trait.
//!
//! # Contract
//!
//! Each clause has a test of the same name in `tests/carriers`, which runs on every implementation.
//!
//! * `order`: messages from one node to another that arrive do so in the order of sending.
//! * `once`: while the link lasts, each message arrives exactly once and unchanged.
//! * `credit`: a data message ([`NodeMessage::is_data`](crate::NodeMessage::is_data)) takes a credit of the sender,
//!   which [`NodeTransport::return_credit`] returns on the receiving side. Without a credit the message is given back
//!   to the sender as [`NodeTransportFull`]. Other messages need no credit, so replies and commands never wait for one.
//! * `gap`: a link may break at any time and lose whole messages in flight. The sequence numbers of later messages
//!   reveal a missing command: see [`Sequencer`](crate::Sequencer). How the command is obtained again (from a log, or by
//!   a request to a node) is up to the implementation.
//! * `hostile`: bytes that are not a message are counted and ignored, as is a length that no message can have.
//!
//! No method blocks. A transport between processes sends the bytes of [`Envelope::encode`] and parses received bytes
//! with [`Envelope::decode`]; between the workers of one process messages are passed as values.
//!
//! Messages through Redis do not use this trait: a node sends them as [orders](crate::engine::peer::Order) to its
//! engine.
//!
//! # Planned implementation
//!
//! *A Unix socket* to the previous process during an upgrade: one link, on which each frame is a length and an
//! envelope, and credits are separate frames. The socket in `tests/carriers` works like this.

use crate::{Envelope, NodeId};

/// Carries messages to and from other nodes; see the [module](self).
pub trait NodeTransport {
    /// Sends a message to a node.
    ///
    /// # Errors
    /// The sender has no credit, or the queue is full.
    fn send(&mut self, to: NodeId, envelope: Envelope) -> Result<(), NodeTransportFull>;

    /// Returns the next message that has arrived; `None` if there is none.
    fn receive(&mut self) -> Option<Envelope>;

    /// Returns to a node the credit of a data message that was processed.
    fn return_credit(&mut self, from: NodeId);
}

/// A message that could not be sent now, for lack of credit or because the queue is full.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no message can be sent to that node now")]
pub struct NodeTransportFull(pub Box<Envelope>);
