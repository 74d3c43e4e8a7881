//! Outputs of a node: envelopes to send, parts of answers, counters.

use crate::engine::peer::Order;
use crate::{Caller, DecodeErrorCounts, NodeAnswer, NodeId, NodeMessage};

use super::peers::Disagreement;

/// The nodes that an answer covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnswerCoverage {
    /// Nodes that have answered, this node included.
    pub answered: u32,
    /// Nodes with a valid lease, this node included.
    pub known: u32,
}

impl AnswerCoverage {
    /// Returns whether all nodes have answered.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.answered == self.known
    }
}

/// Work that a [`Node`] delegates to its owner.
#[derive(Debug, PartialEq, Eq)]
pub enum Output {
    /// An order for the engine, to be carried there.
    Order(Order),
    /// A message for the workers of this node to execute. Its caller, if any, is passed to [`Node::handle_part`].
    Perform(NodeMessage),
    /// The answer for a caller, and whether all nodes have contributed.
    Answer(Caller, NodeAnswer, AnswerCoverage),
    /// The announcement of this node is due: [`Node::announce`].
    Announce,
    /// Stored bans may be lost: [`Node::restore_blocks`] has to be called with the bans in force on this node.
    StoreBlocks,
    /// Commands of other nodes were lost: connections of this node may have missed a disconnect or a refresh.
    Lost,
    /// A node's name or settings conflict with those of this node; reported once for each node and difference.
    Disagree(NodeId, Disagreement),
}

/// A part of the answer to [`Output::Perform`], by one worker or by the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// The worker's part of a query, or the outcome of a ban.
    Answer(NodeAnswer),
    /// The user's home has forwarded a command; [`Settled`](Self::Settled) follows `open` times.
    Instructed {
        /// Connections of the user.
        connections: u32,
        /// The number of parts that complete the answer, which may arrive before this one.
        open: u32,
    },
    /// One worker's part of a command was executed.
    Settled,
}

/// Counters of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeCounts {
    /// Ignored messages, by reason.
    pub ignored: DecodeErrorCounts,
    /// Queries and commands of this node.
    pub asked: u64,
    /// The number of answers that did not cover all nodes.
    pub partial: u64,
    /// Executed commands of other nodes.
    pub commands: u64,
    /// Gaps of the control stream that were read again.
    pub gaps: u64,
    /// Times that commands were lost.
    pub lost: u64,
}
