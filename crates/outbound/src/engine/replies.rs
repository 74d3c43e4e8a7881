//! Converts the server's replies and the messages of its feed to the engine's types.

use std::sync::Arc;

use bytes::Bytes;
use redis::Value;
use veche_types::{Epoch, Position};

/// Returns the bytes of a string; `None` for a value of another type.
pub(super) fn bytes(value: Value) -> Option<Vec<u8>> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        Value::SimpleString(text) => Some(text.into_bytes()),
        Value::Okay => Some(b"OK".to_vec()),
        _ => None,
    }
}

pub(super) fn text(value: Value) -> Option<String> {
    String::from_utf8(bytes(value)?).ok()
}

pub(super) fn number(value: &Value) -> Option<i64> {
    match value {
        Value::Int(number) => Some(*number),
        _ => None,
    }
}

/// Returns the elements of a list; for a map, each name followed by its value. Returns `None` for a value of another
/// type.
pub(super) fn list(value: Value) -> Option<std::vec::IntoIter<Value>> {
    match value {
        Value::Array(list) | Value::Set(list) => Some(list.into_iter()),
        Value::Map(pairs) => {
            let flat: Vec<_> = pairs
                .into_iter()
                .flat_map(|(one, two)| [one, two])
                .collect();
            Some(flat.into_iter())
        }
        _ => None,
    }
}

/// Parses a position in the form `epoch:offset`; `None` if it is malformed.
pub(super) fn position(text: &[u8]) -> Option<Position> {
    let text = str::from_utf8(text).ok()?;
    let (epoch, offset) = text.split_once(':')?;
    Some(Position {
        epoch: Epoch::from_bits(epoch.parse().ok()?),
        offset: offset.parse().ok()?,
    })
}

/// Returns the entries of a stream, in the order of the reply; `None` if `value` is malformed.
pub(super) fn entries(value: Value) -> Option<Vec<(u64, Bytes)>> {
    list(value)?.map(entry).collect()
}

fn entry(value: Value) -> Option<(u64, Bytes)> {
    let mut parts = list(value)?;
    let id = text(parts.next()?)?;
    let (offset, _) = id.split_once('-')?;
    let mut fields = list(parts.next()?)?;
    let data = bytes(fields.nth(1)?)?;
    Some((offset.parse().ok()?, data.into()))
}

/// A message of a topic.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TopicMessage {
    /// The channel, if it differs from the topic.
    pub(super) channel: Option<Arc<str>>,
    /// The message's position, and the offset before it.
    pub(super) place: Option<(Position, u64)>,
    /// The encoded publication, as the publishing node sent it.
    pub(super) data: Bytes,
}

/// Decodes a message of `publish.lua`, which consists of: a head with the length and the name of the channel, if the channel
/// differs from the topic; `u` for a publication without a position, or `p` and the position; the publication.
pub(super) fn message(bytes: &Bytes) -> Option<TopicMessage> {
    let mut rest = &bytes[..];
    let mut channel = None;
    if rest.first()?.is_ascii_digit() {
        let length = until_colon(&mut rest)?.parse().ok()?;
        let (name, behind) = rest.split_at_checked(length)?;
        channel = Some(str::from_utf8(name).ok()?.into());
        rest = behind;
    }
    let (kind, behind) = rest.split_first()?;
    rest = behind;
    let place = match kind {
        b'u' => None,
        b'p' => {
            let epoch = until_colon(&mut rest)?.parse().ok()?;
            let offset: u64 = until_colon(&mut rest)?.parse().ok()?;
            let position = Position {
                epoch: Epoch::from_bits(epoch),
                offset,
            };
            // The Redis engine assigns consecutive offsets.
            Some((position, offset.checked_sub(1)?))
        }
        _ => return None,
    };
    Some(TopicMessage {
        channel,
        place,
        data: bytes.slice_ref(rest),
    })
}

fn until_colon<'a>(rest: &mut &'a [u8]) -> Option<&'a str> {
    let end = rest.iter().take(21).position(|byte| *byte == b':')?;
    let text = str::from_utf8(&rest[..end]).ok()?;
    *rest = &rest[end + 1..];
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(epoch: u64, offset: u64) -> Position {
        Position {
            epoch: Epoch::from_bits(epoch),
            offset,
        }
    }

    #[test]
    fn messages_are_read() {
        let read = |text: &'static str| message(&Bytes::from_static(text.as_bytes()));
        let found = read("p7:42:data").expect("one");
        assert_eq!(found.place, Some((at(7, 42), 41)));
        assert_eq!((found.channel, &found.data[..]), (None, &b"data"[..]));
        let found = read("6:news:1u:p").expect("one");
        assert_eq!(found.channel.as_deref(), Some("news:1"));
        assert_eq!((found.place, &found.data[..]), (None, &b":p"[..]));
        for text in [
            "",
            "x",
            "p7",
            "p7:",
            "p7:x:d",
            "p7:0:d",
            "9:ab",
            "6news",
            "99999999999999999999999:u",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn positions_are_read() {
        assert_eq!(position(b"7:42"), Some(at(7, 42)));
        for text in [&b""[..], b"7", b"7:", b":7", b"7:-1", b"\xff:1"] {
            assert_eq!(position(text), None, "{text:?}");
        }
    }
}
