//! TLS over buffers: ciphertext in, plaintext out, and vice versa.
//!
//! The crate has no sockets and no event loop: the caller passes received bytes in and sends the
//! output. [`TlsStream`] is one side of a connection. [`ClientTrust`] is shared by clients with the
//! same trusted authorities, and [`TrustStores`] caches the `ClientTrust` of each source for a
//! process. [`Acceptor`] is shared by the connections of a listener: it has the [`Certificate`]s
//! and the pending [`AlpnChallenges`]. The load tester, the worker and the HTTP client use this
//! crate.

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
