//! One TLS connection.

use std::io::{Read as _, Write as _};

use rustls::{Connection, HandshakeKind, ProtocolVersion};

use crate::client_hello::{AcceptedHello, PendingHello};
use crate::{CertificateSubject, Error};

/// Maximum size of a client hello with its records; a typical one has at most 2 KiB. An incomplete
/// client hello is buffered, so this also limits the memory that such a client occupies.
const HELLO_BYTES_MAX: usize = 16 << 10;

/// Maximum number of bytes from a peer before the handshake is complete; certificate chains are the largest part.
const HANDSHAKE_BYTES_MAX: usize = 96 << 10;

/// One side of a TLS connection. Converts between ciphertext and plaintext.
#[derive(Debug)]
pub struct TlsStream {
    stage: Stage,
    has_ended: bool,
    /// Whether further input is ignored, because earlier input was invalid or untrusted, or the
    /// connection was closed.
    has_failed: bool,
    is_challenge: bool,
    /// Whether there has been output for the peer.
    has_replied: bool,
    /// Number of bytes received during the handshake.
    received: usize,
}

#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all connections are in the large variant, and owners of many connections box them"
)]
enum Stage {
    /// A server that has not received the client hello yet.
    ClientHello(Box<PendingHello>),
    Connected(Connection),
}

/// Properties of a completed handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// Whether the version is TLS 1.3 rather than 1.2.
    pub is_1_3: bool,
    /// Whether an earlier session was resumed.
    pub is_resumed: bool,
}

impl TlsStream {
    /// Wraps the client's or the server's side of a new connection.
    #[must_use]
    pub fn new(connection: Connection) -> Self {
        Self::at(Stage::connected(connection))
    }

    /// Returns a server side that waits for the client hello.
    pub(crate) fn awaiting_hello(hello: Box<PendingHello>) -> Self {
        Self::at(Stage::ClientHello(hello))
    }

    fn at(stage: Stage) -> Self {
        Self {
            stage,
            has_ended: false,
            has_failed: false,
            is_challenge: false,
            has_replied: false,
            received: 0,
        }
    }

    /// Decrypts bytes from the socket and appends the plaintext to `plain`. Afterwards there may be
    /// [output](Self::has_output); after an error it is the alert for the peer.
    ///
    /// # Errors
    /// The peer sent invalid data or an untrusted certificate, so the connection is unusable. The error is
    /// returned once; further input, also after [`close`](Self::close), is ignored.
    pub fn receive(&mut self, bytes: &[u8], plain: &mut Vec<u8>) -> Result<(), Error> {
        if self.has_failed {
            return Ok(());
        }
        let result = self.decrypt(bytes, plain);
        self.has_failed = result.is_err();
        result
    }

    fn decrypt(&mut self, mut bytes: &[u8], plain: &mut Vec<u8>) -> Result<(), Error> {
        if self.is_handshaking() {
            self.received += bytes.len();
            let bytes_max = match &self.stage {
                Stage::ClientHello(_) => HELLO_BYTES_MAX,
                Stage::Connected(Connection::Server(_)) if !self.has_replied => HELLO_BYTES_MAX,
                Stage::Connected(_) => HANDSHAKE_BYTES_MAX,
            };
            if self.received > bytes_max {
                return Err(Error::TooLong);
            }
        }
        if let Stage::ClientHello(hello) = &mut self.stage {
            let Some(accepted) = hello.receive(&mut bytes)? else {
                return Ok(());
            };
            let AcceptedHello {
                connection,
                is_challenge: is_for_proof,
            } = accepted;
            (self.stage, self.is_challenge) = (Stage::connected(connection.into()), is_for_proof);
            self.has_replied = true;
        }
        let Stage::Connected(connection) = &mut self.stage else {
            return Ok(());
        };
        while !bytes.is_empty() {
            // Reading from memory does not fail; nothing is consumed after the peer's close.
            let taken = connection.read_tls(&mut bytes).unwrap_or(0);
            let state = connection.process_new_packets()?;
            // There is output once the client hello is complete.
            self.has_replied |= connection.wants_write();
            let length = state.plaintext_bytes_to_read();
            self.has_ended |= state.peer_has_closed();
            if length > 0 {
                let start = plain.len();
                plain.resize(start + length, 0);
                let read = connection.reader().read(&mut plain[start..]);
                plain.truncate(start + read.unwrap_or(0));
            } else if taken == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Encrypts `plain` and appends it to `out`, together with any pending TLS messages. Before the handshake is
    /// complete `plain` is buffered.
    pub fn send(&mut self, plain: &[u8], out: &mut Vec<u8>) {
        match &mut self.stage {
            // No TLS session exists yet, so only an alert can be sent.
            Stage::ClientHello(hello) => out.append(hello.alert()),
            Stage::Connected(connection) => {
                // Writing to memory does not fail, and the buffer has no limit.
                let _ = connection.writer().write_all(plain);
                while connection.wants_write() {
                    if connection.write_tls(out).is_err() {
                        return;
                    }
                }
            }
        }
    }

    /// Appends a close notification to `out`, so that truncation can be detected.
    pub fn close(&mut self, out: &mut Vec<u8>) {
        if let Stage::Connected(connection) = &mut self.stage {
            connection.send_close_notify();
        }
        self.send(&[], out);
        self.has_failed = true;
    }

    /// Returns whether [`send`](Self::send) would have output even without plaintext, such as
    /// handshake messages or an alert.
    #[must_use]
    pub fn has_output(&self) -> bool {
        match &self.stage {
            Stage::ClientHello(hello) => hello.has_alert(),
            Stage::Connected(connection) => connection.wants_write(),
        }
    }

    /// Returns whether the handshake is incomplete.
    #[must_use]
    pub fn is_handshaking(&self) -> bool {
        self.connection()
            .is_none_or(|connection| connection.is_handshaking())
    }

    /// Returns the properties of the handshake once it is complete.
    #[must_use]
    pub fn negotiated(&self) -> Option<Negotiated> {
        let connection = self.connection()?;
        if connection.is_handshaking() {
            return None;
        }
        Some(Negotiated {
            is_1_3: connection.protocol_version() == Some(ProtocolVersion::TLSv1_3),
            is_resumed: connection.handshake_kind() == Some(HandshakeKind::Resumed),
        })
    }

    /// Returns whether the client only asks for an [`AlpnChallenge`](crate::AlpnChallenge). If so, the connection
    /// carries no data (RFC 8737, section 3).
    #[must_use]
    pub fn is_challenge(&self) -> bool {
        self.is_challenge
    }

    /// Returns the names in the peer's verified certificate.
    #[must_use]
    pub fn peer_subject(&self) -> Option<CertificateSubject> {
        CertificateSubject::read(self.connection()?.peer_certificates()?.first()?)
    }

    /// Returns whether the peer has sent anything.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.received > 0
    }

    /// Returns whether the peer has sent a close notification.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    fn connection(&self) -> Option<&Connection> {
        match &self.stage {
            Stage::ClientHello(_) => None,
            Stage::Connected(connection) => Some(connection),
        }
    }
}

impl Stage {
    fn connected(mut connection: Connection) -> Self {
        // A message of any length is accepted as a whole, because the caller limits the unsent data.
        connection.set_buffer_limit(None);
        Self::Connected(connection)
    }
}
