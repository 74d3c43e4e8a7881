//! The outputs of a node: orders to the engine, messages to execute, answers to callers; and its counters.

use crate::engine::peer::Order;
use crate::{Caller, DecodeErrorCounts, NodeAnswer, NodeId, NodeMessage};

use super::peers::Disagreement;

/// How many nodes an answer covers, and how many it should cover.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnswerCoverage {
    /// The number of nodes that have answered, this node included.
    pub answered: u32,
    /// The number of nodes with a valid lease, this node included.
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
    /// An order that the node's owner has to send to the engine.
    Order(Order),
    /// A message for the workers of this node to execute. If the message has a caller, the owner
    /// passes the workers' answers and this caller to [`Node::handle_part`].
    Perform(NodeMessage),
    /// The answer for a caller, and the number of nodes that it covers.
    Answer(Caller, NodeAnswer, AnswerCoverage),
    /// An announcement is due, so the owner must call [`Node::announce`].
    Announce,
    /// The store may have lost bans, so the owner must call [`Node::restore_blocks`] with the bans in force on this
    /// node.
    StoreBlocks,
    /// Commands of other nodes were lost, so connections of this node may have missed a disconnect or a refresh.
    Lost,
    /// A node's name or settings conflict with those of this node; reported once for each node and difference.
    Disagree(NodeId, Disagreement),
}

/// A part of the answer to [`Output::Perform`], from one worker or from the process as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// One worker's part of the answer to a query, or the outcome of a ban.
    Answer(NodeAnswer),
    /// A command for a user was sent to this node's workers, by the worker that is the home of the user's personal
    /// channel. The answer is complete once `open` parts [`Settled`](Self::Settled) have arrived too.
    Instructed {
        /// The number of connections of the user.
        connections: u32,
        /// The number of [`Settled`](Self::Settled) parts that complete the answer. Some may arrive before this part.
        open: u32,
    },
    /// A worker has executed its part of a command.
    Settled,
}

/// Counters of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeCounts {
    /// The numbers of ignored messages, by reason.
    pub ignored: DecodeErrorCounts,
    /// The number of queries and commands of this node's callers.
    pub asked: u64,
    /// The number of answers that did not cover all nodes.
    pub partial: u64,
    /// The number of executed commands of other nodes.
    pub commands: u64,
    /// The number of gaps in the feed of the control stream. After each gap, the stream was read.
    pub gaps: u64,
    /// The number of times that commands of other nodes were lost.
    pub lost: u64,
}
