//! A TLS client: rustls over a blocking socket, with HTTP and WebSocket inside.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, HandshakeKind, RootCertStore, StreamOwned,
    SupportedProtocolVersion,
};
use veche_proto::websocket::{
    Codecs, Decoder, FrameEvent, MessageKind, MessageLimits, Role, encode_close, encode_message,
    handshake,
};

use super::certificates::Authority;
use crate::support::SOON;

const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const MASK: Option<[u8; 4]> = Some([1, 2, 3, 4]);
const LIMITS: MessageLimits = MessageLimits {
    message_bytes_max: 16 << 20,
    fragments_max: 1 << 20,
    inflate_ratio_max: 0,
};

pub(super) type Versions = &'static [&'static SupportedProtocolVersion];

/// Returns a client configuration that trusts the authority, with a client certificate if given. It stores session
/// tickets.
pub(super) fn trust(
    authority: &Authority,
    versions: Versions,
    shown: Option<&Path>,
) -> Arc<ClientConfig> {
    trust_file(&authority.file(), versions, shown)
}

/// Returns a client configuration that trusts the authorities of a PEM file.
pub(super) fn trust_file(
    authorities: &Path,
    versions: Versions,
    shown: Option<&Path>,
) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for one in CertificateDer::pem_file_iter(authorities).expect("readable") {
        roots.add(one.expect("a certificate")).expect("good");
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(versions)
        .expect("versions")
        .with_root_certificates(roots);
    let mut config = match shown {
        None => builder.with_no_client_auth(),
        Some(shown) => {
            let chain = CertificateDer::pem_file_iter(shown.with_extension("pem"));
            let chain = chain.expect("readable").collect::<Result<_, _>>();
            let key = PrivateKeyDer::from_pem_file(shown.with_extension("key"));
            builder
                .with_client_auth_cert(chain.expect("PEM"), key.expect("PEM"))
                .expect("a pair")
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Arc::new(config)
}

/// A WebSocket client over TLS, after the handshake.
pub(super) struct Client {
    pub(super) stream: StreamOwned<ClientConnection, TcpStream>,
    decoder: Decoder,
    codecs: Codecs,
    input: Vec<u8>,
}

impl Client {
    /// Connects to a server name and completes the handshake.
    pub(super) fn open(
        address: SocketAddr,
        name: &str,
        trust: &Arc<ClientConfig>,
    ) -> io::Result<Self> {
        Self::over(TcpStream::connect(address)?, name, trust)
    }

    /// Completes the handshake on a connection that may have been used before.
    pub(super) fn over(
        mut socket: TcpStream,
        name: &str,
        trust: &Arc<ClientConfig>,
    ) -> io::Result<Self> {
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(SOON))?;
        let name = ServerName::try_from(name.to_owned()).expect("a name");
        let mut connection =
            ClientConnection::new(Arc::clone(trust), name).map_err(io::Error::other)?;
        while connection.is_handshaking() {
            connection.complete_io(&mut socket)?;
        }
        Ok(Self {
            stream: StreamOwned::new(connection, socket),
            decoder: Decoder::new(Role::Client, None),
            codecs: Codecs::new(),
            input: Vec::new(),
        })
    }

    pub(super) fn is_resumed(&self) -> bool {
        self.stream.conn.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// Returns the certificate that the server presented.
    pub(super) fn shown(&self) -> Vec<u8> {
        self.stream.conn.peer_certificates().expect("shown")[0].to_vec()
    }

    /// Sends a request that ends the connection, and returns everything that the server sends.
    pub(super) fn last_request(&mut self, target: &str) -> io::Result<String> {
        let request = format!("GET {target} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
        self.stream.write_all(request.as_bytes())?;
        let mut answer = Vec::new();
        // Reading fails if the server has not sent close_notify.
        self.stream.read_to_end(&mut answer)?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }

    /// Opens a WebSocket; the error has the status if the server refuses it.
    pub(super) fn upgrade(&mut self, target: &str) -> io::Result<()> {
        let mut request = Vec::new();
        let headers = [("Origin", "https://test")];
        handshake::write_request(&mut request, "test", target, KEY, "", None, headers);
        self.stream.write_all(&request)?;
        loop {
            let answer =
                handshake::read_response(&self.input, KEY, "", None).map_err(io::Error::other)?;
            if let Some((size, _)) = answer {
                self.input.drain(..size);
                return Ok(());
            }
            self.fill()?;
        }
    }

    pub(super) fn say(&mut self, data: &[u8]) -> io::Result<()> {
        let mut out = Vec::new();
        encode_message(&mut out, MessageKind::Binary, data, MASK);
        self.stream.write_all(&out)
    }

    /// Returns the next message, skipping pings.
    pub(super) fn hear(&mut self) -> io::Result<Vec<u8>> {
        loop {
            while !self.input.is_empty() {
                let decoded = self
                    .decoder
                    .decode(&mut self.input, &mut self.codecs, &LIMITS);
                let (taken, event) =
                    decoded.map_err(|error| io::Error::other(format!("{error:?}")))?;
                let message = match event {
                    Some(FrameEvent::Message { data, .. }) => Some(data.to_vec()),
                    Some(FrameEvent::Close { code, .. }) => {
                        return Err(io::Error::other(format!("closed with {code:?}")));
                    }
                    _ => None,
                };
                self.input.drain(..taken);
                if let Some(message) = message {
                    return Ok(message);
                }
            }
            self.fill()?;
        }
    }

    /// Sends data and asserts its echo.
    #[track_caller]
    pub(super) fn echoes(&mut self, data: &[u8]) {
        self.say(data).expect("the server reads");
        let received = self.hear().expect("the server answers");
        assert!(received == data, "{} bytes came back", received.len());
    }

    /// Performs the closing handshakes of WebSocket and TLS.
    #[track_caller]
    pub(super) fn leave(mut self) {
        let mut out = Vec::new();
        encode_close(&mut out, Some(1000), "", MASK);
        self.stream.write_all(&out).expect("the server reads");
        let mut rest = Vec::new();
        self.stream
            .read_to_end(&mut rest)
            .expect("nothing is cut off");
    }

    fn fill(&mut self) -> io::Result<()> {
        let mut bytes = [0; 16 << 10];
        match self.stream.read(&mut bytes)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            count => {
                self.input.extend_from_slice(&bytes[..count]);
                Ok(())
            }
        }
    }
}
