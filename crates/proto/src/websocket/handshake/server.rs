//! The server's half of the handshake: detects an upgrade, and writes the response.

use super::{KEY_LEN, VERSION, accept};
use crate::http::{Framing, Head, HttpError, HttpVersion, Method, Status, list_members};
use crate::websocket::deflate::DeflateParams;

/// A valid upgrade request. Whether it is accepted is the route's decision.
#[derive(Clone, Copy, Debug)]
pub struct UpgradeRequest<'a, 'b> {
    /// `Sec-WebSocket-Key`: 16 bytes in base64.
    pub key: &'b str,
    head: &'a Head<'b>,
}

impl<'a, 'b> UpgradeRequest<'a, 'b> {
    /// Returns the client's subprotocols in order of preference.
    pub fn protocols(&self) -> impl Iterator<Item = &'b str> + use<'a, 'b> {
        self.head
            .header_all("sec-websocket-protocol")
            .flat_map(list_members)
    }

    /// Returns the values of `Sec-WebSocket-Extensions` for [`negotiate`](crate::websocket::deflate::negotiate).
    pub fn extensions(&self) -> impl Iterator<Item = &'b str> + use<'a, 'b> {
        self.head.header_all("sec-websocket-extensions")
    }
}

/// Parses an upgrade request; `None` if the request does not ask for a WebSocket, so that it needs an ordinary HTTP
/// response.
///
/// # Errors
///
/// The upgrade violates RFC 6455 section 4.2.1. The status is 400, or 426 for another version of the protocol. The
/// response with 426 includes `Sec-WebSocket-Version` with [`VERSION`].
pub fn read<'a, 'b>(head: &'a Head<'b>) -> Result<Option<UpgradeRequest<'a, 'b>>, HttpError> {
    // HTTP/1.0 has no upgrades (RFC 9110 section 7.8).
    if head.version == HttpVersion::Http10 || !head.header_has_token("upgrade", "websocket") {
        return Ok(None);
    }
    if head.method != Method::Get {
        return Err(refusal("a WebSocket handshake must be a GET request"));
    }
    if !head.header_has_token("connection", "upgrade") {
        return Err(refusal("the header Connection does not contain upgrade"));
    }
    // Parsers could disagree about where a body ends and the first frame begins, so a request with a body is refused.
    if !matches!(head.framing, Framing::None | Framing::Sized(0)) {
        return Err(refusal("a WebSocket handshake must not have a body"));
    }
    match only(head, "sec-websocket-version") {
        Some(VERSION) => {}
        None => return Err(refusal("Sec-WebSocket-Version is missing or repeated")),
        Some(_) => {
            let reason = "only version 13 of WebSocket is supported";
            return Err(HttpError {
                status: Status::UPGRADE_REQUIRED,
                reason,
            });
        }
    }
    let key = only(head, "sec-websocket-key")
        .ok_or(refusal("Sec-WebSocket-Key is missing or repeated"))?;
    if !is_key(key) {
        return Err(refusal("Sec-WebSocket-Key is not 16 bytes in base64"));
    }
    Ok(Some(UpgradeRequest { key, head }))
}

/// Appends the 101 response. `protocol` is one of those offered, or `None`.
pub fn write_response(
    out: &mut Vec<u8>,
    key: &str,
    protocol: Option<&str>,
    deflate: Option<DeflateParams>,
) {
    out.extend_from_slice(
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ",
    );
    out.extend_from_slice(&accept(key));
    out.extend_from_slice(b"\r\n");
    if let Some(protocol) = protocol {
        // `protocol` is one of the protocols that the client offered, none of which contains line breaks. The filter
        // below guards against a caller that passes another value.
        debug_assert!(protocol.bytes().all(|byte| byte.is_ascii_graphic()));
        out.extend_from_slice(b"Sec-WebSocket-Protocol: ");
        out.extend(protocol.bytes().filter(u8::is_ascii_graphic));
        out.extend_from_slice(b"\r\n");
    }
    if let Some(agreed) = deflate {
        out.extend_from_slice(b"Sec-WebSocket-Extensions: ");
        agreed.write_response(out);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"\r\n");
}

fn refusal(reason: &'static str) -> HttpError {
    HttpError {
        status: Status::BAD_REQUEST,
        reason,
    }
}

/// Returns the value of a header that must not be repeated; `None` if the header is missing or repeated.
fn only<'b>(head: &Head<'b>, name: &str) -> Option<&'b str> {
    let mut values = head.header_all(name);
    let value = values.next()?;
    values.next().is_none().then_some(value)
}

/// Returns whether a key is base64 of 16 bytes: 22 characters and two pads. The value of the bytes does not matter.
fn is_key(key: &str) -> bool {
    key.len() == KEY_LEN
        && key.ends_with("==")
        && key
            .bytes()
            .take(KEY_LEN - 2)
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/'))
}
