//! Categories of handshake failures for operators.

use rustls::Error as TlsError;

use crate::Error;

/// The category of a handshake failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsFailure {
    /// The peers have no version, cipher or protocol in common.
    Incompatible,
    /// The peer's certificate is missing or not trusted.
    Certificate,
    /// No certificate matches the requested name.
    NoCertificate,
    /// The peer aborted the handshake, most often because it does not trust this end's certificate.
    Refused,
    /// The peer's bytes are not TLS or violate the protocol.
    Malformed,
}

impl Error {
    /// Returns the category of the failure.
    #[must_use]
    pub fn failure(&self) -> TlsFailure {
        let Self::Tls(error) = self else {
            return TlsFailure::Malformed;
        };
        match error {
            TlsError::PeerIncompatible(_) | TlsError::NoApplicationProtocol => {
                TlsFailure::Incompatible
            }
            TlsError::NoCertificatesPresented
            | TlsError::InvalidCertificate(_)
            | TlsError::InvalidCertRevocationList(_)
            | TlsError::UnsupportedNameType => TlsFailure::Certificate,
            TlsError::AlertReceived(_) => TlsFailure::Refused,
            // rustls has no variant for a resolver that returns no certificate: it reports this
            // text.
            TlsError::General(why) if why.starts_with("no server certificate") => {
                TlsFailure::NoCertificate
            }
            _ => TlsFailure::Malformed,
        }
    }
}
