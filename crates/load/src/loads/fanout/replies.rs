//! Frames of Centrifugo's client protocol in JSON: replies and pushes, one per line, and pings.

use serde::Deserialize;
use serde::de::IgnoredAny;

/// A ping of Centrifugo's protocol; the answer is the same text.
pub(super) const PING: &[u8] = b"{}";

/// The protocol of a connection's server. It is known after the server's reply to `connect`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ServerProtocol {
    /// Messages of any form, one per frame.
    #[default]
    Any,
    Centrifugo {
        /// Whether the client must answer pings.
        wants_pongs: bool,
    },
}

#[derive(Deserialize)]
struct Reply {
    #[serde(default)]
    id: u32,
    connect: Option<Connect>,
    error: Option<IgnoredAny>,
    push: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Connect {
    // Every connect reply of Centrifugo has this field. It is required, so that messages of other
    // servers are not mistaken for a connect reply.
    #[serde(rename = "client")]
    _client: IgnoredAny,
    #[serde(default)]
    pong: bool,
}

/// A line other than a publication of the run.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ProtocolLine {
    /// The connection uses Centrifugo's protocol from now on.
    Connected(ServerProtocol),
    Done,
    Refused,
    Other,
}

pub(super) fn read(line: &[u8], protocol: ServerProtocol) -> ProtocolLine {
    let Ok(reply) = serde_json::from_slice::<Reply>(line) else {
        return ProtocolLine::Other;
    };
    match (reply.connect, protocol) {
        (Some(connect), _) => ProtocolLine::Connected(ServerProtocol::Centrifugo {
            wants_pongs: connect.pong,
        }),
        (None, ServerProtocol::Any) => ProtocolLine::Other,
        _ if reply.id == 0 || reply.push.is_some() => ProtocolLine::Other,
        _ if reply.error.is_some() => ProtocolLine::Refused,
        _ => ProtocolLine::Done,
    }
}

/// Returns whether a frame certainly contains exactly one message.
#[inline]
pub(super) fn is_one(data: &[u8]) -> bool {
    memchr::memchr(b'\n', data).is_none()
}

/// Returns the messages of a frame. Each line is a message if the protocol is Centrifugo's or all lines are JSON objects.
/// Otherwise, the whole frame is one message.
pub(super) fn split(data: &[u8], protocol: ServerProtocol) -> impl Iterator<Item = &[u8]> {
    let is_object = |line: &[u8]| line.starts_with(b"{") && line.ends_with(b"}");
    let are_lines =
        !is_one(data) && (protocol != ServerProtocol::Any || lines(data).all(is_object));
    let (split, whole) = match are_lines {
        true => (Some(lines(data)), None),
        false => (None, Some(data)),
    };
    split.into_iter().flatten().chain(whole)
}

fn lines(data: &[u8]) -> impl Iterator<Item = &[u8]> {
    let lines = data.split(|byte| *byte == b'\n');
    lines.filter(|line| !line.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CENTRIFUGO: ServerProtocol = ServerProtocol::Centrifugo { wants_pongs: true };

    #[test]
    fn frames_are_split_where_they_hold_lines() {
        let count = |data: &[u8], protocol| split(data, protocol).count();
        assert_eq!(count(b"{}\n{\"push\":{}}\n", ServerProtocol::Any), 2);
        assert_eq!(count(b"{}", ServerProtocol::Any), 1);
        assert_eq!(count(b"", ServerProtocol::Any), 1);
        // Indented JSON and plain text are one message each.
        assert_eq!(count(b"{\n \"a\": 1\n}", ServerProtocol::Any), 1);
        assert_eq!(count(b"one\ntwo", ServerProtocol::Any), 1);
        // A truncated line does not prevent the other lines from being split.
        assert_eq!(count(b"{\"push\":{\n{}", CENTRIFUGO), 2);
    }

    #[test]
    fn replies() {
        let connected =
            |pong| ProtocolLine::Connected(ServerProtocol::Centrifugo { wants_pongs: pong });
        for (line, protocol, expected) in [
            (
                r#"{"id":1,"connect":{"client":"a","pong":true}}"#,
                ServerProtocol::Any,
                connected(true),
            ),
            (
                r#"{"id":1,"connect":{"client":"a","ping":25}}"#,
                ServerProtocol::Any,
                connected(false),
            ),
            (
                r#"{"id":1,"connect":{"name":"a"}}"#,
                ServerProtocol::Any,
                ProtocolLine::Other,
            ),
            (r#"{"id":2,"subscribe":{}}"#, CENTRIFUGO, ProtocolLine::Done),
            (
                r#"{"id":2,"subscribe":{}}"#,
                ServerProtocol::Any,
                ProtocolLine::Other,
            ),
            (
                r#"{"id":2,"error":{"code":103}}"#,
                CENTRIFUGO,
                ProtocolLine::Refused,
            ),
            (
                r#"{"push":{"channel":"a","pub":{}}}"#,
                CENTRIFUGO,
                ProtocolLine::Other,
            ),
            ("hello", CENTRIFUGO, ProtocolLine::Other),
        ] {
            assert_eq!(read(line.as_bytes(), protocol), expected, "{line}");
        }
    }
}
