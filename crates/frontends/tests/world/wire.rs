//! The client's side of the wire: encodes what clients send, and parses what they receive.

use veche_proto::websocket::{
    self, Codecs, Decoder, FrameEvent, MessageKind, MessageLimits, Opcode, Role,
};

use super::{PUBLIC, Peer, World};

const MASK: Option<[u8; 4]> = Some([0x12, 0x34, 0x56, 0x78]);

#[derive(Debug, PartialEq, Eq)]
pub struct Response {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Response {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }
}

/// Parses one response from the beginning of `bytes`; returns it and the remaining bytes. `has_body` has to be false
/// for the response to a HEAD request.
pub fn response(bytes: &[u8], has_body: bool) -> (Response, &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let end = bytes
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .unwrap_or_else(|| panic!("no head: {text:?}"));
    let head = std::str::from_utf8(&bytes[..end]).expect("text");
    let mut lines = head.split("\r\n");
    let line = lines.next().unwrap_or_default();
    let status = line
        .strip_prefix("HTTP/1.1 ")
        .and_then(|rest| rest.get(..3)?.parse().ok());
    let status = status.unwrap_or_else(|| panic!("no status line: {text:?}"));
    let headers: Vec<(String, String)> = lines
        .map(|line| {
            line.split_once(": ")
                .unwrap_or_else(|| panic!("no header: {line:?}"))
        })
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let mut response = Response {
        status,
        headers,
        body: String::new(),
    };
    let mut rest = &bytes[end + 4..];
    if has_body && response.header("transfer-encoding") == Some("chunked") {
        (response.body, rest) = chunked(rest);
        return (response, rest);
    }
    if has_body && !matches!(status, 100..200 | 204 | 304) {
        let length: usize = response
            .header("content-length")
            .expect("a length")
            .parse()
            .expect("a number");
        assert!(length <= rest.len(), "a body that is too short: {text:?}");
        response.body = String::from_utf8_lossy(&rest[..length]).into_owned();
        rest = &rest[length..];
    }
    (response, rest)
}

/// Parses a complete chunked body; returns it and the remaining bytes.
fn chunked(mut bytes: &[u8]) -> (String, &[u8]) {
    let mut body = Vec::new();
    loop {
        let mut ends = bytes.windows(2);
        let end = ends.position(|two| two == b"\r\n").expect("a length");
        let digits = std::str::from_utf8(&bytes[..end]).expect("digits");
        let length = usize::from_str_radix(digits, 16).expect("a length");
        let chunk = &bytes[end + 2..];
        body.extend_from_slice(&chunk[..length]);
        assert_eq!(chunk[length..length + 2], *b"\r\n");
        bytes = &chunk[length + 2..];
        if length == 0 {
            return (String::from_utf8(body).expect("text"), bytes);
        }
    }
}

/// Parses all responses in these bytes.
pub fn responses(mut bytes: &[u8]) -> Vec<Response> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let (response, rest) = response(bytes, true);
        found.push(response);
        bytes = rest;
    }
    found
}

pub fn statuses(bytes: &[u8]) -> Vec<u16> {
    responses(bytes)
        .iter()
        .map(|response| response.status)
        .collect()
}

/// A message or control frame that a WebSocket server has sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerMessage {
    Text(String),
    Binary(Vec<u8>),
    Ping,
    Pong(Vec<u8>),
    Close(Option<u16>, String),
}

/// Parses all messages and control frames in these bytes. The last one has to be complete.
pub fn server_messages(bytes: &[u8]) -> Vec<ServerMessage> {
    let (mut decoder, mut codecs) = (Decoder::new(Role::Client, None), Codecs::default());
    let limits = MessageLimits {
        message_bytes_max: 1 << 24,
        fragments_max: 1000,
        inflate_ratio_max: 0,
    };
    let mut bytes = bytes.to_vec();
    let mut rest = &mut bytes[..];
    let mut messages = Vec::new();
    while !rest.is_empty() {
        let length = rest.len();
        let (taken, event) = decoder
            .decode(rest, &mut codecs, &limits)
            .expect("frames as a server may send them");
        let is_end = taken == length;
        let event = event.map(|event| match event {
            FrameEvent::Message {
                kind: MessageKind::Text,
                data,
            } => ServerMessage::Text(String::from_utf8(data.to_vec()).expect("UTF-8")),
            FrameEvent::Message {
                kind: MessageKind::Binary,
                data,
            } => ServerMessage::Binary(data.to_vec()),
            FrameEvent::Ping(_) => ServerMessage::Ping,
            FrameEvent::Pong(data) => ServerMessage::Pong(data.to_vec()),
            FrameEvent::Close { code, reason } => ServerMessage::Close(code, reason.to_owned()),
        });
        assert!(event.is_some() || !is_end, "a message that is not whole");
        messages.extend(event);
        rest = &mut rest[taken..];
    }
    messages
}

/// Returns the text messages in these bytes. Panics if the bytes contain any other message or a control frame.
pub fn texts(bytes: &[u8]) -> Vec<String> {
    server_messages(bytes)
        .into_iter()
        .map(|message| match message {
            ServerMessage::Text(text) => text,
            other => panic!("not a text: {other:?}"),
        })
        .collect()
}

pub fn text(data: &str) -> Vec<u8> {
    message(MessageKind::Text, data.as_bytes())
}

pub fn message(kind: MessageKind, data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    websocket::encode_message(&mut out, kind, data, MASK);
    out
}

pub fn control(opcode: Opcode, data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    websocket::encode_control(&mut out, opcode, data, MASK);
    out
}

pub fn close(code: Option<u16>, reason: &str) -> Vec<u8> {
    let mut out = Vec::new();
    websocket::encode_close(&mut out, code, reason, MASK);
    out
}

/// Returns the request of a WebSocket handshake; `headers` are complete header lines.
pub fn handshake(target: &str, headers: &str) -> String {
    format!(
        "GET {target} HTTP/1.1\r\nHost: veche.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{headers}\r\n"
    )
}

pub fn get(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: veche.test\r\n\r\n")
}

pub fn post(target: &str, body: &str) -> String {
    format!(
        "POST {target} HTTP/1.1\r\nHost: veche.test\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

impl World {
    /// Opens a WebSocket on the public listener of a worker.
    pub fn open(&mut self, worker: usize, target: &str) -> Peer {
        self.open_on(worker, PUBLIC, target)
    }

    pub fn open_on(&mut self, worker: usize, listener: u16, target: &str) -> Peer {
        let peer = self.connect(worker, listener);
        self.send(peer, handshake(target, "").as_bytes());
        self.settle();
        let bytes = self.take(peer);
        let (response, rest) = response(&bytes, true);
        assert_eq!(
            (response.status, rest),
            (101, &b""[..]),
            "{}",
            response.body
        );
        peer
    }

    /// Sends bytes, runs turns until the world is idle, and returns the output.
    pub fn ask(&mut self, peer: Peer, bytes: impl AsRef<[u8]>) -> Vec<u8> {
        self.send(peer, bytes.as_ref());
        self.settle();
        self.take(peer)
    }
}
