//! Parsing of one head: `httparse` splits the lines, and this module applies the rules of RFC 9112.

use std::mem::MaybeUninit;

use super::framing::FramingFields;
use super::head::Span;
use super::scan::{LEADING_LINES_MAX, METHOD_BYTES_MAX, refuse_request_line};
use super::syntax::list_members;
use super::target::{TargetParts, check_host};
use super::{
    Framing, HEAD_BYTES_MAX, HEADERS_MAX, Head, HeadLimits, HeadScan, HttpError, HttpVersion,
    Method, Status,
};

/// Parses the head at the front of `input`, and returns it with its length; `None` while it is incomplete. The body or
/// the next request follows the head.
///
/// `scan` keeps the scanning progress of this head between calls. A head that arrives complete, as most do, is parsed
/// in one pass without scanning.
///
/// # Errors
/// Those of [`HeadScan::find`] and [`parse_head`]. How the input is split does not affect which error is returned.
pub fn read_head<'b>(
    scan: &mut HeadScan,
    input: &'b [u8],
    limits: &HeadLimits,
) -> Result<Option<(Head<'b>, usize)>, HttpError> {
    if scan.is_fresh() {
        let window = &input[..input.len().min(limits.head_bytes_max).min(HEAD_BYTES_MAX)];
        if let Ok(Some(whole)) = parse_front(window, limits) {
            return Ok(Some(whole));
        }
        // An error is not returned here: the scan below reports it, so that a head received in pieces has the same
        // error as a whole one.
    }
    let Some(end) = scan.find(input, limits)? else {
        return Ok(None);
    };
    Ok(Some((parse_head(&input[..end], limits)?, end)))
}

/// Parses exactly one head, as delimited by [`HeadScan`]: with its final empty line and nothing after it.
///
/// # Errors
/// 400 for invalid or ambiguous syntax, 411 and 413 for the body's length, 414 and 431 for sizes, 417 for an
/// expectation other than `100-continue`, 501 for CONNECT, overlong methods and unknown transfer codings, 505 for
/// versions other than 1.0 and 1.1.
pub fn parse_head<'b>(bytes: &'b [u8], limits: &HeadLimits) -> Result<Head<'b>, HttpError> {
    if bytes.len() > limits.head_bytes_max.min(HEAD_BYTES_MAX) {
        return Err(HttpError::new(
            Status::HEADERS_TOO_LARGE,
            "the head is too large",
        ));
    }
    match parse_front(bytes, limits)? {
        Some((head, end)) if end == bytes.len() => Ok(head),
        _ => Err(HttpError::bad("unexpected bytes after the end of the head")),
    }
}

/// Parses a head at the front of at most `HEAD_BYTES_MAX` bytes.
#[inline]
fn parse_front<'b>(
    bytes: &'b [u8],
    limits: &HeadLimits,
) -> Result<Option<(Head<'b>, usize)>, HttpError> {
    let mut storage = [const { MaybeUninit::uninit() }; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut []);
    let headers_max = limits.headers_max.min(HEADERS_MAX);
    let end = match request.parse_with_uninit_headers(bytes, &mut storage[..headers_max]) {
        Ok(httparse::Status::Complete(end)) => end,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(error) => return Err(refuse(error, bytes)),
    };
    let bytes = &bytes[..end];
    let (Some(token), Some(target), Some(minor)) = (request.method, request.path, request.version)
    else {
        return Err(HttpError::bad("the request line is malformed"));
    };
    if target.len() > limits.target_bytes_max {
        return Err(HttpError::new(
            Status::URI_TOO_LONG,
            "the request target is too long",
        ));
    }
    if token.len() > METHOD_BYTES_MAX {
        return Err(HttpError::new(
            Status::NOT_IMPLEMENTED,
            "the method is unknown",
        ));
    }
    let place = |part: &[u8]| part.as_ptr().addr() - bytes.as_ptr().addr();
    check_line_ends(
        bytes,
        place(token.as_bytes()),
        place(target.as_bytes()) + target.len(),
    )?;

    let version = if minor == 0 {
        HttpVersion::Http10
    } else {
        HttpVersion::Http11
    };
    let method = Method::from_token(token);
    let TargetParts {
        authority,
        path,
        query,
    } = TargetParts::split(&method, target)?;

    let mut spans = [Span::default(); HEADERS_MAX];
    let mut fields = Fields::default();
    for (span, header) in spans.iter_mut().zip(request.headers.iter()) {
        let (name, value) = (header.name.as_bytes(), header.value);
        // All four values are at most HEAD_BYTES_MAX, so they fit into 16 bits.
        *span = Span {
            name_at: place(name) as u16,
            name_len: name.len() as u16,
            value_at: place(value) as u16,
            value_len: value.len() as u16,
        };
        check_value_end(bytes, place(value) + value.len())?;
        fields.take(name, value)?;
    }

    let has_authority = authority.is_some();
    let host = match (fields.host, authority) {
        (Some(host), None) => host,
        (_, Some(authority)) => authority,
        (None, None) => "",
    };
    if fields.host.is_none() && version == HttpVersion::Http11 {
        // RFC 9112 section 3.2: Host is required even if the target contains the host.
        return Err(HttpError::bad(if has_authority {
            "the header Host is missing in a request with a full URL"
        } else {
            "the header Host is missing"
        }));
    }
    let framing = fields.framing.finish(&method, version, limits)?;
    if fields.expects_other && version == HttpVersion::Http11 {
        return Err(HttpError::new(
            Status::EXPECTATION_FAILED,
            "the only supported expectation is 100-continue",
        ));
    }
    let head = Head {
        method,
        target,
        path,
        query,
        version,
        host,
        framing,
        keep_alive: !fields.close && (version == HttpVersion::Http11 || fields.keep_alive),
        // RFC 9110 section 10.1.1: the expectation is ignored in HTTP/1.0 requests and in requests without a body.
        expect_continue: fields.expects_continue
            && version == HttpVersion::Http11
            && framing != Framing::None,
        bytes,
        spans,
        spans_len: request.headers.len() as u8,
    };
    Ok(Some((head, end)))
}

