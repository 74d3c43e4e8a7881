//! Outputs of a node: envelopes to send, parts of answers, counters.

use crate::engine::peer::Order;
use crate::{Caller, DecodeErrorCounts, NodeAnswer, NodeId, NodeMessage};

use super::peers::Disagreement;

/// The nodes that an answer covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Nodes that have answered, this node included.
    pub answered: u32,
    /// Nodes with a valid lease, this node included.
    pub known: u32,
}

impl Coverage {
    /// Returns whether all nodes have answered.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.answered == self.known
    }
}

/// Work that a [`Node`] hands to its owner.
#[derive(Debug, PartialEq, Eq)]
pub enum Output {
    /// An order for the engine, to be carried there.
    Order(Order),
    /// Have the workers of this node carry out a message. Its caller, if it has one, is the one for [`Node::handle_part`].
    Perform(NodeMessage),
    /// The answer for a caller, and whether all nodes have contributed.
    Answer(Caller, NodeAnswer, Coverage),
    /// The announcement of this node is due: [`Node::announce`].
    Announce,
    /// The stored blocks are gone: those in force here are to be stored again, by [`Node::store_block`].
    StoreBlocks,
    /// Commands of other nodes are lost: connections of this node may have missed a disconnect or a refresh.
    Lost,
    /// A node has a name or settings that do not go with those of this node; reported once for each node and difference.
    Disagree(NodeId, Disagreement),
}

/// A part of the answer to [`Output::Perform`], by one worker or by the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Its part of a query, or the outcome of a block.
    Answer(NodeAnswer),
    /// The user's home has passed an instruction on; [`Settled`](Self::Settled) comes `open` times.
    Instructed {
        /// Connections of the user.
        connections: u32,
        /// Parts that complete the answer, in any order with this one.
        open: u32,
    },
    /// One worker's share of an instruction is carried out.
    Settled,
}

/// Counters of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeCounts {
    /// Messages that were ignored, by reason.
    pub ignored: DecodeErrorCounts,
    /// Questions and commands of this node.
    pub asked: u64,
    /// Answers that did not cover all nodes.
    pub partial: u64,
    /// Commands of other nodes that were carried out.
    pub commands: u64,
    /// Gaps of the control stream that were read again.
    pub gaps: u64,
    /// Times that commands were lost.
    pub lost: u64,
}
