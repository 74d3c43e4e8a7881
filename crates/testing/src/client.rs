//! A simulated peer: the remote end of one connection, with the data that it has received.
//!
//! It sends and parses real bytes. As a client it uses HTTP, WebSocket frames, or the line protocol of back ends; as a
//! server it accepts WebSockets that applications dial. The test's expectations are checked elsewhere.

use std::collections::VecDeque;

use veche_net::{ConnectionId, RemoteState, Simulated};
use veche_proto::http::{self, HeadScan, read_head};
use veche_proto::websocket::handshake;
use veche_proto::websocket::{
    Codecs, Decoder, FrameEvent, MessageKind, MessageLimits, Opcode, Role, encode_close,
    encode_control, encode_message,
};

use veche_script::Plain;
use veche_types::codes::CloseCode;

use super::response::CompleteResponse;

/// The peer accepts messages of any length that the server sends.
const LIMITS: MessageLimits = MessageLimits {
    message_bytes_max: 1 << 30,
    fragments_max: 1 << 20,
    inflate_ratio_max: 0,
};

/// The mask of a client's frames; it need not be random in a simulation.
const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

/// An item received by a client.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ReceivedItem {
    Message {
        kind: MessageKind,
        data: Vec<u8>,
    },
    /// The end of the connection.
    Closed {
        code: u16,
        reason: String,
    },
}

/// The state of a handshake.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum OpeningState {
    UnderWay,
    Open { protocol: Option<String> },
    Refused(CompleteResponse),
    Failed(String),
}

enum Speaks {
    Shaking {
        key: String,
        protocols: String,
    },
    /// As a server: waits for the handshake request.
    Serving(Welcome),
    WebSocket(Decoder),
    Http {
        is_head: bool,
    },
    Lines,
    Nothing,
}

/// The response of a simulated server to a handshake.
#[derive(Clone, Debug, Default)]
pub(super) struct Welcome {
    pub(super) protocol: Option<String>,
    /// The status and body of a refusal; `None` to accept.
    pub(super) refusal: Option<(u16, Vec<u8>)>,
}

/// A simulated peer of the server: a client, a back end, or the server of an outgoing WebSocket.
pub(super) struct TestClient {
    pub(super) id: ConnectionId,
    speaks: Speaks,
    /// The mask of sent frames; `None` for a server, whose frames are not masked.
    mask: Option<[u8; 4]>,
    /// As a server: the handshake request that was received.
    pub(super) request: Plain,
    received: Vec<u8>,
    pub(super) opening: OpeningState,
    pub(super) items: VecDeque<ReceivedItem>,
    /// The response to the client's request.
    pub(super) response: Option<Result<CompleteResponse, String>>,
    /// Lines received by a back end.
    pub(super) lines: VecDeque<String>,
    has_closed: bool,
    has_received_close: bool,
}

impl TestClient {
    fn new(id: ConnectionId, speaks: Speaks) -> Self {
        Self {
            id,
            speaks,
            mask: Some(MASK),
            request: Plain::Nil,
            received: Vec::new(),
            opening: OpeningState::UnderWay,
            items: VecDeque::new(),
            response: None,
            lines: VecDeque::new(),
            has_closed: false,
            has_received_close: false,
        }
    }

    /// Starts a WebSocket handshake.
    pub(super) fn open(
        id: ConnectionId,
        network: &mut Simulated,
        host: &str,
        target: &str,
        protocols: &str,
        headers: &[(String, String)],
    ) -> Self {
        let key = handshake::new_key([7; 16]);
        let mut bytes = Vec::new();
        let headers = headers.iter();
        let headers = headers.map(|(name, value)| (name.as_str(), value.as_str()));
        handshake::write_request(&mut bytes, host, target, &key, protocols, None, headers);
        network.write(id, bytes);
        let protocols = protocols.to_owned();
        Self::new(id, Speaks::Shaking { key, protocols })
    }

    /// Sends a request, given as bytes.
    pub(super) fn ask(
        id: ConnectionId,
        network: &mut Simulated,
        bytes: Vec<u8>,
        is_head: bool,
    ) -> Self {
        network.write(id, bytes);
        Self::new(id, Speaks::Http { is_head })
    }

