//! The server side of TLS: the state shared by all connections of a listener.
//!
//! An [`Acceptor`] is built from certificates of any origin, such as files or ACME. For new certificates, a new
//! acceptor is built. Existing connections keep the acceptor with which they started.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use rustls::server::{
    ClientHello, NoClientAuth, NoServerSessionStorage, ProducesTickets, ResolvesServerCert,
    WebPkiClientVerifier, danger::ClientCertVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig, ServerConnection};

use crate::certificate::{Certificate, NameMatch, chain_of, read_file, read_slow};
use crate::client_hello::PendingHello;
use crate::resumption::VerifiedTickets;
use crate::{AlpnChallenges, Error, TlsStream};

/// How client certificates are verified.
#[derive(Clone, Debug)]
pub struct ClientAuth {
    /// The accepted certificate authorities.
    pub roots: Roots,
    /// Whether clients without a certificate are refused.
    pub is_required: bool,
}

/// Certificate authorities from a PEM file. Two values are equal if their files have the same
/// contents.
#[derive(Clone, Debug)]
pub struct Roots {
    pub(crate) store: Arc<RootCertStore>,
    pem: Arc<[u8]>,
}

impl PartialEq for Roots {
    fn eq(&self, other: &Self) -> bool {
        self.pem == other.pem
    }
}

impl Roots {
    /// Reads the certificates of authorities from a PEM file.
    ///
    /// # Errors
    /// The file can't be read, or contains no certificate.
    pub fn read(file: &Path) -> Result<Self, Error> {
        Self::of(file, read_file(file)?)
    }

    /// Reads a file named by a script. It may be of any type and slow to read, so the calling thread must be allowed to
    /// block.
    pub(crate) fn read_slow(file: &Path) -> Result<Self, Error> {
        Self::of(file, read_slow(file)?)
    }

    fn of(file: &Path, pem: Vec<u8>) -> Result<Self, Error> {
        let mut roots = RootCertStore::empty();
        for certificate in chain_of(&pem).map_err(|why| Error::file(file, why))? {
            roots
                .add(certificate)
                .map_err(|error| Error::file(file, error.to_string()))?;
        }
        Ok(Self {
            store: Arc::new(roots),
            pem: pem.into(),
        })
    }

    /// Returns the content of the PEM file.
    #[must_use]
    pub fn pem(&self) -> &[u8] {
        &self.pem
    }
}

/// The keys of session tickets, with which clients resume sessions on any worker.
///
/// The keys change every six hours, and the previous ones are accepted for six more hours. A client that presented a
/// certificate resumes its session only while that certificate is valid and issued by a current authority; otherwise
/// its handshake is a full one.
#[derive(Clone)]
pub struct Tickets(Arc<dyn ProducesTickets>);

impl Tickets {
    /// Generates keys for session tickets.
    ///
    /// # Errors
    /// The system provides no random numbers.
    pub fn new() -> Result<Self, Error> {
        Ok(Self(ring::Ticketer::new()?))
    }
}

impl fmt::Debug for Tickets {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Tickets(…)")
    }
}

/// The server side of TLS for the connections of a listener; cheap to clone.
#[derive(Clone, Debug)]
pub struct Acceptor {
    default_config: Arc<ServerConfig>,
    /// The configuration for validations by certificate authorities; `None` if no challenges are answered.
    challenge_config: Option<Arc<ServerConfig>>,
}

impl Acceptor {
    /// Creates an acceptor that selects a certificate by the requested name: an exact match, else a wildcard, else the
    /// first; without certificates each handshake fails. `protocols` are the ALPN protocols, preferred first; if empty,
    /// the client's offer is ignored.
    ///
    /// # Errors
    /// The certificate authorities of clients are invalid.
    pub fn new(
        certificates: Vec<Certificate>,
        clients: Option<&ClientAuth>,
        protocols: &[&str],
        tickets: &Tickets,
    ) -> Result<Self, Error> {
        let provider = Arc::new(ring::default_provider());
        let verifier = verifier_of(clients, &provider)?;
        let verified_tickets = VerifiedTickets {
            tickets: Arc::clone(&tickets.0),
            verifier: clients.map(|_| Arc::clone(&verifier)),
        };
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(Arc::new(CertificateResolver(certificates)));
        config.alpn_protocols = protocols
            .iter()
            .map(|name| name.as_bytes().into())
            .collect();
        // The server's preference determines the cipher.
        config.ignore_client_order = true;
        config.ticketer = Arc::new(verified_tickets);
        // Tickets need no memory here, unlike a session cache, which would be a locked table shared by all workers.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(Self {
            default_config: Arc::new(config),
            challenge_config: None,
        })
    }

    /// Returns an acceptor that also answers ACME challenges, regardless of client authentication.
    ///
    /// # Errors
    /// None in practice: the configuration is built in.
    pub fn with_challenges(self, alpn_challenges: &AlpnChallenges) -> Result<Self, Error> {
        Ok(Self {
            challenge_config: Some(alpn_challenges.config()?),
            ..self
        })
    }

    /// Starts the server side of a connection.
    ///
    /// # Errors
    /// None in practice: the configuration was validated before.
    pub fn accept(&self) -> Result<TlsStream, Error> {
        if let Some(challenge_config) = &self.challenge_config {
            return Ok(TlsStream::awaiting_hello(PendingHello::new(
                &self.default_config,
                challenge_config,
            )));
        }
        let connection = ServerConnection::new(Arc::clone(&self.default_config))?;
        Ok(TlsStream::new(connection.into()))
    }
}

fn verifier_of(
    clients: Option<&ClientAuth>,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, Error> {
    let Some(clients) = clients else {
        return Ok(Arc::new(NoClientAuth));
    };
    let roots = Arc::clone(&clients.roots.store);
    let mut builder = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(provider));
    if !clients.is_required {
        builder = builder.allow_unauthenticated();
    }
    builder
        .build()
        .map_err(|error| Error::Tls(rustls::Error::General(error.to_string())))
}

/// Selects among the certificates of a listener.
#[derive(Debug)]
struct CertificateResolver(Vec<Certificate>);

impl ResolvesServerCert for CertificateResolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name().map(str::to_ascii_lowercase);
        let fit = |certificate: &Certificate| match &name {
            Some(name) => certificate.match_name(name),
            None => NameMatch::None,
        };
        let can_sign = |certificate: &&Certificate| {
            let schemes = hello.signature_schemes();
            certificate.key.key.choose_scheme(schemes).is_some()
        };
        let best = self.0.iter().map(fit).max()?;
        // Several certificates may match a name, such as one with RSA and one with ECDSA. The first that the client
        // supports is used.
        let mut fitting = self.0.iter().filter(|one| fit(one) == best);
        let chosen = fitting
            .clone()
            .find(can_sign)
            .or_else(|| fitting.next())
            .or_else(|| self.0.first())?;
        Some(Arc::clone(&chosen.key))
    }
}
