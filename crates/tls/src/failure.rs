//! Why handshakes fail, as operators tell the cases apart.

use rustls::Error as TlsError;

use crate::Error;

/// What was wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsFailure {
    /// The two have no version, cipher or protocol in common.
    Incompatible,
    /// The peer's certificate is missing, or is not believed.
    Certificate,
    /// There is nothing to show to a client that asks for that name.
    NoCertificate,
    /// The peer gave up: most often it does not believe our certificate.
    Refused,
    /// What came is no TLS, or breaks its rules.
    Malformed,
}

impl Error {
    /// What kind of failure it is.
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
            // What rustls says where the resolver has none; it has no name for it.
            TlsError::General(why) if why.starts_with("no server certificate") => {
                TlsFailure::NoCertificate
            }
            _ => TlsFailure::Malformed,
        }
    }
}
