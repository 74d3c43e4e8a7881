//! The PROXY protocol, versions 1 and 2, as a server reads it: whom a proxy speaks for, said in front of all else.
//!
//! [`read`] takes a header off growing input. The text is HAProxy's `doc/proxy-protocol.txt` (revision of 2020); the
//! numbers in the comments are its sections. Whether the peer may say such a thing at all is for others to know.
//!
//! Strict, as the text asks: what is no header of a known version is refused at the first byte that shows it, and
//! nothing is guessed. Nothing here allocates, and no input makes it panic.

mod v1;
mod v2;

use std::net::IpAddr;

pub use v1::HEADER_BYTES_MAX as V1_BYTES_MAX;
pub use v2::HEADER_BYTES_MAX as V2_BYTES_MAX;

/// A header, read to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Its bytes; what comes behind them is the client's.
    pub length: usize,
    /// Who speaks. `None`: the proxy itself (`LOCAL`, such as its health checks), or somebody without an IP address
    /// (`UNKNOWN`, a Unix socket): then the transport's own address is all there is.
    pub client: Option<IpAddr>,
}

/// What came is no header of the PROXY protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// It begins as no header does: the peer does not speak the PROXY protocol.
    #[error("no PROXY header")]
    Missing,
    /// It begins as one, and breaks its rules.
    #[error("malformed PROXY header")]
    Broken,
    /// It is longer than [`V1_BYTES_MAX`] or [`V2_BYTES_MAX`].
    #[error("the PROXY header is too long")]
    TooLong,
}

/// Reads the header that `input` begins with; `None` while it is not all there. To be asked again with what was there
/// and what has come since: at most [`V2_BYTES_MAX`] bytes of a header are ever waited for.
///
/// # Errors
/// `input` does not begin with a header, or with one that is broken or too long.
pub fn read(input: &[u8]) -> Result<Option<Header>, Malformed> {
    match input.first() {
        None => Ok(None),
        Some(&first) if first == v1::SIGNATURE[0] => v1::read(input),
        Some(_) => v2::read(input),
    }
}

/// Whether `input` begins with `signature`; `None` while that can still become so.
fn begins(input: &[u8], signature: &[u8]) -> Result<Option<()>, Malformed> {
    let common = input.len().min(signature.len());
    if input[..common] != signature[..common] {
        return Err(Malformed::Missing);
    }
    Ok((common == signature.len()).then_some(()))
}
