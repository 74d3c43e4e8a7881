//! The server's end: what all connections of a listener share.
//!
//! An [`Acceptor`] is made of certificates, wherever they came from: files today, and whoever gets them from elsewhere
//! makes a new one and hands it out. Connections keep what they began with.

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

/// What clients have to show.
#[derive(Clone, Debug)]
pub struct ClientAuth {
    /// Who vouches for them.
    pub roots: Roots,
    /// Whether those without a certificate are sent away.
    pub is_required: bool,
}

/// Certificates that vouch for others, of a PEM file. They are the same if the file is.
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
    /// Reads them.
    ///
    /// # Errors
    /// The file can't be read, or has none in it.
    pub fn read(file: &Path) -> Result<Self, Error> {
        Self::of(file, read_file(file)?)
    }

    /// The same of a file that a script names: of any kind, and as slow as it likes.
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

    /// The file as it was read.
    #[must_use]
    pub fn pem(&self) -> &[u8] {
        &self.pem
    }
}

/// The keys of session tickets: whoever comes back with a ticket has a short handshake, on any worker.
///
/// They change every six hours, and the ones before are taken for six more. A client that showed a certificate comes
/// back by a ticket only while that certificate holds and the roots in force vouch for it; otherwise its handshake is a
/// full one.
#[derive(Clone)]
pub struct Tickets(Arc<dyn ProducesTickets>);

impl Tickets {
    /// Keys of their own.
    ///
    /// # Errors
    /// The system gives no random numbers.
    pub fn new() -> Result<Self, Error> {
        Ok(Self(ring::Ticketer::new()?))
    }
}

impl fmt::Debug for Tickets {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Tickets(…)")
    }
}

/// See the module's text. Its copies cost nothing.
#[derive(Clone, Debug)]
pub struct Acceptor {
    default_config: Arc<ServerConfig>,
    /// Of clients that look for a proof.
    challenge_config: Option<Arc<ServerConfig>>,
}

impl Acceptor {
    /// For connections that are shown one of these certificates, by the name that they ask for: exactly, else by a
    /// wildcard, else the first; without any each handshake fails. `protocols` are what is spoken inside (ALPN), best
    /// first; with none the client's wishes are not looked at.
    ///
    /// # Errors
    /// What vouches for clients makes no sense.
    pub fn new(
        certificates: Vec<Certificate>,
        clients: Option<&ClientAuth>,
        protocols: &[&str],
        tickets: &Tickets,
    ) -> Result<Self, Error> {
        let provider = Arc::new(ring::default_provider());
        let verifier = verifier_of(clients, &provider)?;
        let judged = VerifiedTickets {
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
        // The strongest that both know, whatever the client would rather have.
        config.ignore_client_order = true;
        config.ticketer = Arc::new(judged);
        // Tickets need no memory here; the other way would be a locked table for all workers.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(Self {
            default_config: Arc::new(config),
            challenge_config: None,
        })
    }

    /// The same, which also shows these proofs to those who look for them, whatever else holds for clients.
    ///
    /// # Errors
    /// None in practice: the settings are our own.
    pub fn with_challenges(self, proofs: &AlpnChallenges) -> Result<Self, Error> {
        Ok(Self {
            challenge_config: Some(proofs.config()?),
            ..self
        })
    }

    /// The server's end of a connection that begins.
    ///
    /// # Errors
    /// None in practice: the settings were judged before.
    pub fn accept(&self) -> Result<TlsStream, Error> {
        if let Some(proofs) = &self.challenge_config {
            return Ok(TlsStream::awaiting_hello(PendingHello::new(
                &self.default_config,
                proofs,
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

/// The certificates of a listener.
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
        // Two for one name, as of RSA beside ECDSA: the first that the client understands.
        let mut fitting = self.0.iter().filter(|one| fit(one) == best);
        let chosen = fitting
            .clone()
            .find(can_sign)
            .or_else(|| fitting.next())
            .or_else(|| self.0.first())?;
        Some(Arc::clone(&chosen.key))
    }
}
