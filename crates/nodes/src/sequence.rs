//! Sequence numbers by which a node notices a missed command of another node.

use std::collections::HashMap;

use crate::{Envelope, NodeId, NodeMessage};

/// Maximum number of nodes that are tracked. Every message of a further node counts as its first one.
const NODES_MAX: usize = 1024;

/// Assigns sequence numbers to the messages of a node: a sequenced message gets the next number, beginning with 1, and
/// any other message repeats the number of the last sequenced one. So any later message reveals that a sequenced
/// message is missing.
#[derive(Debug)]
pub struct Sequencer {
    source: NodeId,
    last: u64,
}

/// Tracks the sequence numbers of other nodes.
#[derive(Debug, Default)]
pub struct SequenceTracker {
    last: HashMap<NodeId, u64>,
}

/// The result of checking a sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SequenceCheck {
    /// All commands that precede the message were received.
    InOrder,
    /// The first message received from this node, which is tracked from now on. Its commands with
    /// lower numbers were not received.
    First,
    /// The message is sequenced and was already received, so it must be ignored.
    Repeated,
    /// Commands with numbers above `after` and up to the number of the message are missing. From now on they count as
    /// received.
    Gap {
        /// The last number that was received before the gap.
        after: u64,
    },
}

impl Sequencer {
    /// Returns the sequencer of a node that has not sent anything yet.
    #[must_use]
    pub fn new(source: NodeId) -> Self {
        Self { source, last: 0 }
    }

    /// Puts a message into an envelope with its sequence number.
    pub fn wrap(&mut self, message: NodeMessage, within_ms: u32) -> Envelope {
        self.last += u64::from(message.is_sequenced());
        Envelope {
            source: self.source,
            sequence: self.last,
            within_ms,
            message,
        }
    }
}

impl SequenceTracker {
    /// Checks and records the sequence number of an arrived message; needed even for a message
    /// whose content is ignored. `is_numbered` is whether the message is sequenced.
    pub fn check(&mut self, source: NodeId, sequence: u64, is_numbered: bool) -> SequenceCheck {
        let Some(last) = self.last.get_mut(&source) else {
            if self.last.len() < NODES_MAX {
                self.last.insert(source, sequence);
            }
            return SequenceCheck::First;
        };
        let after = *last;
        let expected = after.saturating_add(u64::from(is_numbered));
        *last = after.max(sequence);
        if sequence > expected {
            SequenceCheck::Gap { after }
        } else if is_numbered && sequence < expected {
            SequenceCheck::Repeated
        } else {
            SequenceCheck::InOrder
        }
    }

    /// Stops tracking a node that has ended.
    pub fn forget(&mut self, source: NodeId) {
        self.last.remove(&source);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: NodeId = NodeId(7);

    #[test]
    fn a_gap_is_noticed_by_the_next_message() {
        let mut followed = SequenceTracker::default();
        for (sequence, is_numbered, expected) in [
            (3, false, SequenceCheck::First),
            (3, false, SequenceCheck::InOrder),
            (4, true, SequenceCheck::InOrder),
            (4, true, SequenceCheck::Repeated),
            (2, true, SequenceCheck::Repeated),
            // A message that was sent before the last command and arrives after it, on another
            // path.
            (3, false, SequenceCheck::InOrder),
            (4, false, SequenceCheck::InOrder),
            (6, true, SequenceCheck::Gap { after: 4 }),
            (6, true, SequenceCheck::Repeated),
            (7, false, SequenceCheck::Gap { after: 6 }),
            (8, true, SequenceCheck::InOrder),
            (u64::MAX, true, SequenceCheck::Gap { after: 8 }),
            (u64::MAX, false, SequenceCheck::InOrder),
        ] {
            let arrival = followed.check(SOURCE, sequence, is_numbered);
            assert_eq!(arrival, expected, "{sequence} {is_numbered}");
        }
        followed.forget(SOURCE);
        assert_eq!(followed.check(SOURCE, 1, true), SequenceCheck::First);
    }

    #[test]
    fn made_up_nodes_take_no_memory_for_ever() {
        let mut followed = SequenceTracker::default();
        for node in 0..2 * NODES_MAX as u64 {
            assert_eq!(followed.check(NodeId(node), 1, true), SequenceCheck::First);
        }
        assert_eq!(followed.last.len(), NODES_MAX);
    }
}
