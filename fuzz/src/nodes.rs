//! Any bytes as a message of another node. No panic; what is read is written again, and that is read as the same; the number
//! in the header of what is ignored can be followed.

use veche_nodes::{Envelope, Followed};

/// Runs one input; panics on a finding.
pub fn run(input: &[u8]) {
    let mut followed = Followed::default();
    match Envelope::decode(input) {
        Ok(envelope) => {
            followed.arrived(
                envelope.source,
                envelope.sequence,
                envelope.message.is_numbered(),
            );
            let again = envelope.encode().expect("what was read can be written");
            assert_eq!(Envelope::decode(&again), Ok(envelope));
        }
        Err(ignored) => {
            if let Some(header) = ignored.header() {
                followed.arrived(header.source, header.sequence, header.is_numbered());
            }
        }
    }
}
