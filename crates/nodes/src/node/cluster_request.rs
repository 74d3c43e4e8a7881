//! A query or command of this node that waits for the replies of the other nodes, and the combination of these replies.

use crate::{NodeAnswer, NodeId};

use super::AnswerCoverage;

#[derive(Debug)]
pub(super) struct ClusterRequest {
    /// The other nodes that have not answered.
    waiting: Vec<NodeId>,
    is_own_open: bool,
    answered: u32,
    known: u32,
    is_given_up: bool,
    pub(super) deadline_ms: u64,
    pub(super) answer: NodeAnswer,
}

impl ClusterRequest {
    /// Creates a request that waits for the nodes `peers`. `missing` is the number of other known
    /// nodes, which can't be reached. The nodes' replies are added to `answer`.
    pub(super) fn new(
        peers: Vec<NodeId>,
        missing: usize,
        answer: NodeAnswer,
        deadline_ms: u64,
    ) -> Self {
        Self {
            known: (peers.len() + missing) as u32 + 1,
            waiting: peers,
            is_own_open: true,
            answered: 0,
            is_given_up: false,
            deadline_ms,
            answer,
        }
    }

    /// Adds the answer of a node; `None` stands for this node.
    pub(super) fn answered(&mut self, node: Option<NodeId>, answer: NodeAnswer) {
        let is_awaited = match node {
            None => std::mem::take(&mut self.is_own_open),
            Some(node) => {
                let place = self.waiting.iter().position(|one| *one == node);
                place.map(|place| self.waiting.swap_remove(place)).is_some()
            }
        };
        if !is_awaited {
            return;
        }
        self.answered += 1;
        let so_far = std::mem::replace(&mut self.answer, NodeAnswer::Blocked(Ok(())));
        self.answer = join(so_far, answer);
    }

    /// Removes a node that has left: it is no longer waited for, and no longer counted as known.
    pub(super) fn left(&mut self, node: NodeId) {
        let before = self.waiting.len();
        self.waiting.retain(|one| *one != node);
        self.known -= (before - self.waiting.len()) as u32;
    }

    /// Ends the wait, since the other nodes can't be reached any more.
    pub(super) fn give_up(&mut self) {
        self.is_given_up = true;
    }

    pub(super) fn is_finished(&self, now_ms: u64) -> bool {
        let is_due = now_ms >= self.deadline_ms;
        is_due || !self.is_own_open && (self.waiting.is_empty() || self.is_given_up)
    }

    pub(super) fn coverage(&self) -> AnswerCoverage {
        AnswerCoverage {
            answered: self.answered,
            known: self.known,
        }
    }
}

/// Combines the answers of two nodes. Answers of different kinds can't be combined; the first one is kept.
fn join(so_far: NodeAnswer, more: NodeAnswer) -> NodeAnswer {
    match (so_far, more) {
        (NodeAnswer::Instructed { connections }, NodeAnswer::Instructed { connections: more }) => {
            NodeAnswer::Instructed {
                connections: connections.saturating_add(more),
            }
        }
        (NodeAnswer::Blocked(Ok(())), NodeAnswer::Blocked(outcome)) => NodeAnswer::Blocked(outcome),
        (NodeAnswer::Connections(mut all), NodeAnswer::Connections(more)) => {
            all.add(more);
            NodeAnswer::Connections(all)
        }
        (NodeAnswer::Channels(mut all), NodeAnswer::Channels(more)) => {
            all.merge(more);
            NodeAnswer::Channels(all)
        }
        (NodeAnswer::UserStatus(one), NodeAnswer::UserStatus(more)) => {
            NodeAnswer::UserStatus(one.join(more))
        }
        (so_far, _) => so_far,
    }
}
