//! One connection's TLS.

use std::io::{Read as _, Write as _};

use rustls::{Connection, HandshakeKind, ProtocolVersion};

use crate::client_hello::{AcceptedHello, PendingHello};
use crate::{CertificateSubject, Error};

/// Bytes that a client's hello may take with its records. Usual ones have at most 2 KiB. All of them are kept until the
/// last has come, so this is what a client holds that sends a part of one and waits.
const HELLO_BYTES_MAX: usize = 16 << 10;

/// What a peer may send before the handshake is over, in bytes: chains of certificates are the longest of it.
const HANDSHAKE_BYTES_MAX: usize = 96 << 10;

/// One end of a connection, between the socket's bytes and its own.
#[derive(Debug)]
pub struct TlsStream {
    stage: Stage,
    has_ended: bool,
    /// What comes is not looked at any more: something was no TLS or not believed, or our last word is said.
    has_failed: bool,
    is_challenge: bool,
    /// There has been something to say to the peer.
    has_replied: bool,
    /// Of the handshake.
    received: usize,
}

#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "all but a moment of a connection's life it is going, and whoever has many of them boxes them"
)]
enum Stage {
    /// A server does not know yet what the client wants.
    ClientHello(Box<PendingHello>),
    Connected(Connection),
}

/// What a handshake came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// It is TLS 1.3, not 1.2.
    pub is_1_3: bool,
    /// It went on from an earlier connection.
    pub is_resumed: bool,
}

impl TlsStream {
    /// Either end of a connection that begins.
    #[must_use]
    pub fn new(connection: Connection) -> Self {
        Self::at(Stage::connected(connection))
    }

    /// A server's end that goes on as the client's first words say.
    pub(crate) fn awaiting_hello(greeting: Box<PendingHello>) -> Self {
        Self::at(Stage::ClientHello(greeting))
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

    /// Takes bytes of the socket and appends what they hold to `plain`. Afterwards there may be
    /// [something to say](Self::has_output), also after an error: the alert that tells the peer of it.
    ///
    /// # Errors
    /// What the peer sent is no TLS, or its certificate is not believed: the connection is of no use any more. That is
    /// said once; whatever comes behind it, or after [`close`](Self::close), is not looked at.
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
        if let Stage::ClientHello(greeting) = &mut self.stage {
            let Some(greeted) = greeting.receive(&mut bytes)? else {
                return Ok(());
            };
            let AcceptedHello {
                connection,
                is_challenge: is_for_proof,
            } = greeted;
            (self.stage, self.is_challenge) = (Stage::connected(connection.into()), is_for_proof);
            self.has_replied = true;
        }
        let Stage::Connected(connection) = &mut self.stage else {
            return Ok(());
        };
        while !bytes.is_empty() {
            // Reading from memory does not fail; nothing is taken after the peer's last word.
            let taken = connection.read_tls(&mut bytes).unwrap_or(0);
            let state = connection.process_new_packets()?;
            // As soon as the hello is whole.
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

    /// Appends to `out` what has to go out: `plain`, and what TLS itself wants to say. Before the handshake is over
    /// `plain` is kept.
    pub fn send(&mut self, plain: &[u8], out: &mut Vec<u8>) {
        match &mut self.stage {
            // Nobody to say anything else to.
            Stage::ClientHello(greeting) => out.append(greeting.alert()),
            Stage::Connected(connection) => {
                // Writing to memory does not fail, and there is no limit.
                let _ = connection.writer().write_all(plain);
                while connection.wants_write() {
                    if connection.write_tls(out).is_err() {
                        return;
                    }
                }
            }
        }
    }

    /// Appends to `out` that nothing more will be sent, so that nobody can cut off the end unnoticed.
    pub fn close(&mut self, out: &mut Vec<u8>) {
        if let Stage::Connected(connection) = &mut self.stage {
            connection.send_close_notify();
        }
        self.send(&[], out);
        self.has_failed = true;
    }

    /// Whether [`send`](Self::send) would have something to say without being given anything.
    #[must_use]
    pub fn has_output(&self) -> bool {
        match &self.stage {
            Stage::ClientHello(greeting) => greeting.has_alert(),
            Stage::Connected(connection) => connection.wants_write(),
        }
    }

    /// Whether the handshake is not over.
    #[must_use]
    pub fn is_handshaking(&self) -> bool {
        self.connection()
            .is_none_or(|connection| connection.is_handshaking())
    }

    /// What the handshake came to, once it is over.
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

    /// Whether the client only wants to see a [`Proof`](crate::Proof): nothing is to be said inside (RFC 8737 section 3).
    #[must_use]
    pub fn is_challenge(&self) -> bool {
        self.is_challenge
    }

    /// Whom the peer's certificate is about, if it has shown one that is believed.
    #[must_use]
    pub fn peer_subject(&self) -> Option<CertificateSubject> {
        CertificateSubject::read(self.connection()?.peer_certificates()?.first()?)
    }

    /// Whether the peer has sent anything.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.received > 0
    }

    /// Whether the peer has said that it will send nothing more.
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
        // A message goes in whole, however long it is: what may be unsent is limited elsewhere.
        connection.set_buffer_limit(None);
        Self::Connected(connection)
    }
}
