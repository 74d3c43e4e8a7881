//! TLS over buffers: ciphertext in, plaintext out, and the other way round.
//!
//! It knows no socket and no loop: whoever has the bytes hands them in and sends what comes out. [`TlsStream`] is one
//! connection, either end of it; [`ClientTrust`] is what clients of one kind share: which certificates they believe, and
//! [`TrustStores`] has those of a whole process; [`Acceptor`] is what the connections of one listener share: which
//! [`Certificate`]s they are shown, and, while one is ordered, which [`AlpnChallenges`]. The load tester, the worker and the HTTP client stand on it.

#![forbid(unsafe_code)]

mod acceptor;
mod alpn_challenge;
mod certificate;
mod client_hello;
mod error;
mod failure;
mod file_fingerprint;
mod insecure_verifier;
mod resumption;
mod stream;
mod subject;
mod trust;
mod trust_stores;

pub use acceptor::{Acceptor, ClientAuth, Roots, Tickets};
pub use alpn_challenge::{AlpnChallenge, AlpnChallenges};
pub use certificate::Certificate;
pub use error::Error;
pub use failure::TlsFailure;
pub use file_fingerprint::{FileFingerprint, fingerprint};
pub use stream::{Negotiated, TlsStream};
pub use subject::CertificateSubject;
pub use trust::{ClientTrust, TrustSource};
pub use trust_stores::TrustStores;
