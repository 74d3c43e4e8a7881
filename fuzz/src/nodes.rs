//! Any bytes as a message of another node. No panic; what is read is written again, and that is read as the same; the number
//! in the header of what is ignored can be tracker.

use veche_nodes::{Envelope, SequenceTracker};

/// Runs one input; panics on a finding.
pub fn run(input: &[u8]) {
    let mut tracker = SequenceTracker::default();
    match Envelope::decode(input) {
        Ok(envelope) => {
            tracker.check(
                envelope.source,
                envelope.sequence,
                envelope.message.is_sequenced(),
            );
            let again = envelope.encode().expect("what was read can be written");
            assert_eq!(Envelope::decode(&again), Ok(envelope));
        }
        Err(ignored) => {
            if let Some(header) = ignored.header() {
                tracker.check(header.source, header.sequence, header.is_sequenced());
            }
        }
    }
}
