//! One TLS connection.

use std::io::{Read as _, Write as _};

use rustls::{Connection, HandshakeKind, ProtocolVersion};

use crate::greeting::{Greeted, Greeting};
use crate::{Error, Subject};

/// Maximum size of a client hello with its records. Usual ones have at most 2 KiB. It is buffered until it is complete,
/// so this is the memory that a client can occupy by sending a part of one.
const HELLO_BYTES_MAX: usize = 16 << 10;

/// Maximum number of bytes from a peer before the handshake is complete; certificate chains are the largest part.
const HANDSHAKE_BYTES_MAX: usize = 96 << 10;

/// One side of a TLS connection, between ciphertext and plaintext.
#[derive(Debug)]
pub struct Tls {
    stage: Stage,
    has_ended: bool,
    /// Further input is ignored: it was invalid or not trusted, or the connection was closed.
    is_over: bool,
    is_for_proof: bool,
    /// There has been output for the peer.
    has_answered: bool,
    /// Bytes of the handshake.
    received: usize,
}

#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "all but a moment of a connection's life it is going, and whoever has many of them boxes them"
)]
enum Stage {
    /// A server that has not received the client hello yet.
    Greeting(Box<Greeting>),
    Going(Connection),
}

/// Properties of a completed handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// Whether the version is TLS 1.3 rather than 1.2.
    pub is_1_3: bool,
    /// Whether an earlier session was resumed.
    pub is_resumed: bool,
}

impl Tls {
    /// Wraps either side of a new connection.
    #[must_use]
    pub fn new(connection: Connection) -> Self {
        Self::at(Stage::going(connection))
    }

    /// Returns a server side that waits for the client hello.
    pub(crate) fn greeting(greeting: Box<Greeting>) -> Self {
        Self::at(Stage::Greeting(greeting))
    }

    fn at(stage: Stage) -> Self {
        Self {
            stage,
            has_ended: false,
            is_over: false,
            is_for_proof: false,
            has_answered: false,
            received: 0,
        }
    }

    /// Decrypts bytes from the socket and appends the plaintext to `plain`. Afterwards there may be
    /// [output](Self::has_words), also after an error: the alert for the peer.
    ///
    /// # Errors
    /// The peer sent invalid data or an untrusted certificate: the connection is unusable. This is returned once;
    /// further input, also after [`close`](Self::close), is ignored.
    pub fn receive(&mut self, bytes: &[u8], plain: &mut Vec<u8>) -> Result<(), Error> {
        if self.is_over {
            return Ok(());
        }
        let result = self.open(bytes, plain);
        self.is_over = result.is_err();
        result
    }

    fn open(&mut self, mut bytes: &[u8], plain: &mut Vec<u8>) -> Result<(), Error> {
        if self.is_handshaking() {
            self.received += bytes.len();
            let bytes_max = match &self.stage {
                Stage::Greeting(_) => HELLO_BYTES_MAX,
                Stage::Going(Connection::Server(_)) if !self.has_answered => HELLO_BYTES_MAX,
                Stage::Going(_) => HANDSHAKE_BYTES_MAX,
            };
            if self.received > bytes_max {
                return Err(Error::TooLong);
            }
        }
        if let Stage::Greeting(greeting) = &mut self.stage {
            let Some(greeted) = greeting.receive(&mut bytes)? else {
                return Ok(());
            };
            let Greeted {
                connection,
                is_for_proof,
            } = greeted;
            (self.stage, self.is_for_proof) = (Stage::going(connection.into()), is_for_proof);
            self.has_answered = true;
        }
        let Stage::Going(connection) = &mut self.stage else {
            return Ok(());
        };
        while !bytes.is_empty() {
            // Reading from memory does not fail; nothing is consumed after the peer's close.
            let taken = connection.read_tls(&mut bytes).unwrap_or(0);
            let state = connection.process_new_packets()?;
            // Once the hello is complete.
            self.has_answered |= connection.wants_write();
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
            // There is no session yet to send anything else on.
            Stage::Greeting(greeting) => out.append(greeting.alert()),
            Stage::Going(connection) => {
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

    /// Appends a close notification to `out`, so that truncation can be detected.
    pub fn close(&mut self, out: &mut Vec<u8>) {
        if let Stage::Going(connection) = &mut self.stage {
            connection.send_close_notify();
        }
        self.send(&[], out);
        self.is_over = true;
    }

    /// Returns whether [`send`](Self::send) has output without new plaintext.
    #[must_use]
    pub fn has_words(&self) -> bool {
        match &self.stage {
            Stage::Greeting(greeting) => greeting.has_alert(),
            Stage::Going(connection) => connection.wants_write(),
        }
    }

    /// Returns whether the handshake is incomplete.
    #[must_use]
    pub fn is_handshaking(&self) -> bool {
        self.going()
            .is_none_or(|connection| connection.is_handshaking())
    }

    /// Returns the properties of the handshake once it is complete.
    #[must_use]
    pub fn agreed(&self) -> Option<Agreed> {
        let connection = self.going()?;
        if connection.is_handshaking() {
            return None;
        }
        Some(Agreed {
            is_1_3: connection.protocol_version() == Some(ProtocolVersion::TLSv1_3),
            is_resumed: connection.handshake_kind() == Some(HandshakeKind::Resumed),
        })
    }

    /// Returns whether the client only asks for an [`Proof`](crate::Proof): the connection carries no data (RFC 8737,
    /// section 3).
    #[must_use]
    pub fn is_for_proof(&self) -> bool {
        self.is_for_proof
    }

    /// Returns the names in the peer's verified certificate.
    #[must_use]
    pub fn peer(&self) -> Option<Subject> {
        Subject::read(self.going()?.peer_certificates()?.first()?)
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

    fn going(&self) -> Option<&Connection> {
        match &self.stage {
            Stage::Greeting(_) => None,
            Stage::Going(connection) => Some(connection),
        }
    }
}

impl Stage {
    fn going(mut connection: Connection) -> Self {
        // A message is accepted whole whatever its length: unsent data is limited elsewhere.
        connection.set_buffer_limit(None);
        Self::Going(connection)
    }
}
