//! The beginning of a handshake, where what the client wants decides by which settings it goes on.

use std::fmt;
use std::sync::Arc;

use rustls::server::{Accepted, Acceptor};
use rustls::{Error as TlsError, ServerConfig, ServerConnection};

use crate::alpn_challenge;

/// The alert for what is no greeting at all, for which the library has none (RFC 8446 section 6).
const DECODE_ERROR: &[u8] = &[21, 3, 3, 0, 2, 2, 50];

/// A client that has not said what it wants.
pub(crate) struct PendingHello {
    hello: Acceptor,
    default_config: Arc<ServerConfig>,
    challenge_config: Arc<ServerConfig>,
    /// What tells the client that its greeting was no good.
    alert: Vec<u8>,
}

/// How the handshake goes on.
pub(crate) struct AcceptedHello {
    pub(crate) connection: ServerConnection,
    /// It is for a [`Proof`](crate::Proof).
    pub(crate) is_challenge: bool,
}

impl PendingHello {
    pub(crate) fn new(usual: &Arc<ServerConfig>, proofs: &Arc<ServerConfig>) -> Box<Self> {
        Box::new(Self {
            hello: Acceptor::default(),
            default_config: Arc::clone(usual),
            challenge_config: Arc::clone(proofs),
            alert: Vec::new(),
        })
    }

    /// Takes bytes from the front of `bytes`; `None`: more have to come. After an error there is an [alert](Self::alert).
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
        // Who asks for one where there is none is a client as any other, with nothing in common.
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

    /// What has to go out.
    pub(crate) fn alert(&mut self) -> &mut Vec<u8> {
        &mut self.alert
    }

    /// Whether something has.
    pub(crate) fn has_alert(&self) -> bool {
        !self.alert.is_empty()
    }
}

impl fmt::Debug for PendingHello {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Greeting")
    }
}
