//! Challenge certificates of ACME's TLS-ALPN-01 validation (RFC 8737).
//!
//! The ACME client adds an [`AlpnChallenge`] to the [`AlpnChallenges`] of the process, and every
//! [`Acceptor`](crate::Acceptor) that shares this set presents the challenge certificate to a
//! client that asks for the certificate's name and offers only `acme-tls/1`. Such a connection
//! serves only to look at the certificate and carries no data.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::RwLock;
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{Error as TlsError, ServerConfig};

use crate::Error;

/// The ALPN protocol (RFC 8737, section 6.2).
const PROTOCOL: &[u8] = b"acme-tls/1";

/// Challenge certificates by name in lower case.
type ChallengeTable = RwLock<HashMap<String, Arc<CertifiedKey>>>;

/// The pending challenges; clones share them.
#[derive(Clone, Default)]
pub struct AlpnChallenges(Arc<ChallengeTable>);

/// A pending challenge. Dropping this value ends the challenge.
#[must_use]
#[derive(Debug)]
pub struct AlpnChallenge {
    challenges: AlpnChallenges,
    name: String,
}

impl AlpnChallenges {
    /// Adds a challenge for `name` with a self-signed certificate as defined by RFC 8737, section 3. It replaces an
    /// earlier one for the same name.
    ///
    /// # Errors
    /// The key type is not supported.
    pub fn show(
        &self,
        name: &str,
        certificate: CertificateDer<'static>,
        key: PrivateKeyDer<'static>,
    ) -> Result<AlpnChallenge, Error> {
        let key = ring::default_provider()
            .key_provider
            .load_private_key(key)?;
        let name = name.to_ascii_lowercase();
        let certified = Arc::new(CertifiedKey::new(vec![certificate], key));
        self.0.write().insert(name.clone(), certified);
        Ok(AlpnChallenge {
            challenges: self.clone(),
            name,
        })
    }

    /// Returns the configuration of connections that ask for a challenge.
    pub(crate) fn config(&self) -> Result<Arc<ServerConfig>, TlsError> {
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(self.clone()));
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        // Validating clients never resume a session.
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(Arc::new(config))
    }
}

/// Returns whether a client asks for a challenge: it offers only [`PROTOCOL`] (RFC 8737, section 3).
pub(crate) fn is_asked_for(hello: &ClientHello<'_>) -> bool {
    let Some(mut offered) = hello.alpn() else {
        return false;
    };
    offered.next() == Some(PROTOCOL) && offered.next().is_none()
}

impl ResolvesServerCert for AlpnChallenges {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name()?.to_ascii_lowercase();
        self.0.read().get(&name).cloned()
    }
}

impl fmt::Debug for AlpnChallenges {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("AlpnChallenges(…)")
    }
}

impl Drop for AlpnChallenge {
    fn drop(&mut self) {
        self.challenges.0.write().remove(&self.name);
    }
}