    /// Creates a back end on a push listener.
    pub(super) fn back_end(id: ConnectionId) -> Self {
        Self::new(id, Speaks::Lines)
    }

    /// Creates a server that was dialed.
    pub(super) fn serve(id: ConnectionId, welcome: Welcome) -> Self {
        Self {
            mask: None,
            ..Self::new(id, Speaks::Serving(welcome))
        }
    }

    /// Sends a message; returns `false` if the connection is closed.
    pub(super) fn send(&self, network: &mut Simulated, kind: MessageKind, data: &[u8]) -> bool {
        if !self.is_open() {
            return false;
        }
        let mut bytes = Vec::new();
        encode_message(&mut bytes, kind, data, self.mask);
        network.write(self.id, bytes);
        true
    }

    /// Starts the closing handshake.
    pub(super) fn close(&mut self, network: &mut Simulated, code: u16, reason: &str) {
        if self.is_open() {
            self.has_closed = true;
            self.write_close(network, Some(code), reason);
        }
    }

    /// Resets the connection without a closing handshake.
    pub(super) fn drop(&mut self, network: &mut Simulated) {
        network.reset(self.id);
        self.end(CloseCode::Abnormal.code(), "");
    }

    /// Returns whether messages can be sent.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.speaks, Speaks::WebSocket(_)) && !self.has_closed && !self.has_received_close
    }

    fn write_close(&self, network: &mut Simulated, code: Option<u16>, reason: &str) {
        let mut bytes = Vec::new();
        encode_close(&mut bytes, code, reason, self.mask);
        network.write(self.id, bytes);
    }

    /// Processes the data received since the last call, and sends the answers that the protocol requires, such as pongs.
    pub(super) fn hear(&mut self, network: &mut Simulated, codecs: &mut Codecs) {
        if matches!(self.speaks, Speaks::Nothing) {
            return;
        }
        let before = self.received.len();
        let state = network.read(self.id, &mut self.received);
        let has_ended = state != RemoteState::Open;
        if self.received.len() == before && !has_ended {
            return;
        }
        match &self.speaks {
            Speaks::Shaking { key, protocols } => {
                let (key, protocols) = (key.clone(), protocols.clone());
                self.hear_handshake(&key, &protocols, has_ended);
                if matches!(self.speaks, Speaks::WebSocket(_)) {
                    self.hear_frames(network, codecs);
                }
            }
            Speaks::Serving(welcome) => {
                let welcome = welcome.clone();
                self.answer_handshake(network, welcome);
                if matches!(self.speaks, Speaks::WebSocket(_)) {
                    self.hear_frames(network, codecs);
                }
            }
            Speaks::WebSocket(_) => self.hear_frames(network, codecs),
            Speaks::Http { is_head } => {
                self.response =
                    CompleteResponse::read(&self.received, *is_head, has_ended).transpose();
            }
            Speaks::Lines => self.hear_lines(),
            Speaks::Nothing => {}
        }
        let is_answered = self.response.is_some()
            || matches!(
                self.opening,
                OpeningState::Refused(_) | OpeningState::Failed(_)
            ) && !matches!(self.speaks, Speaks::Nothing);
        if is_answered {
            network.forget(self.id);
            self.speaks = Speaks::Nothing;
        } else if has_ended {
            // The server has closed its direction of the connection, so the client closes the other direction.
            network.finish(self.id);
            if matches!(self.speaks, Speaks::WebSocket(_)) {
                self.end(CloseCode::Abnormal.code(), "");
            }
            if state == RemoteState::Closed {
                network.forget(self.id);
                self.speaks = Speaks::Nothing;
            }
        }
    }

    fn hear_handshake(&mut self, key: &str, protocols: &str, has_ended: bool) {
        match handshake::read_response(&self.received, key, protocols, None) {
            Ok(None) if has_ended => {
                self.opening =
                    OpeningState::Failed("the connection ended without a response".to_owned());
            }
            Ok(None) => {}
            Ok(Some((taken, accepted))) => {
                let protocol = accepted.protocol.map(str::to_owned);
                self.opening = OpeningState::Open { protocol };
                self.speaks = Speaks::WebSocket(Decoder::new(Role::Client, None));
                self.received.drain(..taken);
            }
            Err(handshake::ResponseError::Status(_)) => {
                match CompleteResponse::read(&self.received, false, has_ended) {
                    Ok(Some(response)) => self.opening = OpeningState::Refused(response),
                    Ok(None) => {}
                    Err(words) => self.opening = OpeningState::Failed(words),
                }
            }
            Err(error) => self.opening = OpeningState::Failed(error.to_string()),
        }
    }

    /// Answers a handshake, as a server.
    fn answer_handshake(&mut self, network: &mut Simulated, welcome: Welcome) {
        let mut scan = HeadScan::default();
        let received = std::mem::take(&mut self.received);
        let read = read_head(&mut scan, &received, &http::HeadLimits::default());
        let (head, taken) = match read {
            Ok(None) => {
                self.received = received;
                return;
            }
            Ok(Some(read)) => read,
            Err(error) => {
                self.opening = OpeningState::Failed(error.reason.to_owned());
                return;
            }
        };
        let headers = head.headers();
        let headers = headers.map(|(name, value)| {
            let value = Plain::Bytes(value.to_vec());
            (name.to_ascii_lowercase(), value)
        });
        self.request = Plain::Map(headers.collect());
        let key = match handshake::read(&head) {
            Ok(Some(upgrade)) => upgrade.key.to_owned(),
            _ => {
                self.opening =
                    OpeningState::Failed("the request is not a WebSocket handshake".to_owned());
                return;
            }
        };
        if let Some((status, body)) = welcome.refusal {
            let length = body.len();
            let head = format!("HTTP/1.1 {status} No\r\nContent-Length: {length}\r\n\r\n");
            network.write(self.id, [head.into_bytes(), body].concat());
            network.finish(self.id);
            self.speaks = Speaks::Nothing;
            self.opening = OpeningState::Failed("refused".to_owned());
            return;
        }
        let mut response = Vec::new();
        let protocol = welcome.protocol;
        handshake::write_response(&mut response, &key, protocol.as_deref(), None);
        network.write(self.id, response);
        self.opening = OpeningState::Open { protocol };
        self.speaks = Speaks::WebSocket(Decoder::new(Role::Server, None));
        self.received = received[taken..].to_vec();
    }

    fn hear_frames(&mut self, network: &mut Simulated, codecs: &mut Codecs) {
        let Speaks::WebSocket(decoder) = &mut self.speaks else {
            return;
        };
        let mask = self.mask;
        let mut received = std::mem::take(&mut self.received);
        let mut rest = &mut received[..];
        let mut close = None;
        let mut pongs = Vec::new();
        while !rest.is_empty() {
            let taken = match decoder.decode(rest, codecs, &LIMITS) {
                Ok((taken, event)) => {
                    match event {
                        Some(FrameEvent::Message { kind, data }) => {
                            let data = data.to_vec();
                            self.items.push_back(ReceivedItem::Message { kind, data });
                        }
                        Some(FrameEvent::Ping(data)) => {
                            encode_control(&mut pongs, Opcode::Pong, data, mask);
                        }
                        Some(FrameEvent::Close { code, reason }) => {
                            close = Some((code, reason.to_owned()));
                        }
                        Some(FrameEvent::Pong(_)) | None => {}
                    }
                    taken
                }
                Err(error) => {
                    close = Some((
                        Some(error.close_code()),
                        format!("the server broke the protocol: {error}"),
                    ));
                    rest.len()
                }
            };
            rest = &mut std::mem::take(&mut rest)[taken..];
        }
        if !self.has_closed {
            network.write(self.id, pongs);
        }
        if let Some((code, reason)) = close {
            if !std::mem::replace(&mut self.has_closed, true) {
                self.write_close(network, code, "");
            }
            self.end(code.unwrap_or(CloseCode::NoCode.code()), &reason);
        }
    }

    fn hear_lines(&mut self) {
        while let Some(end) = self.received.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.received.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line).trim_end().to_owned();
            self.lines.push_back(line);
        }
    }

    /// Records the end of the connection, once.
    fn end(&mut self, code: u16, reason: &str) {
        if !std::mem::replace(&mut self.has_received_close, true) {
            let reason = reason.to_owned();
            self.items.push_back(ReceivedItem::Closed { code, reason });
        }
    }
}
