//! Encoding of responses: head, chunks, and refusals.

use super::syntax::{is_token_byte, is_value_byte};
use super::{Head, HttpError, HttpVersion, Status};

/// A date in header format (`Sun, 06 Nov 1994 08:49:37 GMT`), formatted once a second by the owner of the clock.
pub type DateHeader = [u8; 29];

/// The interim response awaited by a peer that sent `Expect: 100-continue`.
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// How a response's body is delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseBody {
    /// The length in bytes. HEAD responses announce it and send no body.
    Sized(u64),
    /// The body is sent in chunks and ends with an empty one; see [`write_chunk`] and
    /// [`finish_chunks`].
    Chunked,
    /// The body ends when the connection is closed, as in streams to HTTP/1.0 clients.
    UntilClose,
}

/// The status of a response, and the headers that frame it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseHead {
    /// The final status, 200 to 599; other values become 500. 100 and 101 are written elsewhere.
    pub status: Status,
    /// The request's version. The response always has version HTTP/1.1 (RFC 9110 section 6.2).
    pub version: HttpVersion,
    /// Whether the connection stays open, announced as `version` requires.
    pub keep_alive: bool,
    /// How the body is delimited. Ignored for a status that has no body.
    pub body: ResponseBody,
}

impl ResponseHead {
    /// Creates the head of a response to `request`. For HTTP/1.0, a chunked body becomes a body
    /// that ends when the connection is closed: check the result's `body` and `keep_alive`.
    #[must_use]
    pub const fn to(request: &Head<'_>, status: Status, body: ResponseBody) -> Self {
        Self {
            status,
            version: request.version,
            keep_alive: request.keep_alive,
            body,
        }
        .settled()
    }

    /// Corrects options that exclude each other: chunks for HTTP/1.0 become a body until close, a body until close ends
    /// the connection, and an invalid status becomes 500.
    const fn settled(mut self) -> Self {
        if self.status.0 < 200 || self.status.0 > 599 {
            self.status = Status::INTERNAL_SERVER_ERROR;
        }
        if matches!(self.version, HttpVersion::Http10) && matches!(self.body, ResponseBody::Chunked)
        {
            self.body = ResponseBody::UntilClose;
        }
        if matches!(self.body, ResponseBody::UntilClose) && self.status.has_body() {
            self.keep_alive = false;
        }
        self
    }

    /// Appends the status line and framing headers; the returned writer adds further headers.
    pub fn start<'o>(&self, out: &'o mut Vec<u8>, date: &DateHeader) -> ResponseWriter<'o> {
        let head = self.settled();
        out.reserve(HEAD_BYTES_TYPICAL);
        if head.status == Status::OK {
            out.extend_from_slice(b"HTTP/1.1 200 OK\r\nDate: ");
        } else {
            out.extend_from_slice(b"HTTP/1.1 ");
            out.extend_from_slice(&head.status.digits());
            out.push(b' ');
            out.extend_from_slice(head.status.phrase().as_bytes());
            out.extend_from_slice(b"\r\nDate: ");
        }
        out.extend_from_slice(date);
        head.write_connection(out);
        if head.status.has_body() {
            match head.body {
                ResponseBody::Sized(length) => {
                    out.extend_from_slice(b"\r\nContent-Length: ");
                    out.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
                }
                ResponseBody::Chunked => out.extend_from_slice(b"\r\nTransfer-Encoding: chunked"),
                ResponseBody::UntilClose => {}
            }
        }
        out.extend_from_slice(b"\r\n");
        ResponseWriter { out }
    }

    /// Appends a complete head.
    ///
    /// # Errors
    /// [`InvalidHeader`]; then nothing is appended.
    pub fn write(
        &self,
        out: &mut Vec<u8>,
        date: &DateHeader,
        headers: &[(&str, &str)],
    ) -> Result<(), InvalidHeader> {
        let before = out.len();
        let mut writer = self.start(out, date);
        for (name, value) in headers {
            if let Err(invalid) = writer.header(name, value) {
                out.truncate(before);
                return Err(invalid);
            }
        }
        writer.finish();
        Ok(())
    }

    fn write_connection(self, out: &mut Vec<u8>) {
        let is_upgrade = self.status == Status::UPGRADE_REQUIRED;
        let connection: &[u8] = match (is_upgrade, self.keep_alive, self.version) {
            (false, true, HttpVersion::Http11) => return,
            (false, true, HttpVersion::Http10) => b"keep-alive",
            (false, false, _) => b"close",
            // A 426 names the protocol to upgrade to (RFC 9110 section 15.5.22), and its Connection
            // header names Upgrade (section 7.8).
            (true, true, HttpVersion::Http11) => b"upgrade\r\nUpgrade: websocket",
            (true, true, HttpVersion::Http10) => b"keep-alive, upgrade\r\nUpgrade: websocket",
            (true, false, _) => b"close, upgrade\r\nUpgrade: websocket",
        };
        out.extend_from_slice(b"\r\nConnection: ");
        out.extend_from_slice(connection);
    }
}

