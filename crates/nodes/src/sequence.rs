//! The numbers by which a node notices that it has missed a command of another one.

use std::collections::HashMap;

use crate::{Envelope, NodeId, NodeMessage};

/// The most nodes whose numbers are followed.
const NODES_MAX: usize = 1024;

/// Gives the messages of a node their numbers: a numbered message has the next one, from 1 on, and any other message the
/// number of the last numbered one before it. So whatever arrives shows that a command is missing, also the latest.
#[derive(Debug)]
pub struct Sequencer {
    source: NodeId,
    last: u64,
}

/// Follows the numbers of other nodes.
#[derive(Debug, Default)]
pub struct SequenceTracker {
    last: HashMap<NodeId, u64>,
}

/// What the number of a message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SequenceCheck {
    /// Nothing is missing before it.
    InOrder,
    /// The source was not known. It is followed from here on; commands before this number were not seen.
    First,
    /// A numbered message that was there already, to be ignored.
    Repeated,
    /// Commands behind this number, up to that of the message, are missing. Everything up to there counts as seen now.
    Gap {
        /// The last one that was seen.
        after: u64,
    },
}

impl Sequencer {
    /// Returns the numbers of a node that has sent nothing yet.
    #[must_use]
    pub fn new(source: NodeId) -> Self {
        Self { source, last: 0 }
    }

    /// Puts a message into its envelope.
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
    /// Looks at the number of a message that has arrived, whether it was read or ignored.
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

    /// Forgets a node that has ended.
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
            // Sent before the last command, by another way.
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
