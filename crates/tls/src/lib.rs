//! TLS over buffers: ciphertext in, plaintext out, and the other way round.
//!
//! It knows no socket and no loop: whoever has the bytes hands them in and sends what comes out. [`Tls`] is one
//! connection, either end of it; [`Trust`] is what clients of one kind share: which certificates they believe, and
//! [`Trusts`] has those of a whole process. The load tester, the worker and the HTTP client stand on it.

#![forbid(unsafe_code)]

mod anybody;
mod tls;
mod trust;
mod trusts;

pub use tls::Tls;
pub use trust::{Believe, Trust};
pub use trusts::Trusts;

/// What went wrong, in words for whoever set up the connection.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The name can be in no certificate.
    #[error("{0:?} is no name that a certificate could be for")]
    Name(String),
    /// A file of certificates can't be read, or has none.
    #[error("{file}: {why}")]
    File {
        /// Its path.
        file: String,
        /// What the system or the parser says.
        why: String,
    },
    /// The peer, its certificate, or what it sent.
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
}
