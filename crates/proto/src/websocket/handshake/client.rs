//! The client's half of a WebSocket handshake: the request, and validation of the response.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::{KEY_LEN, VERSION, accept};
use crate::http::list_members;
use crate::websocket::deflate::{self, DeflateParams, DeflatePolicy};

/// Maximum length of a response head.
pub const RESPONSE_BYTES_MAX: usize = 16 * 1024;
const RESPONSE_HEADERS_MAX: usize = 64;

/// The values selected by the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandshakeResponse<'r> {
    /// The subprotocol selected by the server.
    pub protocol: Option<&'r str>,
    /// The negotiated parameters of compression.
    pub deflate: Option<DeflateParams>,
}

/// A response that opens no WebSocket; the connection can't be used further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResponseError {
    /// The response is not HTTP.
    #[error("the response is not HTTP")]
    Malformed,
    /// The response head exceeds [`RESPONSE_BYTES_MAX`] or has too many header lines.
    #[error("the head of the response is too large")]
    TooLarge,
    /// The response has a status other than 101, such as that of a redirect or refusal.
    #[error("the server answered with status {0}")]
    Status(u16),
    /// The response lacks a valid `Upgrade` or `Connection` header.
    #[error("the server did not upgrade to WebSocket")]
    NotUpgraded,
    /// The response does not match the request's key. It comes from a cache, or from a server
    /// without WebSocket.
    #[error("Sec-WebSocket-Accept does not match")]
    Accept,
    /// The response selects a subprotocol that was not offered.
    #[error("the server chose a subprotocol that was not offered")]
    Protocol,
    /// The response selects extensions or parameters that were not offered.
    #[error("Sec-WebSocket-Extensions: {0}")]
    Extension(&'static str),
}

/// Encodes a key; `random` must be fresh for each connection (RFC 6455 section 4.1).
#[must_use]
pub fn new_key(random: [u8; 16]) -> String {
    STANDARD.encode(random)
}

/// Appends the request. `host` is the host and port of the URL, `target` its path and query.
/// `protocols` is a list in header format, or empty. `headers` are additional headers, such as
/// Origin or Cookie. Values with line breaks are omitted.
pub fn write_request<'h>(
    out: &mut Vec<u8>,
    host: &str,
    target: &str,
    key: &str,
    protocols: &str,
    deflate: Option<&DeflatePolicy>,
    headers: impl IntoIterator<Item = (&'h str, &'h str)>,
) {
    debug_assert_eq!(key.len(), KEY_LEN);
    let target = if is_safe(target) && !target.contains(' ') {
        target
    } else {
        "/"
    };
    out.extend_from_slice(b"GET ");
    out.extend_from_slice(target.as_bytes());
    out.extend_from_slice(b" HTTP/1.1\r\n");
    write_header(out, "Host", host);
    out.extend_from_slice(b"Upgrade: websocket\r\nConnection: Upgrade\r\n");
    write_header(out, "Sec-WebSocket-Key", key);
    write_header(out, "Sec-WebSocket-Version", VERSION);
    if !protocols.is_empty() {
        write_header(out, "Sec-WebSocket-Protocol", protocols);
    }
    if let Some(policy) = deflate {
        out.extend_from_slice(b"Sec-WebSocket-Extensions: ");
        deflate::write_offer(out, policy);
        out.extend_from_slice(b"\r\n");
    }
    for (name, value) in headers {
        write_header(out, name, value);
    }
    out.extend_from_slice(b"\r\n");
}

/// Parses the response at the front of `input`. `key`, `protocols` and `deflate` are those of the request. Returns the
/// length of the response (frames may follow) and the negotiated values; `None` while the response is incomplete.
///
/// # Errors
/// The response does not accept the request (RFC 6455 section 4.1).
pub fn read_response<'r>(
    input: &'r [u8],
    key: &str,
    protocols: &str,
    deflate: Option<&DeflatePolicy>,
) -> Result<Option<(usize, HandshakeResponse<'r>)>, ResponseError> {
    let mut headers = [httparse::EMPTY_HEADER; RESPONSE_HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    let size = match response.parse(&input[..input.len().min(RESPONSE_BYTES_MAX)]) {
        Ok(httparse::Status::Complete(size)) => size,
        Ok(httparse::Status::Partial) if input.len() >= RESPONSE_BYTES_MAX => {
            return Err(ResponseError::TooLarge);
        }
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(ResponseError::TooLarge),
        Err(_) => return Err(ResponseError::Malformed),
    };
    let status = response.code.unwrap_or_default();
    if status != 101 {
        return Err(ResponseError::Status(status));
    }
    let headers: &[httparse::Header<'r>] = response.headers;
    let values = |name: &'static str| {
        headers
            .iter()
            .filter(move |header| header.name.eq_ignore_ascii_case(name))
            .filter_map(|header| std::str::from_utf8(header.value).ok())
    };
    let has_token = |name: &'static str, token: &str| {
        values(name)
            .flat_map(list_members)
            .any(|member| member.eq_ignore_ascii_case(token))
    };
    if !has_token("upgrade", "websocket") || !has_token("connection", "upgrade") {
        return Err(ResponseError::NotUpgraded);
    }
    if !values("sec-websocket-accept")
        .map(str::as_bytes)
        .eq([&accept(key)[..]])
    {
        return Err(ResponseError::Accept);
    }
    let mut chosen = values("sec-websocket-protocol");
    let protocol = chosen.next();
    if let Some(protocol) = protocol
        && (chosen.next().is_some() || !list_members(protocols).any(|offered| offered == protocol))
    {
        return Err(ResponseError::Protocol);
    }
    let deflate = deflate::read_response(values("sec-websocket-extensions"), deflate)
        .map_err(ResponseError::Extension)?;
    Ok(Some((size, HandshakeResponse { protocol, deflate })))
}

fn write_header(out: &mut Vec<u8>, name: &str, value: &str) {
    if is_safe(name) && is_safe(value) {
        for part in [name, ": ", value, "\r\n"] {
            out.extend_from_slice(part.as_bytes());
        }
    }
}

/// Returns whether a part of the request contains neither a line break nor a NUL byte.
fn is_safe(part: &str) -> bool {
    !part.bytes().any(|byte| matches!(byte, b'\r' | b'\n' | 0))
}
