//! Session tickets of clients with certificates: a ticket resumes a session only while the certificate in it would be
//! accepted in a full handshake.
//!
//! rustls restores the client's certificates from the ticket without verifying them again. [`VerifiedTickets`] verifies each
//! decrypted ticket and drops those whose certificate has expired or is no longer trusted; the handshake then continues
//! as a full one, so that a client with a renewed certificate is accepted.

use std::sync::Arc;

use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::ProducesTickets;
use rustls::server::danger::ClientCertVerifier;

/// Decrypts tickets and verifies the certificates in them.
#[derive(Debug)]
pub(crate) struct VerifiedTickets {
    pub(crate) tickets: Arc<dyn ProducesTickets>,
    /// Verifies client certificates; `None` if clients present no certificates.
    pub(crate) verifier: Option<Arc<dyn ClientCertVerifier>>,
}

impl ProducesTickets for VerifiedTickets {
    fn enabled(&self) -> bool {
        self.tickets.enabled()
    }

    fn lifetime(&self) -> u32 {
        self.tickets.lifetime()
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        // A session that can't be parsed now could not be verified on resumption, so it gets no
        // ticket.
        chain_of(plain)?;
        self.tickets.encrypt(plain)
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        let plain = self.tickets.decrypt(cipher)?;
        self.accepts(&chain_of(&plain)?, UnixTime::now())
            .then_some(plain)
    }
}

impl VerifiedTickets {
    fn accepts(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> bool {
        match (chain.split_first(), &self.verifier) {
            // The verifier alone decides whether a session without a certificate is acceptable.
            (None, verifier) => verifier
                .as_ref()
                .is_none_or(|verifier| !verifier.client_auth_mandatory()),
            (Some(_), None) => false,
            (Some((own, others)), Some(verifier)) => {
                verifier.verify_client_cert(own, others, now).is_ok()
            }
        }
    }
}

/// Returns the client's certificates, its own first, from a session as serialised by rustls 0.23; `None` for any other
/// form.
fn chain_of(session: &[u8]) -> Option<Vec<CertificateDer<'_>>> {
    let mut rest = session;
    if take_bool(&mut rest)? {
        let _name = sized(&mut rest, 1)?;
    }
    let _version_and_suite = take(&mut rest, 4)?;
    let _master_secret = sized(&mut rest, 1)?;
    let _extended = take(&mut rest, 1)?;
    let mut chain = Vec::new();
    if take_bool(&mut rest)? {
        let mut list = sized(&mut rest, 3)?;
        while !list.is_empty() {
            chain.push(CertificateDer::from(sized(&mut list, 3)?));
        }
    }
    if take_bool(&mut rest)? {
        let _protocol = sized(&mut rest, 1)?;
    }
    let _application_data = sized(&mut rest, 2)?;
    let _created_and_age = take(&mut rest, 8 + 4)?;
    rest.is_empty().then_some(chain)
}

fn take_bool(rest: &mut &[u8]) -> Option<bool> {
    match take(rest, 1)? {
        [0] => Some(false),
        [1] => Some(true),
        _ => None,
    }
}

/// Takes a byte string that is preceded by its length: a big-endian number of `width` bytes.
fn sized<'s>(rest: &mut &'s [u8], width: usize) -> Option<&'s [u8]> {
    let count = take(rest, width)?.iter();
    let count = count.fold(0, |count, &byte| count << 8 | usize::from(byte));
    take(rest, count)
}

fn take<'s>(rest: &mut &'s [u8], count: usize) -> Option<&'s [u8]> {
    let (taken, left) = rest.split_at_checked(count)?;
    *rest = left;
    Some(taken)
}
