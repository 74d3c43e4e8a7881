//! Limits on a request, and the error with which a request is refused.

use super::Status;

/// Limits on one request. The defaults suit browsers and back ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadLimits {
    /// Maximum length of a head: request line, header lines and the empty line. Longer heads are refused with 431. At
    /// most [`HEAD_BYTES_MAX`](super::HEAD_BYTES_MAX).
    pub head_bytes_max: usize,
    /// Maximum number of header lines. More are refused with 431. At most [`HEADERS_MAX`](super::HEADERS_MAX).
    pub headers_max: usize,
    /// Maximum length of the request target. Longer targets are refused with 414.
    pub target_bytes_max: usize,
    /// Maximum length of the body's payload. A longer body is refused with 413. If the head declares the length, the
    /// body is refused before it is read.
    pub body_bytes_max: u64,
}

impl Default for HeadLimits {
    fn default() -> Self {
        Self {
            head_bytes_max: 16 * 1024,
            headers_max: 64,
            target_bytes_max: 8 * 1024,
            body_bytes_max: 1024 * 1024,
        }
    }
}

/// A refused request. It is answered with `status` and the connection is closed, since the start of the next request is
/// uncertain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct HttpError {
    /// The status of the response.
    pub status: Status,
    /// The reason, for the response's body and the log. Contains nothing that the peer sent.
    pub reason: &'static str,
}

impl HttpError {
    pub(super) const fn new(status: Status, reason: &'static str) -> Self {
        Self { status, reason }
    }

    /// Creates a refusal with status 400.
    pub(super) const fn bad(reason: &'static str) -> Self {
        Self::new(Status::BAD_REQUEST, reason)
    }
}