/// Capacity for a typical head.
const HEAD_BYTES_TYPICAL: usize = 192;

/// Adds headers after [`ResponseHead::start`].
#[must_use = "a head is complete only after `finish`"]
pub struct ResponseWriter<'o> {
    out: &'o mut Vec<u8>,
}

impl ResponseWriter<'_> {
    /// Appends one header line.
    ///
    /// # Errors
    /// [`InvalidHeader`]; then nothing is appended, and the writer stays usable.
    pub fn header(&mut self, name: &str, value: impl AsRef<[u8]>) -> Result<(), InvalidHeader> {
        let value = value.as_ref();
        check_header(name, value)?;
        self.out.reserve(name.len() + value.len() + 4);
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b": ");
        self.out.extend_from_slice(value);
        self.out.extend_from_slice(b"\r\n");
        Ok(())
    }

    /// Ends the head, before the body.
    pub fn finish(self) {
        self.out.extend_from_slice(b"\r\n");
    }
}

/// Checks whether [`ResponseWriter::header`] accepts this header.
///
/// # Errors
/// [`InvalidHeader`] if the writer would reject the header.
pub fn check_header(name: &str, value: &[u8]) -> Result<(), InvalidHeader> {
    if name.is_empty() || !name.bytes().all(is_token_byte) {
        return Err(InvalidHeader::Name);
    }
    if RESERVED_HEADERS
        .iter()
        .any(|own| own.eq_ignore_ascii_case(name))
    {
        return Err(InvalidHeader::Reserved);
    }
    // The loop has no early exit, so that the compiler vectorises it.
    match value
        .iter()
        .fold(true, |all, &byte| all & is_value_byte(byte))
    {
        true => Ok(()),
        false => Err(InvalidHeader::Value),
    }
}

/// Framing headers, which only [`ResponseHead`] may write.
const RESERVED_HEADERS: [&str; 5] = [
    "Content-Length",
    "Transfer-Encoding",
    "Connection",
    "Keep-Alive",
    "Date",
];

/// Why a header is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidHeader {
    /// The name is not a token.
    #[error("a header name may contain only letters, digits and !#$%&'*+-.^_`|~")]
    Name,
    /// The value contains a line break or another control character, which could start another header or response.
    #[error("a header value must not contain line breaks or control characters")]
    Value,
    /// The name is that of a header that the server sets itself, for example `Content-Length`.
    #[error("this header is set by the server itself")]
    Reserved,
}

/// Appends one chunk of a body; nothing for empty data, since an empty chunk ends the body.
pub fn write_chunk(out: &mut Vec<u8>, data: &[u8]) {
    if data.is_empty() {
        return;
    }
    out.reserve(data.len() + 2 * size_of::<usize>() + 4);
    let digits = (usize::BITS - data.len().leading_zeros()).div_ceil(4);
    for digit in (0..digits).rev() {
        out.push(b"0123456789abcdef"[data.len() >> (4 * digit) & 15]);
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(data);
    out.extend_from_slice(b"\r\n");
}

/// Appends the end of a chunked body.
pub fn finish_chunks(out: &mut Vec<u8>) {
    out.extend_from_slice(b"0\r\n\r\n");
}

/// Appends the complete response to a refused request; the connection is then closed.
pub fn write_error(out: &mut Vec<u8>, error: &HttpError, date: &DateHeader) {
    let head = ResponseHead {
        status: error.status,
        version: HttpVersion::Http11,
        keep_alive: false,
        body: ResponseBody::Sized(error.reason.len() as u64 + 1),
    };
    let mut writer = head.start(out, date);
    // The header is constant and valid, so this can't fail.
    let _ = writer.header("Content-Type", "text/plain; charset=utf-8");
    writer.finish();
    out.extend_from_slice(error.reason.as_bytes());
    out.push(b'\n');
}
