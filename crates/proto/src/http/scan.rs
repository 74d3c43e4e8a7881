//! Finds the end of a head in input that arrives in parts.

use super::syntax::is_token_byte;
use super::{HEAD_BYTES_MAX, HeadLimits, HttpError, Status};

/// Maximum number of empty lines before a request, which are ignored (RFC 9112 section 2.2: servers should ignore at
/// least one).
pub const LEADING_LINES_MAX: u8 = 4;

/// Maximum length of a method in bytes. Longer methods are refused with 501, since they are unknown anyway.
pub(super) const METHOD_BYTES_MAX: usize = 32;

/// Length of a request line without its target: method, two spaces, version.
const REQUEST_LINE_EXTRA_BYTES: usize = METHOD_BYTES_MAX + "  HTTP/1.1".len();

/// Finds the end of a request's head. Remembers how far it scanned, so a head that arrives byte by
/// byte costs no more in total than a complete one. A connection keeps one scan while it waits for
/// a head, and starts each request with `default()`.
///
/// Input that can't become a request is refused early: a bare LF, a first line without a version (HTTP/0.9), bytes that
/// don't begin a method (TLS on a plain port), an overlong line or head. Accepted input still has to be parsed.
#[derive(Clone, Copy, Debug, Default)]
pub struct HeadScan {
    /// Number of bytes already scanned.
    scanned: u32,
    /// Start of the line being scanned.
    line_start: u32,
    leading_lines: u8,
    has_request_line: bool,
}

impl HeadScan {
    /// Scans `input`, which begins with the same bytes as in the previous call. Returns the length of the head once it
    /// is complete. The length includes the empty lines before the head and the empty line that ends it.
    ///
    /// # Errors
    /// 400, 414, 431 or 505, as [`parse_head`](super::parse_head) would return.
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
                    return Err(HttpError::bad("empty lines arrived instead of a request"));
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

    /// Returns whether nothing was scanned yet.
    pub(super) const fn is_fresh(&self) -> bool {
        self.scanned == 0
    }

    /// Returns whether the beginning of a request has arrived; a header timeout depends on this.
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

/// Checks the part of the request line that has arrived, so that the result does not depend on how the input was split.
fn check_request_start(line: &[u8], limits: &HeadLimits) -> Result<(), HttpError> {
    if !line.first().copied().is_some_and(is_token_byte) {
        return Err(HttpError::bad("not an HTTP request"));
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

/// Checks whether a first line can be a request of a supported version; the rest is checked by `parse_head`.
fn check_request_line(line: &[u8]) -> Result<(), HttpError> {
    if line.ends_with(b" HTTP/1.1") || line.ends_with(b" HTTP/1.0") {
        return Ok(());
    }
    Err(refuse_request_line(line))
}

/// Returns why a request line without a supported version is refused.
#[cold]
pub(super) fn refuse_request_line(line: &[u8]) -> HttpError {
    const NO_VERSION: HttpError = HttpError::new(
        Status::VERSION_NOT_SUPPORTED,
        "HTTP/1.1 or HTTP/1.0 is required",
    );
    let mut parts = line.split(|&byte| byte == b' ');
    let is_method = parts
        .next()
        .is_some_and(|method| !method.is_empty() && method.iter().copied().all(is_token_byte));
    let target = parts.next().unwrap_or_default();
    match (is_method, parts.next(), parts.next()) {
        // `GET /`: HTTP/0.9.
        (true, None, None) if target.starts_with(b"/") => NO_VERSION,
        // The version is not supported, as in `PRI * HTTP/2.0` (the preface of HTTP/2) or `GET / HTTP/1.2`. A line with
        // a supported version is malformed for another reason.
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
