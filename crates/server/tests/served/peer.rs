//! Servers that applications dial: they follow the protocol, or violate it on request.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

use rustls::crypto::ring;
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use veche_proto::http::{HeadLimits, parse_head};
use veche_proto::websocket::{
    Codecs, Decoder, FrameEvent, MessageKind, MessageLimits, Opcode, Role, encode_close,
    encode_control, encode_message, handshake,
};

use crate::support::SOON;

const LIMITS: MessageLimits = MessageLimits {
    message_bytes_max: 64 << 20,
    fragments_max: 1 << 20,
    inflate_ratio_max: 0,
};

/// An item received by a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PeerEvent {
    Message(MessageKind, Vec<u8>),
    Ping,
    Pong(Vec<u8>),
    Close(Option<u16>, String),
    End,
}

/// Serves each connection on a separate thread; connections are numbered from 0.
pub(crate) fn serve(serve: impl Fn(usize, TcpStream) + Send + Sync + 'static) -> SocketAddr {
    serve_at("127.0.0.1:0", serve).expect("a free port")
}

pub(crate) fn serve_at(
    address: &str,
    serve: impl Fn(usize, TcpStream) + Send + Sync + 'static,
) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(address)?;
    let address = listener.local_addr()?;
    let serve = Arc::new(serve);
    let count = AtomicUsize::new(0);
    thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let number = count.fetch_add(1, Relaxed);
            let serve = Arc::clone(&serve);
            let _ = socket.set_read_timeout(Some(SOON));
            let _ = socket.set_write_timeout(Some(SOON));
            thread::spawn(move || serve(number, socket));
        }
    });
    Ok(address)
}

/// The server's end of a connection dialed by Veche.
pub(crate) struct Peer<S> {
    pub(crate) socket: S,
    /// The head of the request.
    pub(crate) head: String,
    decoder: Decoder,
    codecs: Codecs,
    input: Vec<u8>,
}

impl<S: Read + Write> Peer<S> {
    /// Reads the request; `None` if the connection ends before the request is complete.
    pub(crate) fn meet(mut socket: S) -> Option<Self> {
        let mut input = Vec::new();
        while !input.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            socket.read_exact(&mut byte).ok()?;
            input.push(byte[0]);
        }
        Some(Self {
            socket,
            head: String::from_utf8(input).expect("text"),
            decoder: Decoder::new(Role::Server, None),
            codecs: Codecs::new(),
            input: Vec::new(),
        })
    }

    /// Reads the request and responds with a 101.
    pub(crate) fn accept(socket: S) -> Option<Self> {
        let mut peer = Self::meet(socket)?;
        peer.agree(None);
        Some(peer)
    }

    pub(crate) fn agree(&mut self, protocol: Option<&str>) {
        let head = parse_head(self.head.as_bytes(), &HeadLimits::default()).expect("a request");
        let upgrade = handshake::read(&head).expect("right").expect("an upgrade");
        let mut out = Vec::new();
        handshake::write_response(&mut out, upgrade.key, protocol, None);
        self.raw(&out);
    }

    /// Sends bytes; returns whether they could be sent.
    pub(crate) fn raw(&mut self, bytes: &[u8]) -> bool {
        self.socket
            .write_all(bytes)
            .and_then(|()| self.socket.flush())
            .is_ok()
    }

    pub(crate) fn say(&mut self, text: &str) -> bool {
        self.send(MessageKind::Text, text.as_bytes())
    }

    pub(crate) fn send(&mut self, kind: MessageKind, data: &[u8]) -> bool {
        let mut out = Vec::new();
        encode_message(&mut out, kind, data, None);
        self.raw(&out)
    }

    pub(crate) fn ping(&mut self, data: &[u8]) {
        let mut out = Vec::new();
        encode_control(&mut out, Opcode::Ping, data, None);
        self.raw(&out);
    }

    pub(crate) fn close(&mut self, code: u16, reason: &str) {
        let mut out = Vec::new();
        encode_close(&mut out, Some(code), reason, None);
        self.raw(&out);
    }

    /// Returns the next message, control frame or end of the connection.
    pub(crate) fn hear(&mut self) -> PeerEvent {
        loop {
            while !self.input.is_empty() {
                let decoded = self
                    .decoder
                    .decode(&mut self.input, &mut self.codecs, &LIMITS);
                let (taken, event) = decoded.expect("a client that keeps to the protocol");
                let received = event.map(|event| match event {
                    FrameEvent::Message { kind, data } => PeerEvent::Message(kind, data.to_vec()),
                    FrameEvent::Ping(_) => PeerEvent::Ping,
                    FrameEvent::Pong(data) => PeerEvent::Pong(data.to_vec()),
                    FrameEvent::Close { code, reason } => PeerEvent::Close(code, reason.to_owned()),
                });
                self.input.drain(..taken);
                if let Some(received) = received {
                    return received;
                }
            }
            let mut bytes = [0; 16 << 10];
            match self.socket.read(&mut bytes) {
                Ok(0) | Err(_) => return PeerEvent::End,
                Ok(count) => self.input.extend_from_slice(&bytes[..count]),
            }
        }
    }

    /// Echoes every message until the other side closes, and then answers the close.
    pub(crate) fn echo(&mut self) {
        loop {
            match self.hear() {
                PeerEvent::Message(kind, data) => _ = self.send(kind, &data),
                PeerEvent::Close(code, _) => {
                    self.close(code.unwrap_or(1000), "");
                    return;
                }
                PeerEvent::End => return,
                PeerEvent::Ping | PeerEvent::Pong(_) => {}
            }
        }
    }
}

/// Starts a TLS server with a self-signed certificate for `name`. Returns the server's address, and
/// the certificate as PEM.
pub(crate) fn serve_tls(
    name: &str,
    serve_one: impl Fn(StreamOwned<ServerConnection, TcpStream>) + Send + Sync + 'static,
) -> (SocketAddr, String) {
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).expect("a certificate");
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .expect("a certificate and its key");
    let config = Arc::new(config);
    let address = serve(move |_, socket| {
        let tls = ServerConnection::new(Arc::clone(&config)).expect("a server");
        serve_one(StreamOwned::new(tls, socket));
    });
    (address, made.cert.pem())
}
