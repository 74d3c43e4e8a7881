//! TLS over buffers: ciphertext in, plaintext out, and the other way round.
//!
//! It knows no socket and no loop: whoever has the bytes hands them in and sends what comes out. [`Tls`] is one
//! connection, either end of it; [`Trust`] is what clients of one kind share: which certificates they believe, and
//! [`Trusts`] has those of a whole process; [`Acceptor`] is what the connections of one listener share: which
//! [`Certificate`]s they are shown, and, while one is ordered, which [`Proofs`]. The load tester, the worker and the HTTP client stand on it.

#![forbid(unsafe_code)]

mod acceptor;
mod anybody;
mod certificate;
mod failure;
mod greeting;
mod proof;
mod resumption;
mod stamp;
mod subject;
mod tls;
mod trust;
mod trusts;

use std::path::Path;

pub use acceptor::{Acceptor, Clients, Roots, Tickets};
pub use certificate::Certificate;
pub use failure::Failure;
pub use proof::{Proof, Proofs};
pub use stamp::{Stamp, stamp};
pub use subject::Subject;
pub use tls::{Agreed, Tls};
pub use trust::{Believe, Trust};
pub use trusts::Trusts;

/// What went wrong, in words for whoever set up the connection.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The name can be in no certificate.
    #[error("{0:?} is no name that a certificate could be for")]
    Name(String),
    /// A file of certificates or keys can't be read, or is no good.
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
    /// A handshake that goes on and on.
    #[error("TLS: the handshake is too long")]
    TooLong,
}

impl Error {
    fn file(file: &Path, why: impl Into<String>) -> Self {
        Self::File {
            file: file.display().to_string(),
            why: why.into(),
        }
    }
}
