//! Proofs that a name is ours, for authorities that ask by TLS: ACME's TLS-ALPN-01 (RFC 8737).
//!
//! Whoever orders a certificate puts a [`AlpnChallenge`] among the [`AlpnChallenges`] of the process, and every
//! [`Acceptor`](crate::Acceptor) that knows them shows it to a client that asks for that name and speaks `acme-tls/1`
//! only. Such a connection is for looking at the certificate: nothing is said inside.

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

/// What is spoken inside, by ALPN (RFC 8737 section 6.2).
const PROTOCOL: &[u8] = b"acme-tls/1";

/// By name, in small letters.
type ChallengeTable = RwLock<HashMap<String, Arc<CertifiedKey>>>;

/// What is shown at the moment; copies are the same one.
#[derive(Clone, Default)]
pub struct AlpnChallenges(Arc<ChallengeTable>);

/// It is shown until this is dropped.
#[must_use]
#[derive(Debug)]
pub struct AlpnChallenge {
    challenges: AlpnChallenges,
    name: String,
}

impl AlpnChallenges {
    /// Shows a self-signed certificate, made as RFC 8737 section 3 says, to whoever asks for `name`. It takes the place of
    /// another for that name.
    ///
    /// # Errors
    /// The key is of no kind that is known here.
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

    /// The settings of connections that ask for one.
    pub(crate) fn config(&self) -> Result<Arc<ServerConfig>, TlsError> {
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(self.clone()));
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        // Nobody comes back.
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(Arc::new(config))
    }
}

/// Whether a client asks for a proof: it offers that protocol and nothing else (RFC 8737 section 3).
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
        out.write_str("Proofs(…)")
    }
}

impl Drop for AlpnChallenge {
    fn drop(&mut self) {
        self.challenges.0.write().remove(&self.name);
    }
}
