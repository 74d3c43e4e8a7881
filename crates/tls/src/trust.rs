//! The servers that a client trusts.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use crate::insecure_verifier::InsecureVerifier;
use crate::{Error, Roots, TlsStream};

/// The source of trusted certificate authorities.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum TrustSource {
    /// The certificate authorities that the operating system trusts.
    #[default]
    System,
    /// Only the authorities in a PEM file.
    File(PathBuf),
    /// Any certificate: the connection is encrypted, but the server is not authenticated.
    Insecure,
}

/// The configuration shared by clients with the same trust source. Creating one reads files; cloning is cheap.
#[derive(Clone, Debug)]
pub struct ClientTrust(Arc<ClientConfig>);

impl ClientTrust {
    /// Loads the certificate authorities.
    ///
    /// # Errors
    /// The file can't be read or contains no certificate. The system's authorities are not checked
    /// here; an unknown issuer makes the handshake fail.
    pub fn new(trust_source: &TrustSource) -> Result<Self, Error> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()?;
        let config = match trust_source {
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

    /// Returns the same trust for connections that never resume a session.
    #[must_use]
    pub fn without_resumption(&self) -> Self {
        let mut config = ClientConfig::clone(&self.0);
        config.resumption = Resumption::disabled();
        Self(Arc::new(config))
    }

    /// Returns the configuration for code that uses rustls directly.
    #[must_use]
    pub fn config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.0)
    }

    /// Starts the client side of a connection to `host`, a name or an address without port and brackets, for which the
    /// certificate must be valid.
    ///
    /// # Errors
    /// `host` is not a valid server name.
    pub fn connect(&self, host: &str) -> Result<Box<TlsStream>, Error> {
        let name = ServerName::try_from(host.to_owned()).map_err(|_| Error::Name(host.into()))?;
        let connection = ClientConnection::new(Arc::clone(&self.0), name)?;
        Ok(Box::new(TlsStream::new(connection.into())))
    }
}
