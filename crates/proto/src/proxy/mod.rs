//! The PROXY protocol, versions 1 and 2, for servers: the client's address, sent by a proxy before all other data.
//!
//! [`read`] parses a header from growing input. The specification is HAProxy's `doc/proxy-protocol.txt` (revision of
//! 2020); section numbers in comments refer to it. Whether the peer may send a header is checked elsewhere.
//!
//! Parsing is strict, as the specification requires: anything but a header of a known version is refused at the first
//! byte that shows it. Nothing here allocates, and no input causes a panic.

mod v1;
mod v2;

use std::net::IpAddr;

pub use v1::HEADER_BYTES_MAX as V1_BYTES_MAX;
pub use v2::HEADER_BYTES_MAX as V2_BYTES_MAX;

/// A complete PROXY header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProxyHeader {
    /// The length of the header in bytes; the client's data follows.
    pub length: usize,
    /// The client's address. `None` if the proxy itself has connected (`LOCAL`, for example for health checks) or if
    /// the client has no IP address (`UNKNOWN`, a Unix socket); only the transport's address is known then.
    pub client: Option<IpAddr>,
}

/// Why input is not a PROXY header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProxyHeaderError {
    /// The input does not begin like a header: the peer does not use the PROXY protocol.
    #[error("no PROXY header")]
    Missing,
    /// The input begins like a header but violates the format.
    #[error("malformed PROXY header")]
    Broken,
    /// The header is longer than [`V1_BYTES_MAX`] or [`V2_BYTES_MAX`].
    #[error("the PROXY header is too long")]
    TooLong,
}

/// Parses the header at the front of `input`; `None` while it is incomplete. Call again with the same bytes and those
/// received since: a header has at most [`V2_BYTES_MAX`] bytes.
///
/// # Errors
/// `input` does not begin with a header, or its header is malformed or too long.
pub fn read(input: &[u8]) -> Result<Option<ProxyHeader>, ProxyHeaderError> {
    match input.first() {
        None => Ok(None),
        Some(&first) if first == v1::SIGNATURE[0] => v1::read(input),
        Some(_) => v2::read(input),
    }
}

/// Checks that `input` begins with `signature`; `None` while `input` is too short to decide.
fn begins(input: &[u8], signature: &[u8]) -> Result<Option<()>, ProxyHeaderError> {
    let common = input.len().min(signature.len());
    if input[..common] != signature[..common] {
        return Err(ProxyHeaderError::Missing);
    }
    Ok((common == signature.len()).then_some(()))
}
