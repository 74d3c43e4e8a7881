//! Pins the serialised form of version 1.0: the recorded messages (vectors) must stay readable forever, and messages
//! must still be encoded to the same bytes.
//!
//! With `VECHE_BLESS=1` the test writes the file of vectors. The file of a released version must
//! never be overwritten.

mod samples;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::{env, fs};

use veche_nodes::{Envelope, VERSION};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors/1.0.txt");

/// Number of message bytes per line of the file; each byte is written as two hexadecimal digits.
const LINE_BYTES: usize = 40;

fn written() -> String {
    let mut text = String::from(
        "# Messages between nodes as version 1.0 encodes them: a name, the message in Rust's words, the bytes.\n",
    );
    for (name, envelope) in samples::all() {
        let bytes = envelope.encode().expect("a message that can be encoded");
        write!(text, "\n[{name}]\n{envelope:?}\n").expect("a text");
        for line in bytes.chunks(LINE_BYTES) {
            line.iter()
                .for_each(|byte| write!(text, "{byte:02x}").expect("a text"));
            text.push('\n');
        }
    }
    text
}

/// Returns the bytes of each vector by its name.
fn vectors(text: &str) -> BTreeMap<&str, Vec<u8>> {
    let blocks = text.split("\n\n").skip(1);
    blocks
        .map(|block| {
            let mut lines = block.lines();
            let name = lines.next().expect("a name");
            let name = name.trim_matches(['[', ']']);
            let hex: String = lines.skip(1).collect();
            let bytes = hex.as_bytes().chunks(2).map(|digits| {
                let digits = str::from_utf8(digits).expect("digits");
                u8::from_str_radix(digits, 16).expect("digits")
            });
            (name, bytes.collect())
        })
        .collect()
}

#[test]
fn version_1_0_is_written_and_read_as_ever() {
    if env::var_os("VECHE_BLESS").is_some() {
        fs::write(FILE, written()).expect("the file is written");
    }
    let text = fs::read_to_string(FILE).expect("the file of vectors");
    let vectors = vectors(&text);
    let samples = samples::all();
    assert_eq!(vectors.len(), samples.len());
    for (name, envelope) in samples {
        let bytes = &vectors[name];
        assert_eq!(Envelope::decode(bytes), Ok(envelope.clone()), "{name}");
        let again = envelope.encode().expect("a message that can be encoded");
        assert_eq!(&again, bytes, "{name}: {envelope:?}");
    }
    assert_eq!(
        VERSION,
        (1, 0),
        "a version of its own has a file of its own"
    );
}

#[test]
fn payloads_and_commands_are_in_the_bytes_as_they_are() {
    for (name, part) in [
        ("relay", &b"{\"id\":2,\"subscribe\":{}}\n\xff\0"[..]),
        ("app, send", &[0, 1, 0xfe, 0xff]),
        ("app, send", "привет".as_bytes()),
        ("instruct, subscribe", br#"{"a":1}"#),
        ("instruct, subscribe", &[0, 0xff, 0x80]),
    ] {
        let samples = samples::all();
        let (_, envelope) = samples.iter().find(|one| one.0 == name).expect("a sample");
        let bytes = envelope.encode().expect("a message that can be encoded");
        let is_there = bytes.windows(part.len()).any(|window| window == part);
        assert!(is_there, "{name}: {part:?}");
    }
}
