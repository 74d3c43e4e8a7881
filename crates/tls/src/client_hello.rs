//! The start of a handshake, before the client hello has determined the configuration.

use std::fmt;
use std::sync::Arc;

use rustls::server::{Accepted, Acceptor};
use rustls::{Error as TlsError, ServerConfig, ServerConnection};

use crate::alpn_challenge;

/// The alert for bytes that are not a client hello (RFC 8446, section 6). The TLS library generates no alert for them.
const DECODE_ERROR: &[u8] = &[21, 3, 3, 0, 2, 2, 50];

/// A connection that waits for the client hello.
pub(crate) struct PendingHello {
    hello: Acceptor,
    default_config: Arc<ServerConfig>,
    challenge_config: Arc<ServerConfig>,
    /// The alert to send if the hello is invalid.
    alert: Vec<u8>,
}

/// A connection that has received the client hello.
pub(crate) struct AcceptedHello {
    pub(crate) connection: ServerConnection,
    /// Whether the client asks for an [`AlpnChallenge`](crate::AlpnChallenge).
    pub(crate) is_challenge: bool,
}

impl PendingHello {
    pub(crate) fn new(
        usual: &Arc<ServerConfig>,
        challenge_config: &Arc<ServerConfig>,
    ) -> Box<Self> {
        Box::new(Self {
            hello: Acceptor::default(),
            default_config: Arc::clone(usual),
            challenge_config: Arc::clone(challenge_config),
            alert: Vec::new(),
        })
    }

    /// Consumes bytes from the front of `bytes`; returns `None` if more bytes are needed. After an error an
    /// [alert](Self::alert) is pending.
    pub(crate) fn receive(&mut self, bytes: &mut &[u8]) -> Result<Option<AcceptedHello>, TlsError> {
        while !bytes.is_empty() {
            // Reading from memory does not fail.
            let taken = self.hello.read_tls(bytes).unwrap_or(0);
            let accepted = self.hello.accept();
            let result = accepted.and_then(|accepted| match accepted {
                Some(accepted) => self.continue_handshake(accepted).map(Some),
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

    fn continue_handshake(
        &self,
        accepted: Accepted,
    ) -> Result<AcceptedHello, (TlsError, rustls::server::AcceptedAlert)> {
        // A client that asks for a challenge of a name without a pending challenge is handled like any other client.
        // Its handshake then fails, because it has no protocol in common with the server.
        let is_for_proof =
            alpn_challenge::is_asked_for(&accepted.client_hello()) && self.is_challenge(&accepted);
        let config = match is_for_proof {
            true => &self.challenge_config,
            false => &self.default_config,
        };
        Ok(AcceptedHello {
            connection: accepted.into_connection(Arc::clone(config))?,
            is_challenge: is_for_proof,
        })
    }

    fn is_challenge(&self, accepted: &Accepted) -> bool {
        let shown = self
            .challenge_config
            .cert_resolver
            .resolve(accepted.client_hello());
        shown.is_some()
    }

    /// Returns the pending bytes of the alert for the client.
    pub(crate) fn alert(&mut self) -> &mut Vec<u8> {
        &mut self.alert
    }

    /// Returns whether bytes of an alert are pending.
    pub(crate) fn has_alert(&self) -> bool {
        !self.alert.is_empty()
    }
}

impl fmt::Debug for PendingHello {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("PendingHello")
    }
}
