//! Errors of setting up and of running TLS.

use std::path::Path;

/// What went wrong, in words for whoever set up the connection.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The name can be in no certificate.
    #[error("{0:?} is not a valid server name")]
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
    /// A handshake that exceeds its limit of data.
    #[error("TLS: the handshake is too long")]
    TooLong,
}

impl Error {
    pub(crate) fn file(file: &Path, why: impl Into<String>) -> Self {
        Self::File {
            file: file.display().to_string(),
            why: why.into(),
        }
    }
}
