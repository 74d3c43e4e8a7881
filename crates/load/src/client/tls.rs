//! TLS of one client, between the socket's bytes and its own.

use std::fs;
use std::io::{self, Read, Write};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme,
};

use crate::plan::TlsPlan;

/// What all TLS clients of an endpoint share.
#[derive(Clone, Debug)]
pub(crate) struct Trust {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl Trust {
    /// `host` is what the certificate must be for.
    pub(crate) fn new(plan: &TlsPlan, host: &str) -> Result<Self, String> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| format!("{host:?} is no name that a certificate could be for"))?;
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let config = if plan.insecure {
            builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(Anybody(provider)))
                .with_no_client_auth()
        } else {
            builder
                .with_root_certificates(roots(plan)?)
                .with_no_client_auth()
        };
        Ok(Self {
            config: Arc::new(config),
            name,
        })
    }

    pub(crate) fn connect(&self) -> Result<Box<Tls>, String> {
        ClientConnection::new(Arc::clone(&self.config), self.name.clone())
            .map(|mut connection| {
                // A message goes in whole, however long it is.
                connection.set_buffer_limit(None);
                Box::new(Tls(connection))
            })
            .map_err(|error| error.to_string())
    }
}

fn roots(plan: &TlsPlan) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    if let Some(file) = &plan.ca {
        let shown = file.display();
        let pem = fs::read(file).map_err(|error| format!("{shown}: {error}"))?;
        for certificate in CertificateDer::pem_slice_iter(&pem) {
            let certificate = certificate.map_err(|error| format!("{shown}: {error}"))?;
            roots
                .add(certificate)
                .map_err(|error| format!("{shown}: {error}"))?;
        }
        if roots.is_empty() {
            return Err(format!("{shown}: no certificate in it"));
        }
    } else {
        // Those that can't be read are left out: an unknown issuer is told when it matters.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    Ok(roots)
}

/// One client's TLS.
#[derive(Debug)]
pub(crate) struct Tls(ClientConnection);

impl Tls {
    /// Takes bytes of the socket and appends what they hold to `plain`.
    pub(crate) fn receive(&mut self, mut bytes: &[u8], plain: &mut Vec<u8>) -> Result<(), String> {
        while !bytes.is_empty() {
            // Reading from memory does not fail.
            let taken = self.0.read_tls(&mut bytes).unwrap_or(0);
            let state = self
                .0
                .process_new_packets()
                .map_err(|error| error.to_string())?;
            let length = state.plaintext_bytes_to_read();
            if length > 0 {
                let start = plain.len();
                plain.resize(start + length, 0);
                self.0
                    .reader()
                    .read_exact(&mut plain[start..])
                    .map_err(|error| error.to_string())?;
            } else if taken == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Appends to `out` what has to go out: `plain`, and what the handshake wants to say.
    pub(crate) fn send(&mut self, plain: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        self.0.writer().write_all(plain)?;
        while self.0.wants_write() {
            self.0.write_tls(out)?;
        }
        Ok(())
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        self.0.is_handshaking()
    }
}

/// Takes any certificate: for servers with one of their own making.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(
            message,
            certificate,
            signed,
            &self.0.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            certificate,
            signed,
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
