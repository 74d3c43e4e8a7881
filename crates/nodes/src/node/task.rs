//! A message that the workers of this node are executing, and the answer so far.

use crate::{Caller, ChannelList, ConnectionList, NodeAnswer, NodeId, NodeMessage};

use super::Part;

/// Where the message of a task comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TaskOrigin {
    /// The message comes from a caller on this node.
    Own(Caller),
    /// The message comes from another node, on behalf of this caller.
    Node(NodeId, Caller),
}

#[derive(Debug)]
pub(super) struct NodeTask {
    pub(super) origin: TaskOrigin,
    pub(super) deadline_ms: u64,
    pub(super) answer: Option<NodeAnswer>,
    /// The number of parts of the answer that are still missing. While the total is unknown, this is [`UNCOUNTED`]
    /// minus the number of received parts, modulo 2^32.
    open: u32,
}

/// The initial number of missing parts of a command, whose number of parts is not known yet.
const UNCOUNTED: u32 = 1 << 31;

impl NodeTask {
    pub(super) fn new(
        message: &NodeMessage,
        origin: TaskOrigin,
        workers: u32,
        deadline_ms: u64,
    ) -> Self {
        let (open, answer) = match message {
            NodeMessage::Instruct(_) => (UNCOUNTED, None),
            NodeMessage::Connections(_) => (
                workers,
                Some(NodeAnswer::Connections(ConnectionList::default())),
            ),
            NodeMessage::Channels(_) => {
                (workers, Some(NodeAnswer::Channels(ChannelList::default())))
            }
            _ => (1, None),
        };
        Self {
            origin,
            deadline_ms,
            answer,
            open,
        }
    }

    pub(super) fn add(&mut self, part: Part) {
        match part {
            Part::Instructed { connections, open } => {
                self.answer = Some(NodeAnswer::Instructed { connections });
                self.open = self.open.wrapping_sub(UNCOUNTED).wrapping_add(open);
                return;
            }
            Part::Settled => {}
            Part::Answer(answer) => match (&mut self.answer, answer) {
                (Some(NodeAnswer::Connections(all)), NodeAnswer::Connections(more)) => {
                    all.add(more)
                }
                (Some(NodeAnswer::Channels(all)), NodeAnswer::Channels(more)) => all.add(more),
                (so_far @ None, answer) => *so_far = Some(answer),
                (Some(_), _) => return,
            },
        }
        self.open = self.open.wrapping_sub(1);
    }

    pub(super) fn is_complete(&self) -> bool {
        self.open == 0 && self.answer.is_some()
    }
}