/// Headers that determine the message's framing, collected over all lines.
#[derive(Default)]
struct Fields<'b> {
    host: Option<&'b str>,
    framing: FramingFields,
    close: bool,
    keep_alive: bool,
    expects_continue: bool,
    expects_other: bool,
}

impl<'b> Fields<'b> {
    #[inline]
    fn take(&mut self, name: &'b [u8], value: &'b [u8]) -> Result<(), HttpError> {
        // The length is compared first, because it rules out most other header names.
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"host") => self.host(value),
            6 if name.eq_ignore_ascii_case(b"expect") => {
                self.expect(value);
                Ok(())
            }
            10 if name.eq_ignore_ascii_case(b"connection") => self.connection(value),
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                self.framing.content_length(value)
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                self.framing.transfer_encoding(value)
            }
            _ => Ok(()),
        }
    }

    fn host(&mut self, value: &'b [u8]) -> Result<(), HttpError> {
        if self.host.is_some() {
            return Err(HttpError::bad("there is more than one Host"));
        }
        let host = str::from_utf8(value)
            .map_err(|_| HttpError::bad("the header Host is not a valid name"))?;
        check_host(host)?;
        self.host = Some(host);
        Ok(())
    }

    fn connection(&mut self, value: &[u8]) -> Result<(), HttpError> {
        if value.eq_ignore_ascii_case(b"keep-alive") {
            self.keep_alive = true;
            return Ok(());
        }
        let value = str::from_utf8(value)
            .map_err(|_| HttpError::bad("the header Connection is not a list of tokens"))?;
        for member in list_members(value) {
            self.close |= member.eq_ignore_ascii_case("close");
            self.keep_alive |= member.eq_ignore_ascii_case("keep-alive");
        }
        Ok(())
    }

    #[cold]
    fn expect(&mut self, value: &[u8]) {
        let is_continue = value.eq_ignore_ascii_case(b"100-continue");
        self.expects_continue |= is_continue;
        self.expects_other |= !is_continue;
    }
}

/// Refuses a bare LF in the leading empty lines, the request line and the end of the head. `httparse` accepts a bare LF
/// as a line end, but other parsers may not, so a bare LF could hide a request from them (RFC 9112 section 2.2 permits
/// to accept or to refuse it).
fn check_line_ends(bytes: &[u8], method_at: usize, target_end: usize) -> Result<(), HttpError> {
    const VERSION_BYTES: usize = " HTTP/1.1".len();
    let leading = &bytes[..method_at];
    if method_at > 2 * LEADING_LINES_MAX as usize || leading.chunks(2).any(|line| line != b"\r\n") {
        return Err(HttpError::bad("empty lines arrived instead of a request"));
    }
    if bytes.get(target_end + VERSION_BYTES) != Some(&b'\r') || !bytes.ends_with(b"\r\n\r\n") {
        return Err(BARE_LF);
    }
    Ok(())
}

/// Refuses a bare LF after a header line: only white space and CR may follow the value.
#[inline]
fn check_value_end(bytes: &[u8], value_end: usize) -> Result<(), HttpError> {
    let mut at = value_end;
    while let Some(b' ' | b'\t') = bytes.get(at) {
        at += 1;
    }
    if bytes.get(at) == Some(&b'\r') {
        Ok(())
    } else {
        Err(BARE_LF)
    }
}

const BARE_LF: HttpError = HttpError::bad("a line does not end with CR LF");

/// Returns the refusal for an error of `httparse`.
#[cold]
fn refuse(error: httparse::Error, bytes: &[u8]) -> HttpError {
    match error {
        httparse::Error::HeaderName => HttpError::bad("a header name is malformed"),
        httparse::Error::HeaderValue => HttpError::bad("a header value is malformed"),
        httparse::Error::NewLine => BARE_LF,
        httparse::Error::TooManyHeaders => {
            HttpError::new(Status::HEADERS_TOO_LARGE, "too many headers")
        }
        httparse::Error::Token | httparse::Error::Version | httparse::Error::Status => {
            let lines = bytes.trim_ascii_start();
            let end = memchr::memchr2(b'\r', b'\n', lines).unwrap_or(lines.len());
            refuse_request_line(&lines[..end])
        }
    }
}
