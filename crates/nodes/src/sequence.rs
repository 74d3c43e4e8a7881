//! Sequence numbers by which a node notices a missed command of another node.

use std::collections::HashMap;

use crate::{Envelope, NodeId, NodeMessage};

/// Maximum number of nodes that are tracked.
const NODES_MAX: usize = 1024;

/// Assigns sequence numbers to the messages of a node: a sequenced message gets the next number, from 1 on, and any
/// other message the number of the last sequenced one. So every message reveals a missing command, including the
/// latest.
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
    /// No message is missing before it.
    InOrder,
    /// The source was unknown. It is tracked from now on; commands before this number were not seen.
    First,
    /// A sequenced message that was already received and is ignored.
    Repeated,
    /// Commands after this number, up to that of the message, are missing. From now on they count as seen.
    Gap {
        /// The last received number.
        after: u64,
    },
}

impl Sequencer {
    /// Returns the sequencer of a node that has not sent anything yet.
    #[must_use]
    pub fn new(source: NodeId) -> Self {
        Self { source, last: 0 }
    }

    /// Wraps a message in an envelope.
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
    /// Checks the sequence number of a message that has arrived, whether it was parsed or ignored.
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
            // Sent before the last command over another path.
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
