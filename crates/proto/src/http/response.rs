//! Responses out: head, chunks, and the answer to a request that is refused.

use super::syntax::{is_token_byte, is_value_byte};
use super::{Head, HttpError, Status, Version};

/// A date as headers have it (`Sun, 06 Nov 1994 08:49:37 GMT`), made once a second by whoever has a clock.
pub type Date = [u8; 29];

/// The interim response that a peer which sent `Expect: 100-continue` waits for.
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// How the end of a response's body is marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseBody {
    /// By its length in bytes. To HEAD the same is said and nothing sent.
    Sized(u64),
    /// By an empty chunk: for [`write_chunk`] and [`finish_chunks`].
    Chunked,
    /// By closing the connection: streams to HTTP/1.0.
    UntilClose,
}

/// The part of a response's head that is not up to its author.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseHead {
    /// The final status, 200 to 599; anything else becomes 500. 100 and 101 are written elsewhere.
    pub status: Status,
    /// What the request spoke; the response says HTTP/1.1 all the same (RFC 9110 section 6.2).
    pub version: Version,
    /// Whether the connection stays open. The writer says so in the way that `version` needs.
    pub keep_alive: bool,
    /// How the body's end is marked. Left out for a status without a body.
    pub body: ResponseBody,
}

impl ResponseHead {
    /// The head of an answer to `request`. A stream to HTTP/1.0 becomes one until close: see the result's `body` and
    /// `keep_alive` for how to go on.
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

    /// Chunks are unknown to HTTP/1.0, what ends by closing can't be kept, and what is no final status is our fault.
    const fn settled(mut self) -> Self {
        if self.status.0 < 200 || self.status.0 > 599 {
            self.status = Status::INTERNAL_SERVER_ERROR;
        }
        if matches!(self.version, Version::Http10) && matches!(self.body, ResponseBody::Chunked) {
            self.body = ResponseBody::UntilClose;
        }
        if matches!(self.body, ResponseBody::UntilClose) && self.status.has_body() {
            self.keep_alive = false;
        }
        self
    }

    /// Appends the status line and the headers that frame the message; the writer takes the author's headers.
    pub fn start<'o>(&self, out: &'o mut Vec<u8>, date: &Date) -> ResponseWriter<'o> {
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

    /// Appends a whole head.
    ///
    /// # Errors
    /// [`InvalidHeader`]; then nothing is appended.
    pub fn write(
        &self,
        out: &mut Vec<u8>,
        date: &Date,
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
            (false, true, Version::Http11) => return,
            (false, true, Version::Http10) => b"keep-alive",
            (false, false, _) => b"close",
            // RFC 9110 section 15.5.22: a 426 names what to upgrade to, and section 7.8: Connection names Upgrade.
            (true, true, Version::Http11) => b"upgrade\r\nUpgrade: websocket",
            (true, true, Version::Http10) => b"keep-alive, upgrade\r\nUpgrade: websocket",
            (true, false, _) => b"close, upgrade\r\nUpgrade: websocket",
        };
        out.extend_from_slice(b"\r\nConnection: ");
        out.extend_from_slice(connection);
    }
}

/// Room for the head of a usual response.
const HEAD_BYTES_TYPICAL: usize = 192;

/// Takes a response's headers after [`ResponseHead::start`].
#[must_use = "a head is complete only after `finish`"]
pub struct ResponseWriter<'o> {
    out: &'o mut Vec<u8>,
}

impl ResponseWriter<'_> {
    /// Appends one header line.
    ///
    /// # Errors
    /// [`InvalidHeader`]; then nothing is appended, and the writer can go on.
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

    /// Ends the head; the body follows.
    pub fn finish(self) {
        self.out.extend_from_slice(b"\r\n");
    }
}

/// Returns whether [`ResponseWriter::header`] takes this header.
///
/// # Errors
/// [`InvalidHeader`], as the writer's.
pub fn check_header(name: &str, value: &[u8]) -> Result<(), InvalidHeader> {
    if name.is_empty() || !name.bytes().all(is_token_byte) {
        return Err(InvalidHeader::Name);
    }
    if WRITERS_OWN.iter().any(|own| own.eq_ignore_ascii_case(name)) {
        return Err(InvalidHeader::Reserved);
    }
    // No early exit, so that it is done many bytes at a time.
    match value
        .iter()
        .fold(true, |all, &byte| all & is_value_byte(byte))
    {
        true => Ok(()),
        false => Err(InvalidHeader::Value),
    }
}

/// Headers that say how the message is framed and so are written from [`ResponseHead`] alone.
const WRITERS_OWN: [&str; 5] = [
    "Content-Length",
    "Transfer-Encoding",
    "Connection",
    "Keep-Alive",
    "Date",
];

/// A header that can't be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidHeader {
    /// Not a token.
    #[error("a header name may contain only letters, digits and !#$%&'*+-.^_`|~")]
    Name,
    /// A line break or another control character: it could begin a header or a response of its own.
    #[error("a header value must not contain line breaks or control characters")]
    Value,
    /// One of those that frame the message.
    #[error("this header is set by the server itself")]
    Reserved,
}

/// Appends one chunk of a body; nothing for no data, as an empty chunk would be the last.
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

/// Appends the whole answer to a request that is refused; the connection is then closed.
pub fn write_error(out: &mut Vec<u8>, error: &HttpError, date: &Date) {
    let head = ResponseHead {
        status: error.status,
        version: Version::Http11,
        keep_alive: false,
        body: ResponseBody::Sized(error.reason.len() as u64 + 1),
    };
    let mut writer = head.start(out, date);
    // A constant that is valid, so it can't fail.
    let _ = writer.header("Content-Type", "text/plain; charset=utf-8");
    writer.finish();
    out.extend_from_slice(error.reason.as_bytes());
    out.push(b'\n');
}
