//! The server side of a WebSocket, with blocking I/O over any stream.

use std::io::{ErrorKind, Read, Write};

use veche_proto::http::{self, parse_head};
use veche_proto::websocket::{
    Codecs, Decoder, FrameEvent, MessageKind, MessageLimits, Role, encode_close, encode_message,
    handshake,
};

const LIMITS: MessageLimits = MessageLimits {
    message_bytes_max: 16 << 20,
    fragments_max: 1 << 10,
    inflate_ratio_max: 0,
};

/// An action of a client.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Message(MessageKind, Vec<u8>),
    /// No data arrived within the socket's read timeout.
    Quiet,
    /// The client has disconnected, with or without a close frame.
    Gone,
}

pub(crate) struct WebSocket<S> {
    pub(crate) stream: S,
    /// The raw handshake request.
    pub(crate) request: String,
    decoder: Decoder,
    codecs: Codecs,
    input: Vec<u8>,
}

impl<S: Read + Write> WebSocket<S> {
    /// Performs the handshake and selects the first offered subprotocol; `None` if the client
    /// disconnects.
    pub(crate) fn accept(stream: S) -> Option<Self> {
        let (mut websocket, response) = Self::handshake(stream)?;
        websocket.stream.write_all(&response).ok()?;
        Some(websocket)
    }

    /// Performs the handshake except for sending the response, which the caller must do.
    pub(crate) fn handshake(mut stream: S) -> Option<(Self, Vec<u8>)> {
        let mut input = Vec::new();
        let end = loop {
            let end = input.windows(4).position(|four| four == b"\r\n\r\n");
            if let Some(at) = end {
                break at + 4;
            }
            let mut bytes = [0; 4096];
            match stream.read(&mut bytes) {
                Ok(count) if count > 0 => input.extend_from_slice(&bytes[..count]),
                _ => return None,
            }
        };
        let rest = input.split_off(end);
        let head =
            parse_head(&input, &http::HeadLimits::default()).expect("the tester speaks HTTP");
        let upgrade = handshake::read(&head)
            .expect("the tester keeps to RFC 6455")
            .expect("an upgrade");
        let mut response = Vec::new();
        handshake::write_response(&mut response, upgrade.key, upgrade.protocols().next(), None);
        let request = String::from_utf8(input.clone()).expect("a request of ASCII");
        let websocket = Self {
            stream,
            request,
            decoder: Decoder::new(Role::Server, None),
            codecs: Codecs::new(),
            input: rest,
        };
        Some((websocket, response))
    }

    /// Returns the target of the request.
    pub(crate) fn target(&self) -> &str {
        self.request.split(' ').nth(1).expect("a request line")
    }

    pub(crate) fn next(&mut self) -> Next {
        loop {
            while !self.input.is_empty() {
                let decoded = self
                    .decoder
                    .decode(&mut self.input, &mut self.codecs, &LIMITS);
                let (taken, event) = decoded.expect("the tester keeps to RFC 6455");
                let next = match event {
                    Some(FrameEvent::Message { kind, data }) => {
                        Some(Next::Message(kind, data.to_vec()))
                    }
                    Some(FrameEvent::Close { .. }) => Some(Next::Gone),
                    Some(FrameEvent::Ping(_) | FrameEvent::Pong(_)) | None => None,
                };
                self.input.drain(..taken);
                match next {
                    Some(Next::Gone) => {
                        let mut out = Vec::new();
                        encode_close(&mut out, Some(1000), "", None);
                        let _ = self.stream.write_all(&out);
                        return Next::Gone;
                    }
                    Some(next) => return next,
                    None => {}
                }
            }
            let mut bytes = [0; 64 << 10];
            match self.stream.read(&mut bytes) {
                Ok(0) => return Next::Gone,
                Ok(count) => self.input.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Next::Quiet,
                Err(_) => return Next::Gone,
            }
        }
    }

    /// Returns the next message, if any.
    pub(crate) fn message(&mut self) -> Option<(MessageKind, Vec<u8>)> {
        match self.next() {
            Next::Message(kind, data) => Some((kind, data)),
            Next::Quiet | Next::Gone => None,
        }
    }

    /// Sends a message. Errors are ignored, since the client may have disconnected.
    pub(crate) fn send(&mut self, kind: MessageKind, data: &[u8]) {
        let _ = self.stream.write_all(&frame(kind, data));
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.send(MessageKind::Text, text.as_bytes());
    }

    /// Echoes every message until the client closes.
    pub(crate) fn echo(mut self) {
        while let Some((kind, data)) = self.message() {
            self.send(kind, &data);
        }
    }
}

/// Returns an encoded message of a server.
pub(crate) fn frame(kind: MessageKind, data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    encode_message(&mut out, kind, data, None);
    out
}
