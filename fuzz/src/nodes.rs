//! Decodes arbitrary bytes as a message of another node. The decoder must not panic, a decoded message must survive a
//! round trip, and the sequence number in the header of an ignored message must be readable.

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
            let again = envelope.encode().expect("a decoded message can be encoded");
            assert_eq!(Envelope::decode(&again), Ok(envelope));
        }
        Err(ignored) => {
            if let Some(header) = ignored.header() {
                tracker.check(header.source, header.sequence, header.is_sequenced());
            }
        }
    }
}
