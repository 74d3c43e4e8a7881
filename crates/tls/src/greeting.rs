//! The start of a handshake, before the client hello has determined the configuration.

use std::fmt;
use std::sync::Arc;

use rustls::server::{Accepted, Acceptor};
use rustls::{Error as TlsError, ServerConfig, ServerConnection};

use crate::proof;

/// The alert for bytes that are not a client hello, which the library does not generate (RFC 8446, section 6).
const DECODE_ERROR: &[u8] = &[21, 3, 3, 0, 2, 2, 50];

/// A connection that waits for the client hello.
pub(crate) struct Greeting {
    hello: Acceptor,
    usual: Arc<ServerConfig>,
    proofs: Arc<ServerConfig>,
    /// The alert to send if the hello is invalid.
    alert: Vec<u8>,
}

/// A connection that has received the client hello.
pub(crate) struct Greeted {
    pub(crate) connection: ServerConnection,
    /// The client asks for an [`Proof`](crate::Proof).
    pub(crate) is_for_proof: bool,
}

impl Greeting {
    pub(crate) fn new(usual: &Arc<ServerConfig>, proofs: &Arc<ServerConfig>) -> Box<Self> {
        Box::new(Self {
            hello: Acceptor::default(),
            usual: Arc::clone(usual),
            proofs: Arc::clone(proofs),
            alert: Vec::new(),
        })
    }

    /// Consumes bytes from the front of `bytes`; returns `None` if more are needed. After an error an
    /// [alert](Self::alert) is pending.
    pub(crate) fn receive(&mut self, bytes: &mut &[u8]) -> Result<Option<Greeted>, TlsError> {
        while !bytes.is_empty() {
            // Reading from memory does not fail.
            let taken = self.hello.read_tls(bytes).unwrap_or(0);
            let accepted = self.hello.accept();
            let result = accepted.and_then(|accepted| match accepted {
                Some(accepted) => self.go_on(accepted).map(Some),
                None => Ok(None),
            });
            match result {
                Ok(Some(greeted)) => return Ok(Some(greeted)),
                Ok(None) if taken == 0 => break,
                Ok(None) => {}
                Err((error, mut alert)) => {
                    let _ = alert.write_all(&mut self.alert);
                    if self.alert.is_empty() {
                        self.alert.extend_from_slice(DECODE_ERROR);
                    }
                    return Err(error);
                }
            }
        }
        Ok(None)
    }

    fn go_on(
        &self,
        accepted: Accepted,
    ) -> Result<Greeted, (TlsError, rustls::server::AcceptedAlert)> {
        // Without a pending challenge such a client is treated like any other, and shares no protocol.
        let is_for_proof =
            proof::is_asked_for(&accepted.client_hello()) && self.has_proof(&accepted);
        let config = match is_for_proof {
            true => &self.proofs,
            false => &self.usual,
        };
        Ok(Greeted {
            connection: accepted.into_connection(Arc::clone(config))?,
            is_for_proof,
        })
    }

    fn has_proof(&self, accepted: &Accepted) -> bool {
        let shown = self.proofs.cert_resolver.resolve(accepted.client_hello());
        shown.is_some()
    }

    /// Returns the bytes to send.
    pub(crate) fn alert(&mut self) -> &mut Vec<u8> {
        &mut self.alert
    }

    /// Returns whether there are bytes to send.
    pub(crate) fn has_alert(&self) -> bool {
        !self.alert.is_empty()
    }
}

impl fmt::Debug for Greeting {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Greeting")
    }
}
