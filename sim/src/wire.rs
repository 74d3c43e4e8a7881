//! A client's side of the wire: its handshake, frames and lines.

use serde_json::Value;
use veche_proto::websocket::{self, Codecs, Decoder, Event, Limits, MessageKind, Opcode, Role};

use crate::Failure;
use crate::failure::promise;

const MASK: Option<[u8; 4]> = Some([0x12, 0x34, 0x56, 0x78]);

const LIMITS: Limits = Limits {
    message_bytes_max: 1 << 24,
    fragments_max: 1,
    inflate_ratio_max: 0,
};

/// What came.
#[derive(Debug)]
pub(crate) enum Said {
    /// The handshake was answered so.
    Status(u16),
    /// A line of a message.
    Line(Value),
    Ping(Vec<u8>),
    Close(Option<u16>, String),
}

/// What a client has received and not understood yet.
pub(crate) struct Reader {
    /// Of the answer to the handshake; `None` when it has come.
    head: Option<Vec<u8>>,
    /// There is no WebSocket: what comes is the body of a response.
    is_refused: bool,
    decoder: Decoder,
    codecs: Codecs,
}

impl Reader {
    pub(crate) fn new() -> Self {
        Self {
            head: Some(Vec::new()),
            is_refused: false,
            decoder: Decoder::new(Role::Client, None),
            codecs: Codecs::default(),
        }
    }

    /// Understands what has come.
    pub(crate) fn read(&mut self, mut bytes: Vec<u8>) -> Result<Vec<Said>, Failure> {
        let mut said = Vec::new();
        if let Some(head) = &mut self.head {
            head.extend_from_slice(&bytes);
            let Some(end) = head.windows(4).position(|four| four == b"\r\n\r\n") else {
                return Ok(said);
            };
            let line = String::from_utf8_lossy(&head[..end.min(32)]).into_owned();
            let status = line
                .strip_prefix("HTTP/1.1 ")
                .and_then(|rest| rest.get(..3));
            let status = status.and_then(|status| status.parse().ok());
            promise!(status.is_some(), "responses are HTTP", "{line:?}");
            said.push(Said::Status(status.unwrap_or_default()));
            bytes = head.split_off(end + 4);
            self.head = None;
            self.is_refused = status != Some(101);
        }
        if self.is_refused {
            return Ok(said);
        }
        let mut rest = &mut bytes[..];
        while !rest.is_empty() {
            let decoded = self.decoder.decode(rest, &mut self.codecs, &LIMITS);
            let (taken, event) = decoded.map_err(|error| Failure {
                name: "frames are good".to_owned(),
                detail: format!("{error:?}"),
            })?;
            match event {
                Some(Event::Message {
                    kind: MessageKind::Text,
                    data,
                }) => {
                    for line in data.split(|byte| *byte == b'\n') {
                        let value = serde_json::from_slice(line).map_err(|error| Failure {
                            name: "lines are JSON".to_owned(),
                            detail: format!("{error}: {}", String::from_utf8_lossy(line)),
                        })?;
                        said.push(Said::Line(value));
                    }
                }
                Some(Event::Message { .. }) => {
                    promise!(false, "JSON goes as text", "a binary message");
                }
                Some(Event::Ping(data)) => said.push(Said::Ping(data.to_vec())),
                Some(Event::Pong(_)) => {}
                Some(Event::Close { code, reason }) => {
                    said.push(Said::Close(code, reason.to_owned()));
                }
                None => {}
            }
            rest = &mut rest[taken..];
        }
        Ok(said)
    }
}

pub(crate) fn handshake() -> Vec<u8> {
    "GET /connection/websocket HTTP/1.1\r\nHost: sim.test\r\nConnection: Upgrade\r\n\
         Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        .as_bytes()
        .to_vec()
}

pub(crate) fn text(out: &mut Vec<u8>, line: &str) {
    websocket::encode_message(out, MessageKind::Text, line.as_bytes(), MASK);
}

pub(crate) fn pong(out: &mut Vec<u8>, data: &[u8]) {
    websocket::encode_control(out, Opcode::Pong, data, MASK);
}

pub(crate) fn close(out: &mut Vec<u8>, code: Option<u16>) {
    websocket::encode_close(out, code, "", MASK);
}
