//! Determines the length of a request's body (RFC 9112 section 6), strictly enough to prevent request smuggling.

use super::syntax::trim_ows;
use super::{HeadLimits, HttpError, HttpVersion, Method, Status};

/// How a request's body is delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// No body: neither length nor coding is given, or the length is 0.
    None,
    /// A length in bytes, at least 1.
    Sized(u64),
    /// Chunks, ended by an empty chunk and trailers.
    Chunked,
}

/// Collects Content-Length and Transfer-Encoding from a head's lines.
#[derive(Default)]
pub(super) struct FramingFields {
    length: Option<u64>,
    coding: Option<Coding>,
}

/// The combined value of the Transfer-Encoding lines.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Coding {
    Chunked,
    /// Unknown codings without `chunked`.
    Unknown,
    /// Unknown codings followed by `chunked`.
    UnknownThenChunked,
}

impl FramingFields {
    /// Handles a Content-Length line. Only digits are accepted: no sign, no list, and no second line even with the same
    /// value, since an intermediary may have used the other one.
    pub(super) fn content_length(&mut self, value: &[u8]) -> Result<(), HttpError> {
        if self.length.is_some() {
            return Err(HttpError::bad("there is more than one Content-Length"));
        }
        if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
            return Err(HttpError::bad("Content-Length is not a number"));
        }
        // Overflowing digits are a valid length above every limit.
        let length = value.iter().try_fold(0u64, |sum, digit| {
            sum.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
        });
        self.length = Some(length.unwrap_or(u64::MAX));
        Ok(())
    }

    /// Handles a Transfer-Encoding line; several lines form one list.
    pub(super) fn transfer_encoding(&mut self, value: &[u8]) -> Result<(), HttpError> {
        let value = str::from_utf8(value)
            .map_err(|_| HttpError::bad("the header Transfer-Encoding is not a list of tokens"))?;
        for member in value.split(',') {
            let is_chunked = trim_ows(member).eq_ignore_ascii_case("chunked");
            self.coding = Some(match (self.coding, is_chunked) {
                (None, true) => Coding::Chunked,
                (None | Some(Coding::Unknown), false) => Coding::Unknown,
                (Some(Coding::Unknown), true) => Coding::UnknownThenChunked,
                (Some(Coding::Chunked | Coding::UnknownThenChunked), _) => {
                    return Err(HttpError::bad("another transfer coding follows chunked"));
                }
            });
        }
        Ok(())
    }

    /// Determines the framing from all collected lines.
    pub(super) fn finish(
        self,
        method: &Method<'_>,
        version: HttpVersion,
        limits: &HeadLimits,
    ) -> Result<Framing, HttpError> {
        match (self.coding, self.length) {
            (None, None) => {
                // Neither length nor coding is given. In HTTP/1.1 the request has no body. In
                // HTTP/1.0 the length of the body is unknown, so methods with a body are refused
                // (RFC 1945 section 7.2.2).
                if version == HttpVersion::Http10
                    && matches!(method, Method::Post | Method::Put | Method::Patch)
                {
                    return Err(HttpError::new(
                        Status::LENGTH_REQUIRED,
                        "Content-Length is missing",
                    ));
                }
                Ok(Framing::None)
            }
            (None, Some(0)) => Ok(Framing::None),
            (None, Some(length)) if length > limits.body_bytes_max => Err(HttpError::new(
                Status::CONTENT_TOO_LARGE,
                "the body is too large",
            )),
            (None, Some(length)) => Ok(Framing::Sized(length)),
            // RFC 9112 section 6.1: both headers, or a coding in HTTP/1.0, indicate an attack.
            (Some(_), Some(_)) => Err(HttpError::bad(
                "Transfer-Encoding and Content-Length are both present",
            )),
            (Some(_), None) if version == HttpVersion::Http10 => Err(HttpError::bad(
                "Transfer-Encoding is not allowed in HTTP/1.0",
            )),
            (Some(Coding::Chunked), None) => Ok(Framing::Chunked),
            // RFC 9112 section 6.3 rule 4: the end of the body is uncertain.
            (Some(Coding::Unknown), None) => {
                Err(HttpError::bad("the last transfer coding is not chunked"))
            }
            (Some(Coding::UnknownThenChunked), None) => Err(HttpError::new(
                Status::NOT_IMPLEMENTED,
                "a transfer coding other than chunked is not supported",
            )),
        }
    }
}
