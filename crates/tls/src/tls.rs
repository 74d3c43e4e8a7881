//! One connection's TLS.

use std::io::{Read as _, Write as _};

use rustls::{Connection, HandshakeKind, ProtocolVersion};

use crate::{Error, Subject};

/// What a peer may send before the handshake is over, in bytes: chains of certificates are the longest of it.
pub(crate) const HANDSHAKE_BYTES_MAX: usize = 96 << 10;

/// One end of a connection, between the socket's bytes and its own.
#[derive(Debug)]
pub struct Tls {
    connection: Connection,
    has_ended: bool,
    /// Of the handshake.
    received: usize,
}

/// What a handshake came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// It is TLS 1.3, not 1.2.
    pub is_1_3: bool,
    /// It went on from an earlier connection.
    pub is_resumed: bool,
}

impl Tls {
    /// Either end of a connection that begins.
    #[must_use]
    pub fn new(mut connection: Connection) -> Self {
        // A message goes in whole, however long it is: what may be unsent is limited elsewhere.
        connection.set_buffer_limit(None);
        Self {
            connection,
            has_ended: false,
            received: 0,
        }
    }

    /// Takes bytes of the socket and appends what they hold to `plain`. Afterwards there may be
    /// [something to say](Self::has_words), also after an error: the alert that tells the peer of it.
    ///
    /// # Errors
    /// What the peer sent is no TLS, or its certificate is not believed: the connection is of no use any more.
    pub fn receive(&mut self, mut bytes: &[u8], plain: &mut Vec<u8>) -> Result<(), Error> {
        if self.connection.is_handshaking() {
            self.received += bytes.len();
            if self.received > HANDSHAKE_BYTES_MAX {
                return Err(Error::TooLong);
            }
        }
        while !bytes.is_empty() {
            // Reading from memory does not fail; nothing is taken after the peer's last word.
            let taken = self.connection.read_tls(&mut bytes).unwrap_or(0);
            let state = self.connection.process_new_packets()?;
            let length = state.plaintext_bytes_to_read();
            self.has_ended |= state.peer_has_closed();
            if length > 0 {
                let start = plain.len();
                plain.resize(start + length, 0);
                let read = self.connection.reader().read(&mut plain[start..]);
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
        // Writing to memory does not fail, and there is no limit.
        let _ = self.connection.writer().write_all(plain);
        while self.connection.wants_write() {
            if self.connection.write_tls(out).is_err() {
                return;
            }
        }
    }

    /// Appends to `out` that nothing more will be sent, so that nobody can cut off the end unnoticed.
    pub fn close(&mut self, out: &mut Vec<u8>) {
        self.connection.send_close_notify();
        self.send(&[], out);
    }

    /// Whether [`send`](Self::send) would have something to say without being given anything.
    #[must_use]
    pub fn has_words(&self) -> bool {
        self.connection.wants_write()
    }

    /// Whether the handshake is not over.
    #[must_use]
    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// What the handshake came to, once it is over.
    #[must_use]
    pub fn agreed(&self) -> Option<Agreed> {
        if self.connection.is_handshaking() {
            return None;
        }
        Some(Agreed {
            is_1_3: self.connection.protocol_version() == Some(ProtocolVersion::TLSv1_3),
            is_resumed: self.connection.handshake_kind() == Some(HandshakeKind::Resumed),
        })
    }

    /// Whom the peer's certificate is about, if it has shown one that is believed.
    #[must_use]
    pub fn peer(&self) -> Option<Subject> {
        Subject::read(self.connection.peer_certificates()?.first()?)
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
}
