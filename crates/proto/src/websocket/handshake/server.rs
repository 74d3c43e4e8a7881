//! The server's half: is this request an upgrade, and what is answered.

use super::{KEY_LEN, VERSION, accept};
use crate::http::{Framing, Head, HttpError, HttpVersion, Method, Status, list_members};
use crate::websocket::deflate::DeflateParams;

/// A request to upgrade that is right by the protocol. Whether it is welcome is the route's decision.
#[derive(Clone, Copy, Debug)]
pub struct UpgradeRequest<'a, 'b> {
    /// `Sec-WebSocket-Key`: 16 bytes in base64.
    pub key: &'b str,
    head: &'a Head<'b>,
}

impl<'a, 'b> UpgradeRequest<'a, 'b> {
    /// The subprotocols that the client speaks, the preferred first.
    pub fn protocols(&self) -> impl Iterator<Item = &'b str> + use<'a, 'b> {
        self.head
            .header_all("sec-websocket-protocol")
            .flat_map(list_members)
    }

    /// The values of `Sec-WebSocket-Extensions`, for [`negotiate`](crate::websocket::deflate::negotiate).
    pub fn extensions(&self) -> impl Iterator<Item = &'b str> + use<'a, 'b> {
        self.head.header_all("sec-websocket-extensions")
    }
}

/// Reads an upgrade; `None` where the request is none to WebSocket and is to be answered as HTTP.
///
/// # Errors
/// An upgrade that RFC 6455 section 4.2.1 does not allow: 400, or 426 for another version of the protocol, whose
/// answer carries `Sec-WebSocket-HttpVersion` with [`VERSION`].
pub fn read<'a, 'b>(head: &'a Head<'b>) -> Result<Option<UpgradeRequest<'a, 'b>>, HttpError> {
    // HTTP/1.0 knows no upgrades (RFC 9110 section 7.8).
    if head.version == HttpVersion::Http10 || !head.header_has_token("upgrade", "websocket") {
        return Ok(None);
    }
    if head.method != Method::Get {
        return Err(refusal("a WebSocket handshake is a GET"));
    }
    if !head.header_has_token("connection", "upgrade") {
        return Err(refusal("Connection does not say upgrade"));
    }
    // A body would have to be told from the first frame; two readers might do so differently.
    if !matches!(head.framing, Framing::None | Framing::Sized(0)) {
        return Err(refusal("a WebSocket handshake has no body"));
    }
    match only(head, "sec-websocket-version") {
        Some(VERSION) => {}
        None => return Err(refusal("Sec-WebSocket-Version missing or doubled")),
        Some(_) => {
            let reason = "only version 13 of WebSocket is spoken here";
            return Err(HttpError {
                status: Status::UPGRADE_REQUIRED,
                reason,
            });
        }
    }
    let key =
        only(head, "sec-websocket-key").ok_or(refusal("Sec-WebSocket-Key missing or doubled"))?;
    if !is_key(key) {
        return Err(refusal("Sec-WebSocket-Key is not 16 bytes in base64"));
    }
    Ok(Some(UpgradeRequest { key, head }))
}

/// Appends the 101. `protocol` is one of those offered, or `None`.
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
        // Chosen from the offer, whose members hold no line breaks; but a caller might choose otherwise.
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

/// The value of a header that may stand there once.
fn only<'b>(head: &Head<'b>, name: &str) -> Option<&'b str> {
    let mut values = head.header_all(name);
    let value = values.next()?;
    values.next().is_none().then_some(value)
}

/// Base64 of 16 bytes: 22 digits and two pads. What the digits say does not matter.
fn is_key(key: &str) -> bool {
    key.len() == KEY_LEN
        && key.ends_with("==")
        && key
            .bytes()
            .take(KEY_LEN - 2)
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/'))
}
