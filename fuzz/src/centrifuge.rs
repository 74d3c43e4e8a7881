//! Passes arbitrary bytes to the decoder of commands. The decoder must not panic, must keep its limits, and must find
//! the same commands wherever they are in a message. The commands' data are encoded as publications, in every form,
//! and decoded.
//!
//! The first byte of the input selects the encoding and the decoder; the rest is the message.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::value::RawValue;
use veche_centrifuge::{
    ClientRequest, Command, DecodeLimits, DeltaKind, Encoding, MalformedMessage, Publication,
    PublicationData, Push, PushBody,
};

const LIMITS: DecodeLimits = DecodeLimits {
    message_bytes_max: 64 * 1024,
    commands_max: 32,
};

type Read<'a> = Vec<Result<Command<'a>, MalformedMessage>>;

/// Runs one input; panics on a finding.
pub fn run(input: &[u8]) {
    let Some((choice, message)) = input.split_first() else {
        return;
    };
    let encoding = match choice & 1 {
        0 => Encoding::Json,
        _ => Encoding::Protobuf,
    };
    match (choice >> 1) & 3 {
        0 => {
            if let Ok(envelope) = encoding.emulation(message, LIMITS) {
                read_commands(encoding, &envelope.data);
            }
        }
        1 => {
            if let Ok(connect) = encoding.connect_request(message, LIMITS) {
                assert!(
                    connect.subs.len() <= message.len() && connect.headers.len() <= message.len()
                );
            }
        }
        _ => read_commands(encoding, message),
    }
    write_data(message);
}

fn read(encoding: Encoding, message: &[u8]) -> Read<'_> {
    let read: Read<'_> = encoding.commands(message, LIMITS).collect();
    assert!(read.len() <= LIMITS.commands_max + 1);
    let good = read.iter().take_while(|command| command.is_ok()).count();
    assert!(read.len() - good <= 1, "something follows an error");
    assert!(good <= LIMITS.commands_max);
    read
}

fn read_commands(encoding: Encoding, message: &[u8]) {
    let alone = read(encoding, message);
    for command in alone.iter().flatten() {
        assert!(
            command.id != 0 || !command.request.is_answered(),
            "no response is possible"
        );
        if let Some(data) = command.request.data() {
            assert!(message.as_ptr_range().contains(&data.bytes().as_ptr()));
            assert_eq!(
                encoding == Encoding::Json,
                matches!(data, PublicationData::Json(_))
            );
            write(data);
        }
    }
    // If a pong precedes the message, the same commands follow it, in both encodings.
    let pong = match encoding {
        Encoding::Json => b"{}\n".as_slice(),
        Encoding::Protobuf => &[0],
    };
    let behind = [pong, message].concat();
    let behind = read(encoding, &behind);
    if behind.len() <= LIMITS.commands_max && message.len() < LIMITS.message_bytes_max - 3 {
        let mut rest = behind.iter().flatten();
        let first = rest.next();
        assert!(first.is_none_or(|command| command.request == ClientRequest::Pong));
        assert!(rest.eq(alone.iter().flatten()));
    }
    // Some messages are refused as a whole, before any command is decoded.
    if matches!(
        alone[..],
        [Err(MalformedMessage::Utf8 | MalformedMessage::TooBig)]
    ) {
        return;
    }
    // A truncated message has no commands that the whole message lacks.
    for end in [
        message.len() / 3,
        message.len() / 2,
        message.len().saturating_sub(1),
    ] {
        let cut = read(encoding, &message[..end]);
        let good = cut.iter().flatten().count();
        assert!(cut.iter().flatten().eq(alone.iter().flatten().take(good)));
    }
}

/// Encodes the bytes as an application's data of each kind.
fn write_data(bytes: &[u8]) {
    write(PublicationData::Binary(bytes));
    write(PublicationData::of_bytes(bytes));
    if let Ok(text) = str::from_utf8(bytes) {
        write(PublicationData::Text(text));
    }
}

fn write(data: PublicationData<'_>) {
    for delta in [DeltaKind::Off, DeltaKind::Whole, DeltaKind::Patch] {
        let push = Push {
            channel: "c",
            body: PushBody::Publication(Publication {
                delta,
                ..Publication::new(data)
            }),
        };
        let mut out = Vec::new();
        Encoding::Json.write_bare_push(&mut out, &push);
        let line = str::from_utf8(&out).expect("JSON is text");
        assert!(!line.contains(['\n', '\r']));
        #[derive(serde::Deserialize)]
        struct Pushed<'a> {
            #[serde(borrow, rename = "pub")]
            publication: Published<'a>,
        }
        #[derive(serde::Deserialize)]
        struct Published<'a> {
            #[serde(borrow)]
            data: &'a RawValue,
        }
        let pushed: Pushed<'_> = serde_json::from_str(line).expect("JSON");
        same(data, delta, pushed.publication.data.get());
        out.clear();
        Encoding::Protobuf.write_bare_push(&mut out, &push);
        assert!(contains(&out, data.bytes()));
    }
}

/// Checks that a JSON client gets the given data.
fn same(data: PublicationData<'_>, delta: DeltaKind, raw: &str) {
    let string = |json: &str| serde_json::from_str::<String>(json).expect("a JSON string");
    match (data, delta) {
        (PublicationData::Json(json), DeltaKind::Off) => {
            assert_eq!(raw, json.replace(['\n', '\r'], "").trim())
        }
        (PublicationData::Text(text), DeltaKind::Whole) => assert_eq!(string(&string(raw)), text),
        (PublicationData::Binary(bytes), DeltaKind::Whole) => {
            assert_eq!(string(&string(raw)), STANDARD.encode(bytes))
        }
        (PublicationData::Binary(bytes), _) => assert_eq!(string(raw), STANDARD.encode(bytes)),
        _ => assert_eq!(string(raw).as_bytes(), data.bytes()),
    }
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    // In an encoded publication the data field is the last one, or is followed only by the flag of
    // a delta.
    [0, 2].into_iter().any(|behind| {
        bytes
            .len()
            .checked_sub(behind)
            .is_some_and(|end| bytes[..end].ends_with(part))
    })
}
