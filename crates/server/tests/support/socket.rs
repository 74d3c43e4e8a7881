//! A scriptable WebSocket client, which can also send malformed frames.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use socket2::{Domain, Type};
use veche_proto::websocket::{
    Codecs, Decoder, FrameEvent, MessageKind, MessageLimits, Opcode, Role, encode_close,
    encode_control, encode_message, handshake,
};

use super::{SOON, now};

const LIMITS: MessageLimits = MessageLimits {
    message_bytes_max: 16 << 20,
    fragments_max: 1 << 20,
    inflate_ratio_max: 0,
};
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const MASK: Option<[u8; 4]> = Some([0x37, 0xfa, 0x21, 0x3d]);

/// What a client has received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Text(String),
    Binary(Vec<u8>),
    Ping,
    Pong,
    Close(Option<u16>, String),
    /// The peer closed the connection with FIN.
    End,
    /// The peer closed the connection with RST.
    Reset,
    /// No frame arrived in time.
    Nothing,
}

/// Connects to `to` from the local address `address`.
pub(crate) fn connect_from(address: IpAddr, to: SocketAddr) -> TcpStream {
    let socket = socket2::Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket
        .bind(&SocketAddr::new(address, 0).into())
        .expect("an address of loopback");
    socket.connect(&to.into()).expect("the listener takes it");
    socket.set_read_timeout(Some(SOON)).expect("a socket");
    socket.into()
}

#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) socket: TcpStream,
    decoder: Decoder,
    codecs: Codecs,
    input: Vec<u8>,
    /// Whether `next` answers pings itself.
    pub(crate) answers_pings: bool,
}

impl Socket {
    /// Connects and performs the handshake; panics if it fails.
    #[track_caller]
    pub(crate) fn open(address: SocketAddr, target: &str) -> Self {
        Self::try_open(address, target).unwrap_or_else(|error| panic!("{target} opens: {error}"))
    }

    pub(crate) fn try_open(address: SocketAddr, target: &str) -> io::Result<Self> {
        Self::upgrade(TcpStream::connect(address)?, target, &[])
    }

    /// Performs the handshake on an existing connection.
    pub(crate) fn upgrade(
        mut socket: TcpStream,
        target: &str,
        headers: &[(&str, &str)],
    ) -> io::Result<Self> {
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(SOON))?;
        let mut request = Vec::new();
        handshake::write_request(
            &mut request,
            "localhost",
            target,
            KEY,
            "",
            None,
            headers.iter().copied(),
        );
        socket.write_all(&request)?;
        let mut input = Vec::new();
        loop {
            let answer =
                handshake::read_response(&input, KEY, "", None).map_err(io::Error::other)?;
            if let Some((size, _)) = answer {
                input.drain(..size);
                break;
            }
            fill(&mut socket, &mut input)?;
        }
        Ok(Self {
            socket,
            decoder: Decoder::new(Role::Client, None),
            codecs: Codecs::new(),
            input,
            answers_pings: true,
        })
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).expect("the server reads");
    }

    pub(crate) fn say(&mut self, text: &str) {
        let mut out = Vec::new();
        encode_message(&mut out, MessageKind::Text, text.as_bytes(), MASK);
        self.raw(&out);
    }

    pub(crate) fn pong(&mut self) {
        let mut out = Vec::new();
        encode_control(&mut out, Opcode::Pong, b"", MASK);
        let _ = self.socket.write_all(&out);
    }

    pub(crate) fn close(&mut self, code: u16) {
        let mut out = Vec::new();
        encode_close(&mut out, Some(code), "", MASK);
        let _ = self.socket.write_all(&out);
    }

    /// Performs the closing handshake.
    #[track_caller]
    pub(crate) fn leave(mut self) {
        self.close(1000);
        loop {
            match self.next() {
                Seen::Close(code, _) => assert_eq!(code, Some(1000)),
                Seen::End | Seen::Reset => return,
                Seen::Nothing => panic!("the server does not close"),
                _ => {}
            }
        }
    }

    /// Returns the next frame or the end of the connection. Pings are included only if they are not
    /// answered automatically.
    pub(crate) fn next(&mut self) -> Seen {
        self.within(SOON)
    }

    /// Returns the next frame or the end of the connection; [`Seen::Nothing`] if neither arrives within
    /// `time`.
    pub(crate) fn within(&mut self, time: Duration) -> Seen {
        let deadline = now() + time;
        loop {
            while !self.input.is_empty() {
                let decoded = self
                    .decoder
                    .decode(&mut self.input, &mut self.codecs, &LIMITS);
                let (taken, event) = decoded.expect("the server keeps to the protocol");
                let seen = event.map(|event| match event {
                    FrameEvent::Message {
                        kind: MessageKind::Text,
                        data,
                    } => Seen::Text(String::from_utf8(data.to_vec()).expect("checked")),
                    FrameEvent::Message {
                        kind: MessageKind::Binary,
                        data,
                    } => Seen::Binary(data.to_vec()),
                    FrameEvent::Ping(_) => Seen::Ping,
                    FrameEvent::Pong(_) => Seen::Pong,
                    FrameEvent::Close { code, reason } => Seen::Close(code, reason.to_owned()),
                });
                self.input.drain(..taken);
                match seen {
                    Some(Seen::Ping) if self.answers_pings => self.pong(),
                    Some(seen) => return seen,
                    None => {}
                }
            }
            let left = deadline.saturating_duration_since(now());
            if left.is_zero() {
                return Seen::Nothing;
            }
            self.socket.set_read_timeout(Some(left)).expect("a socket");
            if let Err(error) = fill(&mut self.socket, &mut self.input) {
                return match error.kind() {
                    io::ErrorKind::UnexpectedEof => Seen::End,
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Seen::Nothing,
                    _ => Seen::Reset,
                };
            }
        }
    }

    /// Returns the next message, which has to be text.
    #[track_caller]
    pub(crate) fn text(&mut self) -> String {
        match self.next() {
            Seen::Text(text) => text,
            other => panic!("expected a text, saw {other:?}"),
        }
    }

    /// Returns the next text message; if its text is `skipped`, returns the following one.
    #[track_caller]
    pub(crate) fn text_after(&mut self, skipped: &str) -> String {
        let text = self.text();
        if text == skipped { self.text() } else { text }
    }

    /// Skips everything up to the Close frame and returns its code; asserts that the connection ends
    /// after it.
    #[track_caller]
    pub(crate) fn closed(&mut self) -> u16 {
        loop {
            match self.next() {
                Seen::Close(Some(code), _) => {
                    self.close(code);
                    let end = self.next();
                    assert!(
                        matches!(end, Seen::End | Seen::Reset),
                        "{end:?} after the close"
                    );
                    return code;
                }
                Seen::Text(_) | Seen::Binary(_) | Seen::Ping | Seen::Pong => {}
                other => panic!("expected a close frame, saw {other:?}"),
            }
        }
    }

    /// Returns whether the server answers a ping.
    pub(crate) fn is_alive(&mut self) -> bool {
        let mut out = Vec::new();
        encode_control(&mut out, Opcode::Ping, b"?", MASK);
        self.socket.write_all(&out).is_ok() && self.next() == Seen::Pong
    }
}

fn fill(socket: &mut TcpStream, input: &mut Vec<u8>) -> io::Result<()> {
    let mut bytes = [0; 16 << 10];
    match socket.read(&mut bytes)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        count => {
            input.extend_from_slice(&bytes[..count]);
            Ok(())
        }
    }
}
