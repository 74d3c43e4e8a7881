//! Protobuf encoding of commands and replies: tables of fields map each message to the JSON value that the JSON
//! encoding has.
//!
//! This module shares nothing with the server's codec except the protocol definition.

use serde_json::{Map, Value};

use crate::Failure;
use crate::failure::promise;

/// The fields of a message: number, name, and type.
type Fields = &'static [(u32, &'static str, Kind)];

#[derive(Clone, Copy)]
enum Kind {
    Number,
    Flag,
    Text,
    /// Bytes. In this simulator they contain text.
    Data,
    Message(Fields),
    /// A repeated field whose elements are messages.
    List(Fields),
    Map(Fields),
    /// A map from strings to strings.
    Texts,
}

use Kind::{Data, Flag, List, Message, Number, Text, Texts};

const COMMAND: Fields = &[
    (1, "id", Number),
    (4, "connect", Message(CONNECT_REQUEST)),
    (5, "subscribe", Message(SUBSCRIBE_REQUEST)),
    (6, "unsubscribe", Message(&[(1, "channel", Text)])),
    (
        7,
        "publish",
        Message(&[(1, "channel", Text), (2, "data", Data)]),
    ),
    (8, "presence", Message(&[(1, "channel", Text)])),
    (
        10,
        "history",
        Message(&[(1, "channel", Text), (7, "limit", Number)]),
    ),
    (
        13,
        "rpc",
        Message(&[(1, "data", Data), (2, "method", Text)]),
    ),
];

const CONNECT_REQUEST: Fields = &[
    (1, "token", Text),
    (3, "subs", Kind::Map(SUBSCRIBE_REQUEST)),
];

const SUBSCRIBE_REQUEST: Fields = &[
    (1, "channel", Text),
    (2, "token", Text),
    (3, "recover", Flag),
    (6, "epoch", Text),
    (7, "offset", Number),
    (11, "join_leave", Flag),
    (12, "delta", Text),
];

const REPLY: Fields = &[
    (1, "id", Number),
    (
        2,
        "error",
        Message(&[
            (1, "code", Number),
            (2, "message", Text),
            (3, "temporary", Flag),
        ]),
    ),
    (4, "push", Message(PUSH)),
    (5, "connect", Message(CONNECT)),
    (6, "subscribe", Message(SUBSCRIBE)),
    (7, "unsubscribe", Message(&[])),
    (8, "publish", Message(&[])),
    (9, "presence", Message(&[(1, "presence", Kind::Map(INFO))])),
    (11, "history", Message(HISTORY)),
    (13, "rpc", Message(&[(1, "data", Data)])),
];

const PUSH: Fields = &[
    (2, "channel", Text),
    (4, "pub", Message(PUBLICATION)),
    (5, "join", Message(&[(1, "info", Message(INFO))])),
    (6, "leave", Message(&[(1, "info", Message(INFO))])),
    (
        7,
        "unsubscribe",
        Message(&[(2, "code", Number), (3, "reason", Text)]),
    ),
    (
        11,
        "disconnect",
        Message(&[(1, "code", Number), (2, "reason", Text)]),
    ),
];

const INFO: Fields = &[(1, "user", Text), (2, "client", Text)];

const PUBLICATION: Fields = &[
    (4, "data", Data),
    (5, "info", Message(INFO)),
    (6, "offset", Number),
    (7, "tags", Texts),
    (8, "delta", Flag),
    (9, "time", Number),
    (10, "channel", Text),
];

const CONNECT: Fields = &[
    (1, "client", Text),
    (2, "version", Text),
    (3, "expires", Flag),
    (4, "ttl", Number),
    (6, "subs", Kind::Map(SUBSCRIBE)),
    (7, "ping", Number),
    (8, "pong", Flag),
    (9, "session", Text),
    (10, "node", Text),
    (11, "time", Number),
];

const SUBSCRIBE: Fields = &[
    (1, "expires", Flag),
    (2, "ttl", Number),
    (3, "recoverable", Flag),
    (6, "epoch", Text),
    (7, "publications", List(PUBLICATION)),
    (8, "recovered", Flag),
    (9, "offset", Number),
    (10, "positioned", Flag),
    (12, "was_recovering", Flag),
    (13, "delta", Flag),
];

const HISTORY: Fields = &[
    (1, "publications", List(PUBLICATION)),
    (2, "epoch", Text),
    (3, "offset", Number),
];

/// Appends a length-prefixed command.
pub(crate) fn command(out: &mut Vec<u8>, value: &Value) {
    let message = encode(COMMAND, value);
    put(out, message.len() as u64);
    out.extend_from_slice(&message);
}

/// Returns the replies in a message.
pub(crate) fn replies(mut bytes: &[u8]) -> Result<Vec<Value>, Failure> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let whole = bytes;
        let reply = delimited(&mut bytes).and_then(|message| decode(REPLY, message));
        promise!(reply.is_some(), "replies are Protobuf", "{whole:?}");
        all.extend(reply);
    }
    Ok(all)
}

/// Removes and returns the complete replies.
pub(crate) fn whole_replies(bytes: &mut Vec<u8>) -> Result<Vec<Value>, Failure> {
    let mut rest = &bytes[..];
    let mut taken = 0;
    while delimited(&mut rest).is_some() {
        taken = bytes.len() - rest.len();
    }
    let whole: Vec<_> = bytes.drain(..taken).collect();
    replies(&whole)
}

