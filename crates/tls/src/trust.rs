//! Which servers a client believes.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use crate::insecure_verifier::InsecureVerifier;
use crate::{Error, Roots, TlsStream};

/// Whom to believe.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum TrustSource {
    /// Whoever the system's certificates vouch for.
    #[default]
    System,
    /// Whoever the certificates of a PEM file vouch for, and nobody else.
    File(PathBuf),
    /// Everybody: the connection is sealed, but nobody knows towards whom.
    Insecure,
}

/// What all clients with the same beliefs share. Making one reads files; its copies cost nothing.
#[derive(Clone, Debug)]
pub struct ClientTrust(Arc<ClientConfig>);

impl ClientTrust {
    /// Reads the certificates.
    ///
    /// # Errors
    /// A file that can't be read or has no certificate in it. The system's own are not checked: an unknown issuer is
    /// told when it matters.
    pub fn new(believe: &TrustSource) -> Result<Self, Error> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()?;
        let config = match believe {
            TrustSource::Insecure => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(InsecureVerifier(provider)))
                .with_no_client_auth(),
            TrustSource::File(file) => builder
                .with_root_certificates(Roots::read_slow(file)?.store)
                .with_no_client_auth(),
            TrustSource::System => {
                let mut roots = RootCertStore::empty();
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
                builder.with_root_certificates(roots).with_no_client_auth()
            }
        };
        Ok(Self(Arc::new(config)))
    }

    /// Returns the same trust for connections that each make a full handshake: none resumes an earlier session.
    #[must_use]
    pub fn without_resumption(&self) -> Self {
        let mut config = ClientConfig::clone(&self.0);
        config.resumption = Resumption::disabled();
        Self(Arc::new(config))
    }

    /// The settings, for whoever drives TLS by other means.
    #[must_use]
    pub fn config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.0)
    }

    /// A client's end of a connection to `host`, a name or an address without port and brackets, for which the
    /// certificate has to be.
    ///
    /// # Errors
    /// `host` can be in no certificate.
    pub fn connect(&self, host: &str) -> Result<Box<TlsStream>, Error> {
        let name = ServerName::try_from(host.to_owned()).map_err(|_| Error::Name(host.into()))?;
        let connection = ClientConnection::new(Arc::clone(&self.0), name)?;
        Ok(Box::new(TlsStream::new(connection.into())))
    }
}
