//! Encodes the fuzzed client's commands and decodes the replies, in JSON and Protobuf.

use serde_json::Value;
use veche_proto::websocket::{Codecs, Decoder, FrameEvent, MessageKind, MessageLimits, Role};

use crate::connection::world::wire;

const LIMITS: MessageLimits = MessageLimits {
    message_bytes_max: 1 << 24,
    fragments_max: 1,
    inflate_ratio_max: 0,
};

/// One reply or push.
pub(super) struct Line {
    /// The id of the answered command; 0 for a push.
    pub(super) id: u32,
    /// The whole message, if the encoding is JSON.
    pub(super) json: Value,
}

/// Decodes the data that a client receives, however it is split.
pub(super) struct ReplyReader {
    is_json: bool,
    bytes: Vec<u8>,
    has_upgraded: bool,
    is_over: bool,
    decoder: Decoder,
    codecs: Codecs,
}

impl ReplyReader {
    pub(super) fn new(is_json: bool) -> Self {
        Self {
            is_json,
            bytes: Vec::new(),
            has_upgraded: false,
            is_over: false,
            decoder: Decoder::new(Role::Client, None),
            codecs: Codecs::default(),
        }
    }

    /// Returns the frame of a message with these commands.
    pub(super) fn message(&self, commands: &[Value]) -> Vec<u8> {
        if self.is_json {
            let lines: Vec<String> = commands.iter().map(Value::to_string).collect();
            return wire::text(&lines.join("\n"));
        }
        let mut message = Vec::new();
        for command in commands {
            let fields = fields("", command);
            put(&mut message, fields.len() as u64);
            message.extend(fields);
        }
        wire::message(MessageKind::Binary, &message)
    }

    /// Returns the messages that these bytes complete.
    pub(super) fn lines(&mut self, bytes: &[u8]) -> Vec<Line> {
        self.bytes.extend_from_slice(bytes);
        let mut lines = Vec::new();
        if !self.has_upgraded {
            let Some(end) = self.bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
                return lines;
            };
            // Nothing more is decoded after a refused handshake.
            self.is_over = !self.bytes.starts_with(b"HTTP/1.1 101");
            self.has_upgraded = true;
            self.bytes.drain(..end + 4);
            if self.is_over {
                self.bytes.clear();
            }
        }
        while !self.bytes.is_empty() {
            let decoded = self
                .decoder
                .decode(&mut self.bytes, &mut self.codecs, &LIMITS);
            let (taken, event) = decoded.expect("frames as a server may send them");
            match event {
                Some(FrameEvent::Message { kind, data }) => {
                    assert!(!self.is_over, "a message behind the end");
                    assert_eq!(kind == MessageKind::Text, self.is_json);
                    match self.is_json {
                        true => json_lines(data, &mut lines),
                        false => protobuf_lines(data, &mut lines),
                    }
                }
                Some(FrameEvent::Close { .. }) => self.is_over = true,
                Some(FrameEvent::Ping(_) | FrameEvent::Pong(_)) | None => {}
            }
            self.bytes.drain(..taken);
        }
        lines
    }
}

fn json_lines(message: &[u8], lines: &mut Vec<Line>) {
    let text = str::from_utf8(message).expect("text");
    for line in text.split('\n') {
        let json: Value = serde_json::from_str(line).expect("a line of JSON");
        let id = json["id"].as_u64().unwrap_or(0) as u32;
        lines.push(Line { id, json });
    }
}

fn protobuf_lines(mut message: &[u8], lines: &mut Vec<Line>) {
    while !message.is_empty() {
        let length = number(&mut message) as usize;
        let (mut reply, rest) = message.split_at(length);
        message = rest;
        // The id is the first field, if there is one.
        let id = match reply.split_first() {
            Some((0x08, rest)) => {
                reply = rest;
                number(&mut reply) as u32
            }
            _ => 0,
        };
        let json = Value::Null;
        lines.push(Line { id, json });
    }
}

fn number(bytes: &mut &[u8]) -> u64 {
    let mut number = 0;
    for place in 0.. {
        let (byte, rest) = bytes.split_first().expect("a number");
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << (7 * place);
        if *byte < 0x80 {
            break;
        }
    }
    number
}

fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Encodes the fields of a message called `of`.
fn fields(of: &str, message: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in message.as_object().into_iter().flatten() {
        let place = match (of, &**name) {
            ("", "id") => 1,
            ("", "connect") => 4,
            ("", "subscribe") => 5,
            ("", "unsubscribe") => 6,
            ("", "publish") => 7,
            ("", "presence") => 8,
            ("", "presence_stats") => 9,
            ("", "history") => 10,
            ("", "ping") => 11,
            ("", "rpc") => 13,
            ("", "refresh") => 14,
            ("", "sub_refresh") => 15,
            ("rpc", "data") | ("refresh", "token") | (_, "channel") => 1,
            (_, "data" | "key") | ("rpc", "method") | ("sub_refresh", "token") => 2,
            (_, "recover" | "cmp") => 3,
            (_, "val") => 4,
            (_, "epoch") => 6,
            (_, "offset" | "limit") => 7,
            (_, "reverse") => 9,
            (_, "join_leave") => 11,
            (_, "delta") => 12,
            (_, "tf") => 13,
            other => unreachable!("no field of ours: {other:?}"),
        };
        let bytes = match value {
            Value::Bool(_) | Value::Number(_) => {
                let number = value.as_i64().unwrap_or(i64::from(*value == true));
                put(&mut out, place << 3);
                put(&mut out, number as u64);
                continue;
            }
            Value::String(text) => text.clone().into_bytes(),
            value if name == "data" => value.to_string().into_bytes(),
            value => fields(name, value),
        };
        put(&mut out, place << 3 | 2);
        put(&mut out, bytes.len() as u64);
        out.extend(bytes);
    }
    out
}
