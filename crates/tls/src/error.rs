//! Errors of TLS configuration and connections.

use std::path::Path;

/// An error with a message for the operator.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The name can't be in a certificate.
    #[error("{0:?} is not a valid server name")]
    Name(String),
    /// A certificate or key file is unreadable or invalid.
    #[error("{file}: {why}")]
    File {
        /// The path of the file.
        file: String,
        /// The error of the system or the parser.
        why: String,
    },
    /// An error of the peer, its certificate or its messages.
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// The handshake exceeds its size limit.
    #[error("TLS: the handshake message is too long")]
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
