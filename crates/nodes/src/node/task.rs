//! A message that the workers of this node execute, until their parts make up an answer.

use crate::{Caller, ChannelList, ConnectionList, NodeAnswer, NodeId, NodeMessage};

use super::Part;

/// The source of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TaskOrigin {
    /// A caller of this node.
    Own(Caller),
    /// Another node, with its caller.
    Node(NodeId, Caller),
}

#[derive(Debug)]
pub(super) struct NodeTask {
    pub(super) origin: TaskOrigin,
    pub(super) deadline_ms: u64,
    pub(super) answer: Option<NodeAnswer>,
    /// Missing parts, wrapping: [`UNCOUNTED`] until the number of parts of a command is known.
    open: u32,
}

/// Stands for the unknown number of parts of a command; parts that arrive before the number are subtracted from it.
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
