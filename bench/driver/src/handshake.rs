//! The opening handshake of RFC 6455 section 4, as little of it as a client must send and check.

use std::net::SocketAddr;

use anyhow::{bail, ensure};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use sha1::{Digest, Sha1};

/// The key of every handshake of the driver: it defends nobody, it only has to be answered correctly.
const KEY: &str = "dmVjaGUgYmVuY2ggMDAwMA==";

pub fn request(address: SocketAddr, path: &str) -> Vec<u8> {
    format!(
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\n\r\n"
    )
    .into_bytes()
}

/// Length of the answer's head once it is all there.
pub fn response(bytes: &[u8]) -> anyhow::Result<Option<usize>> {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
        ensure!(bytes.len() < 8192, "an endless response head");
        return Ok(None);
    };
    let head = String::from_utf8_lossy(&bytes[..end]);
    let mut lines = head.split("\r\n");
    let status = lines.next().unwrap_or_default();
    if !status.starts_with("HTTP/1.1 101 ") {
        bail!("{status}");
    }
    let wanted = accept(KEY);
    let accepted = lines
        .filter_map(|line| line.split_once(':'))
        .any(|(name, value)| {
            name.eq_ignore_ascii_case("sec-websocket-accept") && value.trim() == wanted
        });
    ensure!(accepted, "101 without the right Sec-WebSocket-Accept");
    Ok(Some(end + 4))
}

/// The value that proves that the server read the key.
pub fn accept(key: &str) -> String {
    const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    BASE64_STANDARD.encode(Sha1::digest(format!("{key}{GUID}")))
}
