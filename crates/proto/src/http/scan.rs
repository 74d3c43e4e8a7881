//! Where a head ends in input that grows.

use super::syntax::is_token_byte;
use super::{HEAD_BYTES_MAX, HeadLimits, HttpError, Status};

/// Empty lines before a request that are passed over (RFC 9112 section 2.2: at least one should be). More are refused.
pub const LEADING_LINES_MAX: u8 = 4;

/// Bytes of a method. A longer one is unknown to everybody.
pub(super) const METHOD_BYTES_MAX: usize = 32;

/// What a request line has beside its target: the method, two spaces, the version.
const REQUEST_LINE_EXTRA_BYTES: usize = METHOD_BYTES_MAX + "  HTTP/1.1".len();

/// Finds the end of a request's head. Remembers how far it looked, so a head that comes byte by byte costs as much in
/// all as one that comes whole. One per connection while it waits for a head; `default()` for the next request.
///
/// It refuses early what can't become a request: a bare LF, a first line without a version (HTTP/0.9), bytes that
/// begin no method (TLS on a plain port), too much of anything. What it passes still has to be parsed.
#[derive(Clone, Copy, Debug, Default)]
pub struct HeadScan {
    /// Bytes already looked at.
    scanned: u32,
    /// Where the line begins that is being looked at.
    line_start: u32,
    leading_lines: u8,
    has_request_line: bool,
}

impl HeadScan {
    /// Looks at `input`, which begins with the same bytes as the last time. `Some(end)`: the head is `input[..end]`,
    /// with the empty lines before it and the one after it.
    ///
    /// # Errors
    /// 400, 414, 431 or 505, as [`parse_head`](super::parse_head) would answer.
    pub fn find(&mut self, input: &[u8], limits: &HeadLimits) -> Result<Option<usize>, HttpError> {
        let bytes_max = limits.head_bytes_max.min(HEAD_BYTES_MAX);
        let window = &input[..input.len().min(bytes_max)];
        let base = self.scanned as usize;
        for at in memchr::memchr_iter(b'\n', window.get(base..).unwrap_or_default()) {
            let end = base + at;
            let line = &window[self.line_start as usize..end];
            if !self.has_request_line && !matches!(line, [] | [b'\r']) {
                check_request_start(line, limits)?;
            }
            let [line @ .., b'\r'] = line else {
                return Err(HttpError::bad("a line does not end with CR LF"));
            };
            // `bytes_max` fits u32.
            self.line_start = end as u32 + 1;
            if !line.is_empty() {
                if !self.has_request_line {
                    check_request_line(line)?;
                    self.has_request_line = true;
                }
            } else if self.has_request_line {
                return Ok(Some(end + 1));
            } else {
                self.leading_lines += 1;
                if self.leading_lines > LEADING_LINES_MAX {
                    return Err(HttpError::bad("empty lines instead of a request"));
                }
            }
        }
        self.scanned = window.len() as u32;
        self.check_unfinished(window, limits)?;
        if window.len() == bytes_max {
            return Err(HttpError::new(
                Status::HEADERS_TOO_LARGE,
                "the head is too large",
            ));
        }
        Ok(None)
    }

    /// Whether nothing was looked at yet.
    pub(super) const fn is_fresh(&self) -> bool {
        self.scanned == 0
    }

    /// Whether the beginning of a request was seen, which is what a header timeout is about.
    #[must_use]
    pub const fn is_midway(&self) -> bool {
        self.scanned > self.line_start || self.has_request_line
    }

    fn check_unfinished(&self, window: &[u8], limits: &HeadLimits) -> Result<(), HttpError> {
        if self.has_request_line {
            return Ok(());
        }
        let line = &window[self.line_start as usize..];
        if matches!(line, [] | [b'\r']) {
            return Ok(());
        }
        check_request_start(line, limits)?;
        if window.len() == limits.head_bytes_max.min(HEAD_BYTES_MAX) {
            return Err(LINE_TOO_LONG);
        }
        Ok(())
    }
}

/// What can be said of a request line before its end, so that a split makes no difference to the answer.
fn check_request_start(line: &[u8], limits: &HeadLimits) -> Result<(), HttpError> {
    if !line.first().copied().is_some_and(is_token_byte) {
        return Err(HttpError::bad("this is not HTTP"));
    }
    if line.strip_suffix(b"\r").unwrap_or(line).len()
        > limits.target_bytes_max + REQUEST_LINE_EXTRA_BYTES
    {
        return Err(LINE_TOO_LONG);
    }
    Ok(())
}

const LINE_TOO_LONG: HttpError =
    HttpError::new(Status::URI_TOO_LONG, "the request line is too long");

/// Whether a first line can be one of a request that we speak; what it holds otherwise is `parse_head`'s matter.
fn check_request_line(line: &[u8]) -> Result<(), HttpError> {
    if line.ends_with(b" HTTP/1.1") || line.ends_with(b" HTTP/1.0") {
        return Ok(());
    }
    Err(refuse_request_line(line))
}

/// Why a request line is refused that does not end with a version of ours.
#[cold]
pub(super) fn refuse_request_line(line: &[u8]) -> HttpError {
    const NO_VERSION: HttpError = HttpError::new(
        Status::VERSION_NOT_SUPPORTED,
        "HTTP/1.1 or HTTP/1.0 is needed",
    );
    let mut parts = line.split(|&byte| byte == b' ');
    let is_method = parts
        .next()
        .is_some_and(|method| !method.is_empty() && method.iter().copied().all(is_token_byte));
    let target = parts.next().unwrap_or_default();
    match (is_method, parts.next(), parts.next()) {
        // `GET /`: HTTP/0.9.
        (true, None, None) if target.starts_with(b"/") => NO_VERSION,
        // `PRI * HTTP/2.0` (the preface of HTTP/2), `GET / HTTP/1.2`; with a version of ours the fault is elsewhere.
        (true, Some([b'H', b'T', b'T', b'P', b'/', version @ ..]), None)
            if matches!(version, [b'0'..=b'9', b'.', b'0'..=b'9'])
                && !matches!(version, b"1.0" | b"1.1")
                && !target.is_empty() =>
        {
            NO_VERSION
        }
        _ => HttpError::bad("the request line is malformed"),
    }
}