/// Encodes an envelope of commands that are already encoded in Protobuf.
pub(crate) fn envelope(node: &str, session: &str, commands: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put_bytes(&mut out, 1, node.as_bytes());
    put_bytes(&mut out, 2, session.as_bytes());
    put_bytes(&mut out, 3, commands);
    out
}

fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn put_bytes(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    put(out, u64::from(number) << 3 | 2);
    put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn encode(fields: Fields, value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    for (number, name, kind) in fields {
        let Some(value) = value.get(name) else {
            continue;
        };
        match kind {
            Number | Flag => {
                put(&mut out, u64::from(*number) << 3);
                let flag = value.as_bool().map(u64::from);
                put(&mut out, flag.or(value.as_u64()).unwrap_or(0));
            }
            Text => put_bytes(&mut out, *number, value.as_str().unwrap_or("").as_bytes()),
            Data => put_bytes(&mut out, *number, value.to_string().as_bytes()),
            Message(fields) => put_bytes(&mut out, *number, &encode(fields, value)),
            Kind::Map(fields) => {
                for (key, value) in value.as_object().into_iter().flatten() {
                    let mut entry = Vec::new();
                    put_bytes(&mut entry, 1, key.as_bytes());
                    put_bytes(&mut entry, 2, &encode(fields, value));
                    put_bytes(&mut out, *number, &entry);
                }
            }
            // Lists and maps do not occur in commands.
            List(_) | Texts => {}
        }
    }
    out
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for place in 0..10 {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(first & 0x7f) << (7 * place);
        if first & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn delimited<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(varint(bytes)?).ok()?;
    let (message, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(message)
}

/// Decodes a message. Returns `None` if the bytes don't form a message with these fields.
fn decode(fields: Fields, mut bytes: &[u8]) -> Option<Value> {
    let mut object = Map::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes)?;
        let (number, wire) = ((key >> 3) as u32, key & 7);
        let (_, name, kind) = fields.iter().find(|(one, ..)| *one == number)?;
        if let Number | Flag = kind {
            let value = (wire == 0).then(|| varint(&mut bytes))??;
            let is_flag = matches!(kind, Flag);
            let value = if is_flag {
                (value != 0).into()
            } else {
                value.into()
            };
            object.insert((*name).to_owned(), value);
            continue;
        }
        let inner = (wire == 2).then(|| delimited(&mut bytes))??;
        match kind {
            Kind::Map(_) | Texts => {
                let (key, value) = entry(*kind, inner)?;
                let map = object.entry(*name).or_insert_with(|| Map::new().into());
                map.as_object_mut()?.insert(key, value);
            }
            List(fields) => {
                let list = object
                    .entry(*name)
                    .or_insert_with(|| Value::Array(Vec::new()));
                list.as_array_mut()?.push(decode(fields, inner)?);
            }
            Message(fields) => {
                object.insert((*name).to_owned(), decode(fields, inner)?);
            }
            Number | Flag | Text | Data => {
                let text = std::str::from_utf8(inner).ok()?;
                object.insert((*name).to_owned(), text.into());
            }
        }
    }
    Some(object.into())
}

fn entry(kind: Kind, mut bytes: &[u8]) -> Option<(String, Value)> {
    let (mut key, mut value) = (String::new(), Value::Null);
    while !bytes.is_empty() {
        let number = varint(&mut bytes)? >> 3;
        let inner = delimited(&mut bytes)?;
        match (number, kind) {
            (1, _) => key = std::str::from_utf8(inner).ok()?.to_owned(),
            (_, Kind::Map(fields)) => value = decode(fields, inner)?,
            _ => value = std::str::from_utf8(inner).ok()?.into(),
        }
    }
    Some((key, value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_reply_is_read_as_the_definition_has_it() {
        // id 3, subscribe { epoch "e", publications [{ data "{}", offset 300 }], recovered true }
        let publication = [0x22, 2, b'{', b'}', 0x30, 0xac, 0x02];
        let mut subscribe = vec![0x32, 1, b'e', 0x3a, publication.len() as u8];
        subscribe.extend_from_slice(&publication);
        subscribe.extend_from_slice(&[0x40, 1]);
        let mut reply = vec![0x08, 3, 0x32, subscribe.len() as u8];
        reply.extend_from_slice(&subscribe);
        let mut message = vec![reply.len() as u8];
        message.extend_from_slice(&reply);
        message.push(0);
        let expected = json!({ "id": 3, "subscribe": {
            "epoch": "e",
            "publications": [{ "data": "{}", "offset": 300 }],
            "recovered": true,
        }});
        assert_eq!(replies(&message), Ok(vec![expected, json!({})]));
        message.pop();
        message.pop();
        assert!(replies(&message).is_err());
    }

    #[test]
    fn a_command_is_written_as_the_definition_has_it() {
        let mut out = Vec::new();
        command(
            &mut out,
            &json!({ "id": 300, "publish": { "channel": "a", "data": [1] } }),
        );
        let expected = [
            3 + 2 + 3 + 5,
            0x08,
            0xac,
            0x02,
            0x3a,
            8,
            0x0a,
            1,
            b'a',
            0x12,
            3,
            b'[',
            b'1',
            b']',
        ];
        assert_eq!(out, expected);
        out.clear();
        command(&mut out, &json!({}));
        assert_eq!(out, [0]);
    }
}
