//! The client's side of the wire: handshake, frames and lines, or Protobuf instead of lines.

use serde_json::Value;
use veche_proto::websocket::{
    self, Codecs, Decoder, FrameEvent, MessageKind, MessageLimits, Opcode, Role,
};

use crate::Failure;
use crate::failure::promise;
use crate::protobuf;

const MASK: Option<[u8; 4]> = Some([0x12, 0x34, 0x56, 0x78]);

/// The message limits of a client. The server sends a long reply as one fragment per 32 KiB.
const LIMITS: MessageLimits = MessageLimits {
    message_bytes_max: 1 << 24,
    fragments_max: (1 << 24) / (32 << 10),
    inflate_ratio_max: 0,
};

/// The encoding of commands and replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WireEncoding {
    Json,
    Protobuf,
}

/// A parsed part of the server's output.
#[derive(Debug)]
pub(crate) enum ServerFrame {
    /// The status of the handshake response.
    Status(u16),
    /// A line of a message, or its Protobuf equivalent.
    Line(Value),
    Ping(Vec<u8>),
    Close(Option<u16>, String),
}

/// Received data that is not parsed yet.
pub(crate) struct Reader {
    /// The head of the handshake response; `None` once it is complete.
    head: Option<Vec<u8>>,
    /// Whether the handshake was refused. Further bytes are then the body of the response.
    is_refused: bool,
    encoding: WireEncoding,
    decoder: Decoder,
    codecs: Codecs,
}

impl Reader {
    pub(crate) fn new(encoding: WireEncoding) -> Self {
        Self {
            head: Some(Vec::new()),
            is_refused: false,
            encoding,
            decoder: Decoder::new(Role::Client, None),
            codecs: Codecs::default(),
        }
    }

    /// Parses received bytes into frames; an incomplete rest is stored.
    pub(crate) fn read(&mut self, mut bytes: Vec<u8>) -> Result<Vec<ServerFrame>, Failure> {
        let mut frames = Vec::new();
        if let Some(head) = &mut self.head {
            head.extend_from_slice(&bytes);
            let Some(end) = head.windows(4).position(|four| four == b"\r\n\r\n") else {
                return Ok(frames);
            };
            let line = String::from_utf8_lossy(&head[..end.min(32)]).into_owned();
            let status = line
                .strip_prefix("HTTP/1.1 ")
                .and_then(|rest| rest.get(..3));
            let status = status.and_then(|status| status.parse().ok());
            promise!(status.is_some(), "responses are HTTP", "{line:?}");
            frames.push(ServerFrame::Status(status.unwrap_or_default()));
            bytes = head.split_off(end + 4);
            self.head = None;
            self.is_refused = status != Some(101);
        }
        if self.is_refused {
            return Ok(frames);
        }
        let mut rest = &mut bytes[..];
        while !rest.is_empty() {
            let decoded = self.decoder.decode(rest, &mut self.codecs, &LIMITS);
            let (taken, event) = decoded.map_err(|error| Failure {
                name: "frames are good".to_owned(),
                detail: format!("{error:?}"),
            })?;
            match event {
                Some(FrameEvent::Message { kind, data }) => {
                    let is_binary = kind == MessageKind::Binary;
                    promise!(
                        is_binary == (self.encoding == WireEncoding::Protobuf),
                        "JSON goes as text, Protobuf as bytes",
                        "{data:?}"
                    );
                    if is_binary {
                        frames.extend(protobuf::replies(data)?.into_iter().map(ServerFrame::Line));
                        rest = &mut rest[taken..];
                        continue;
                    }
                    for line in data.split(|byte| *byte == b'\n') {
                        let value = serde_json::from_slice(line).map_err(|error| Failure {
                            name: "lines are JSON".to_owned(),
                            detail: format!("{error}: {}", String::from_utf8_lossy(line)),
                        })?;
                        frames.push(ServerFrame::Line(value));
                    }
                }
                Some(FrameEvent::Ping(data)) => frames.push(ServerFrame::Ping(data.to_vec())),
                Some(FrameEvent::Pong(_)) => {}
                Some(FrameEvent::Close { code, reason }) => {
                    frames.push(ServerFrame::Close(code, reason.to_owned()));
                }
                None => {}
            }
            rest = &mut rest[taken..];
        }
        Ok(frames)
    }
}

/// Returns a WebSocket handshake for a path with its query. `more` are further header fields, each with its line break.
pub(crate) fn handshake(path: &str, more: &str) -> Vec<u8> {
    format!(
        "GET {path} HTTP/1.1\r\nHost: sim.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{more}\r\n"
    )
    .into_bytes()
}

/// Appends a command; an empty one answers a ping.
pub(crate) fn command(out: &mut Vec<u8>, encoding: WireEncoding, command: &Value) {
    match encoding {
        WireEncoding::Json => {
            let line = command.to_string();
            websocket::encode_message(out, MessageKind::Text, line.as_bytes(), MASK);
        }
        WireEncoding::Protobuf => {
            let mut message = Vec::new();
            protobuf::command(&mut message, command);
            websocket::encode_message(out, MessageKind::Binary, &message, MASK);
        }
    }
}

pub(crate) fn pong(out: &mut Vec<u8>, data: &[u8]) {
    websocket::encode_control(out, Opcode::Pong, data, MASK);
}

pub(crate) fn close(out: &mut Vec<u8>, code: Option<u16>) {
    websocket::encode_close(out, code, "", MASK);
}
