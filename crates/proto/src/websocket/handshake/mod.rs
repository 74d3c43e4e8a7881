//! The opening handshake (RFC 6455 section 4): an HTTP request that asks to upgrade, and its 101 response.
//!
//! The server's half works on a [`Head`](crate::http::Head) that `http` has parsed; the client's half writes its own
//! request and reads the response. Callers choose routes and subprotocols, and check origins.

mod client;
mod server;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest, Sha1};

pub use client::{
    HandshakeResponse, RESPONSE_BYTES_MAX, ResponseError, new_key, read_response, write_request,
};
pub use server::{UpgradeRequest, read, write_response};

/// The supported version in `Sec-WebSocket-Version`. A 426 must include it (RFC 6455 section 4.4).
pub const VERSION: &str = "13";

/// Length of a key in base64.
const KEY_LEN: usize = 24;
const ACCEPT_LEN: usize = 28;

/// Returns the accept value for `key` (RFC 6455 section 4.2.2 item 5.4).
fn accept(key: &str) -> [u8; ACCEPT_LEN] {
    let mut hash = Sha1::new();
    hash.update(key.as_bytes());
    hash.update(b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    let mut value = [0; ACCEPT_LEN];
    STANDARD
        .encode_slice(hash.finalize(), &mut value)
        .expect("20 bytes must be 28 characters in base64");
    value
}

#[cfg(test)]
mod tests {
    #[test]
    fn example_of_rfc_6455_section_1_3() {
        assert_eq!(
            &super::accept("dGhlIHNhbXBsZSBub25jZQ=="),
            b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        );
    }
}
