//! Every row of `vectors/websocket.json` is decoded complete, byte by byte and in random pieces. Its messages are
//! then encoded and decoded again in the other role.

use serde_json::Value;
use veche_proto::websocket::{
    Codecs, Decoder, Encoder, FrameEvent, MessageKind, MessageLimits, ProtocolError, Role, deflate,
};

#[derive(Debug, PartialEq, Eq, Clone)]
enum DecodedEvent {
    Message(MessageKind, Vec<u8>),
    Ping(Vec<u8>),
    Pong(Vec<u8>),
    Close(Option<u16>, String),
}

struct Row {
    role: Role,
    agreed: Option<deflate::DeflateParams>,
    limits: MessageLimits,
    wire: Vec<u8>,
    events: Vec<DecodedEvent>,
    error: Option<u16>,
    after: Option<usize>,
    midway: bool,
}

/// The events and the error of a row.
struct Outcome {
    decoded: Vec<DecodedEvent>,
    /// The error, and the number of bytes that were consumed before it.
    error: Option<(ProtocolError, usize)>,
    midway: bool,
}

#[test]
fn rows() {
    let rows: Vec<Value> = serde_json::from_str(include_str!("../vectors/websocket.json")).unwrap();
    let mut codecs = Codecs::new();
    let mut random = fastrand::Rng::with_seed(6455);
    for row in &rows {
        let name = row["name"].as_str().unwrap();
        let row = read(row);
        check(name, "whole", &row, &decode(&row, &mut codecs, |rest| rest));
        let bytewise = decode(&row, &mut codecs, |_| 1);
        check(name, "byte by byte", &row, &bytewise);
        if let Some(after) = row.after {
            let seen = bytewise.error.map(|(_, at)| at);
            assert_eq!(seen, Some(after), "{name}: when the error is seen");
        }
        for _ in 0..20 {
            let pieces = decode(&row, &mut codecs, |rest| random.usize(1..=rest));
            check(name, "in pieces", &row, &pieces);
        }
        encode_again(name, row, &mut codecs);
    }
}

fn check(name: &str, how: &str, row: &Row, outcome: &Outcome) {
    assert_eq!(outcome.decoded, row.events, "{name}, {how}");
    let code = outcome.error.map(|(error, _)| error.close_code());
    assert_eq!(code, row.error, "{name}, {how}: {:?}", outcome.error);
    assert_eq!(outcome.midway, row.midway, "{name}, {how}: midway");
}

/// Checks that the row's events, encoded and decoded again, are the same.
fn encode_again(name: &str, mut row: Row, codecs: &mut Codecs) {
    use veche_proto::websocket::{Opcode, encode_close, encode_control};
    let (sender, mask) = match row.role {
        Role::Server => (Role::Client, Some([0x37, 0xfa, 0x21, 0x3d])),
        Role::Client => (Role::Server, None),
    };
    let mut encoder = Encoder::new(sender, row.agreed);
    row.wire.clear();
    for each in &row.events {
        match each {
            DecodedEvent::Message(kind, data) => {
                encoder.encode(&mut row.wire, *kind, data, codecs, mask);
            }
            DecodedEvent::Ping(data) => encode_control(&mut row.wire, Opcode::Ping, data, mask),
            DecodedEvent::Pong(data) => encode_control(&mut row.wire, Opcode::Pong, data, mask),
            DecodedEvent::Close(code, reason) => encode_close(&mut row.wire, *code, reason, mask),
        }
    }
    (row.error, row.midway) = (None, false);
    let outcome = decode(&row, codecs, |rest| rest);
    check(name, "encoded again", &row, &outcome);
}

fn decode(row: &Row, codecs: &mut Codecs, mut next: impl FnMut(usize) -> usize) -> Outcome {
    let mut decoder = Decoder::new(row.role, row.agreed);
    let mut decoded = Vec::new();
    let mut given = 0;
    while given < row.wire.len() {
        let count = next(row.wire.len() - given);
        let mut input = row.wire[given..given + count].to_vec();
        given += count;
        let mut input = &mut input[..];
        while !input.is_empty() {
            let left = input.len();
            let (taken, event) = match decoder.decode(input, codecs, &row.limits) {
                Ok(progress) => progress,
                Err(error) => {
                    let error = Some((error, given));
                    return Outcome {
                        decoded,
                        error,
                        midway: decoder.is_midway(),
                    };
                }
            };
            match event {
                Some(FrameEvent::Message { kind, data }) => {
                    decoded.push(DecodedEvent::Message(kind, data.to_vec()));
                }
                Some(FrameEvent::Ping(data)) => decoded.push(DecodedEvent::Ping(data.to_vec())),
                Some(FrameEvent::Pong(data)) => decoded.push(DecodedEvent::Pong(data.to_vec())),
                Some(FrameEvent::Close { code, reason }) => {
                    decoded.push(DecodedEvent::Close(code, reason.to_owned()));
                }
                None => assert_eq!(taken, left, "without an event all is taken"),
            }
            input = &mut input[taken..];
        }
    }
    Outcome {
        decoded,
        error: None,
        midway: decoder.is_midway(),
    }
}

fn read(row: &Value) -> Row {
    let policy = deflate::DeflatePolicy {
        takeover: true,
        ..Default::default()
    };
    let number = |name: &str| row[name].as_u64().map(|number| number as usize);
    Row {
        role: match row["role"].as_str() {
            Some("server") => Role::Server,
            Some("client") => Role::Client,
            other => panic!("role {other:?}"),
        },
        agreed: row["deflate"]
            .as_str()
            .map(|offer| deflate::negotiate([offer].into_iter(), &policy).unwrap()),
        limits: MessageLimits {
            message_bytes_max: number("message_bytes_max").unwrap_or(1 << 20),
            fragments_max: number("fragments_max").unwrap_or(1000) as u32,
            inflate_ratio_max: 0,
        },
        wire: hex(row["wire"].as_str().unwrap()),
        events: row["events"]
            .as_array()
            .unwrap()
            .iter()
            .map(event)
            .collect(),
        error: number("error").map(|code| code as u16),
        after: number("after"),
        midway: row["midway"].as_bool().unwrap_or(false),
    }
}

fn event(event: &Value) -> DecodedEvent {
    let (name, value) = event
        .as_object()
        .unwrap()
        .iter()
        .find(|(name, _)| *name != "reason")
        .unwrap();
    let bytes = || hex(value.as_str().unwrap());
    match name.as_str() {
        "text" => DecodedEvent::Message(MessageKind::Text, value.as_str().unwrap().into()),
        "binary" => DecodedEvent::Message(MessageKind::Binary, bytes()),
        "zeros" => DecodedEvent::Message(
            MessageKind::Binary,
            vec![0; value.as_u64().unwrap() as usize],
        ),
        "ping" => DecodedEvent::Ping(bytes()),
        "pong" => DecodedEvent::Pong(bytes()),
        "close" => {
            let code = value.as_u64().map(|code| code as u16);
            DecodedEvent::Close(code, event["reason"].as_str().unwrap().to_owned())
        }
        other => panic!("event {other}"),
    }
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .chars()
        .filter(|c| *c != ' ')
        .map(|c| c.to_digit(16).unwrap() as u8)
        .collect();
    assert!(digits.len().is_multiple_of(2), "{text}");
    digits
        .chunks_exact(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect()
}
