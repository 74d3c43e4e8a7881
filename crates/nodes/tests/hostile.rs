//! Tests of invalid input: messages of a later version, bytes of another program, and random bytes.

#[path = "../../../fuzz/src/nodes.rs"]
#[expect(unreachable_pub, reason = "public in the fuzz crate")]
mod fuzz;
mod samples;

use proptest::prelude::*;
use serde::Serialize;
use veche_nodes::{
    Caller, DecodeError, DecodeErrorCounts, EncodeError, Envelope, EnvelopeHeader,
    MESSAGE_BYTES_MAX, NodeId, NodeMessage, Ticket,
};
use veche_types::{ConnectionId, WorkerId};

/// Length of the header in bytes.
const HEADER: usize = 28;

/// Kinds of messages, by their numbers on the wire.
const INSTRUCT: u16 = 0x8001;
const USER_STATUS: u16 = 5;
const LATER_COMMAND: u16 = 0xffff;

/// Returns a message of the given kind from a node of version 1.`minor`.
fn message(minor: u8, kind: u16, body: &[u8]) -> Vec<u8> {
    let mut bytes = b"vche\x01".to_vec();
    bytes.push(minor);
    bytes.extend_from_slice(&kind.to_be_bytes());
    bytes.extend_from_slice(&7_u64.to_be_bytes());
    bytes.extend_from_slice(&3_u64.to_be_bytes());
    bytes.extend_from_slice(&0_u32.to_be_bytes());
    bytes.extend_from_slice(body);
    bytes
}

fn body(value: &impl Serialize) -> Vec<u8> {
    rmp_serde::to_vec_named(value).expect("a value that can be encoded")
}

fn header(minor: u8, kind: u16) -> EnvelopeHeader {
    EnvelopeHeader {
        minor,
        kind,
        source: NodeId(7),
        sequence: 3,
        within_ms: 0,
    }
}

#[derive(Serialize)]
struct LaterQuery {
    colour: Vec<&'static str>,
    user: &'static str,
    caller: LaterCaller,
    deep: LaterDeep,
}

#[derive(Clone, Copy, Serialize)]
struct LaterCaller {
    session: LaterSession,
    ticket: u32,
    worker: u16,
    node: &'static str,
}

#[derive(Clone, Copy, Serialize)]
struct LaterSession {
    index: u32,
    generation: u32,
}

#[derive(Serialize)]
struct LaterDeep {
    list: Vec<Vec<Option<f64>>>,
}

const LATER_CALLER: LaterCaller = LaterCaller {
    session: LaterSession {
        index: 1,
        generation: 2,
    },
    ticket: 3,
    worker: 4,
    node: "n",
};

#[derive(Serialize)]
struct LaterCommand {
    user: &'static str,
    instruction: LaterInstruction,
}

