//! What a request may cost, and how it is refused.

use super::Status;

/// What one request may cost. The defaults suit browsers and back ends alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadLimits {
    /// The whole head: request line, header lines and the empty line. More is refused with 431. At most
    /// [`HEAD_BYTES_MAX`](super::HEAD_BYTES_MAX) counts.
    pub head_bytes_max: usize,
    /// Header lines. More are refused with 431. At most [`HEADERS_MAX`](super::HEADERS_MAX) counts.
    pub headers_max: usize,
    /// The request target. More is refused with 414.
    pub target_bytes_max: usize,
    /// The body's payload. More is refused with 413: an announced length before a byte of it is read.
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

/// A request that is refused. The connection is answered with `status` and closed: where the next request would begin
/// is no longer certain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct HttpError {
    /// What the peer is answered.
    pub status: Status,
    /// Why, for the answer's body and the log. Never holds anything the peer sent.
    pub reason: &'static str,
}

impl HttpError {
    pub(super) const fn new(status: Status, reason: &'static str) -> Self {
        Self { status, reason }
    }

    /// The commonest refusal: 400.
    pub(super) const fn bad(reason: &'static str) -> Self {
        Self::new(Status::BAD_REQUEST, reason)
    }
}