#[derive(Serialize)]
struct LaterInstruction {
    action: LaterDeed,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum LaterDeed {
    Paint { colour: &'static str },
    Unsubscribe { channel: &'static str },
}

#[test]
fn fields_of_a_later_version_are_ignored_and_absent_ones_have_defaults() {
    let later = LaterQuery {
        colour: vec!["red", "green"],
        user: "ann",
        caller: LATER_CALLER,
        deep: LaterDeep {
            list: vec![vec![None, Some(1.5)]],
        },
    };
    let read = Envelope::decode(&message(9, USER_STATUS, &body(&later))).expect("a message");
    let NodeMessage::UserStatus(query) = read.message else {
        panic!("{:?}", read.message);
    };
    let session = ConnectionId {
        index: 1,
        generation: 2,
    };
    let caller = Caller {
        worker: WorkerId(4),
        session,
        ticket: Ticket(3),
    };
    assert_eq!((&*query.user, query.caller), ("ann", caller));

    let command = LaterCommand {
        user: "ann",
        instruction: LaterInstruction {
            action: LaterDeed::Unsubscribe { channel: "news" },
        },
    };
    let read = Envelope::decode(&message(0, INSTRUCT, &body(&command))).expect("a message");
    let NodeMessage::Instruct(command) = read.message else {
        panic!("{:?}", read.message);
    };
    assert!(command.instruction.applies_to_all() && command.caller.is_none());
}

#[test]
fn unknown_messages_are_ignored_but_count_in_the_sequence() {
    let paint = |minor| {
        let instruction = LaterInstruction {
            action: LaterDeed::Paint { colour: "red" },
        };
        let user = "ann";
        message(minor, INSTRUCT, &body(&LaterCommand { user, instruction }))
    };
    let status = |bytes: &[u8]| message(0, USER_STATUS, bytes);
    let mut other_major = status(&[]);
    other_major[4] = 2;
    let mut counts = DecodeErrorCounts::default();
    for (bytes, expected) in [
        (
            message(1, LATER_COMMAND, b"?"),
            DecodeError::Unknown(header(1, LATER_COMMAND)),
        ),
        (message(0, 999, b""), DecodeError::Unknown(header(0, 999))),
        (paint(1), DecodeError::Unknown(header(1, INSTRUCT))),
        (paint(0), DecodeError::Malformed(header(0, INSTRUCT))),
        (status(b""), DecodeError::Malformed(header(0, USER_STATUS))),
        (
            status(&[0x80]),
            DecodeError::Malformed(header(0, USER_STATUS)),
        ),
        (other_major, DecodeError::OtherVersion(2)),
        (Vec::new(), DecodeError::Foreign),
        (b"vche\x01\0".to_vec(), DecodeError::Foreign),
        (
            b"*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n".to_vec(),
            DecodeError::Foreign,
        ),
        (status(&vec![0; MESSAGE_BYTES_MAX]), DecodeError::TooLarge),
    ] {
        assert_eq!(Envelope::decode(&bytes), Err(expected), "{expected}");
        counts.add(expected);
    }
    let expected = DecodeErrorCounts {
        foreign: 3,
        too_large: 1,
        other_version: 1,
        unknown: 3,
        malformed: 3,
    };
    assert_eq!(counts, expected);
    let later = DecodeError::Unknown(header(1, LATER_COMMAND));
    assert!(later.header().is_some_and(EnvelopeHeader::is_sequenced));
    assert_eq!(DecodeError::Foreign.header(), None);
}

#[test]
fn nothing_follows_a_message_and_nothing_is_missing() {
    for (name, envelope) in samples::all() {
        let whole = envelope.encode().expect("a message that can be encoded");
        for length in 0..whole.len() {
            let read = Envelope::decode(&whole[..length]);
            assert!(read.is_err(), "{name}: {length} of {}", whole.len());
        }
        if envelope.message == NodeMessage::Leave {
            continue;
        }
        let more = [&whole[..], &[0xc0]].concat();
        assert!(Envelope::decode(&more).is_err(), "{name}");
    }
}

#[test]
fn deep_nesting_is_refused() {
    for (name, envelope) in samples::all() {
        let whole = envelope.encode().expect("a message that can be encoded");
        if envelope.message == NodeMessage::Leave {
            continue;
        }
        for byte in [0x91, 0xdd, 0x81] {
            let deep = [&whole[..HEADER], &vec![byte; 1 << 20]].concat();
            assert!(Envelope::decode(&deep).is_err(), "{name}");
        }
        // An additional field would be ignored, but this one is nested too deeply.
        let mut more = whole.clone();
        more[HEADER] += 1;
        more.extend_from_slice(b"\xa1x");
        more.extend_from_slice(&vec![0x91; 1 << 20]);
        assert!(Envelope::decode(&more).is_err(), "{name}");
    }
}

#[test]
fn a_message_that_is_too_large_is_not_sent() {
    let error = samples::too_large().encode().expect_err("too large");
    assert!(matches!(error, EncodeError::TooLarge(_)), "{error}");
}

fn sample() -> impl Strategy<Value = Vec<u8>> {
    let samples: Vec<_> = samples::all()
        .into_iter()
        .map(|(_, envelope)| envelope.encode().expect("a message that can be encoded"))
        .collect();
    prop::sample::select(samples)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..Default::default() })]

    #[test]
    fn any_bytes_are_read_or_ignored(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        fuzz::run(&bytes);
        for kind in (0..12).flat_map(|kind| [kind, 0x8000 | kind]) {
            fuzz::run(&message(0, kind, &bytes));
        }
    }

    #[test]
    fn damaged_messages_are_read_or_ignored(
        mut bytes in sample(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
    ) {
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        fuzz::run(&bytes);
    }

    #[test]
    fn encoded_messages_are_decoded(
        user in ".{0,40}",
        commands in prop::collection::vec(any::<u8>(), 0..2000),
        code in any::<u16>(),
        numbers in any::<(u64, u64, u32)>(),
    ) {
        for message in [
            samples::instruct(&user, samples::disconnect(code)),
            samples::relay(&commands),
        ] {
            let (source, sequence, within_ms) = numbers;
            let source = NodeId(source);
            let sent = Envelope { source, sequence, within_ms, message };
            let bytes = sent.encode().expect("a message that can be encoded");
            prop_assert_eq!(Envelope::decode(&bytes), Ok(sent));
        }
    }
}

#[test]
fn fuzzing_findings_are_read_or_ignored() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/nodes");
    let files = std::fs::read_dir(folder).expect("the corpus");
    let mut count = 0;
    for file in files {
        fuzz::run(&std::fs::read(file.expect("a file").path()).expect("its bytes"));
        count += 1;
    }
    assert!(count > 0, "no corpus");
}
