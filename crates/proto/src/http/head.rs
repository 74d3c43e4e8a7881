//! A parsed request head and what may be asked of it.

use std::borrow::Cow;

use super::syntax::list_members;
use super::{Framing, Method, Query, cookie};

/// Header lines that a head can hold, whatever [`Limits`](super::Limits) say.
pub const HEADERS_MAX: usize = 64;

/// Bytes that a head can have, whatever [`Limits`](super::Limits) say: offsets into it are 16 bits wide.
pub const HEAD_BYTES_MAX: usize = u16::MAX as usize;

/// The protocol version of a request. Responses always say HTTP/1.1 (RFC 9110 section 6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpVersion {
    /// HTTP/1.0: no chunks, and closed after each response unless asked otherwise.
    Http10,
    /// HTTP/1.1.
    Http11,
}

/// A request's head. Borrows the bytes it was parsed from; what it says has passed every check of this module.
#[derive(Clone)]
pub struct Head<'b> {
    /// What is asked for.
    pub method: Method<'b>,
    /// The request target as it came.
    pub target: &'b str,
    /// The target's path in [normal form](super::normal_path); begins with `/`, or is `*` for `OPTIONS *`. Nothing else
    /// of the target says what is asked for: two readings of it could differ.
    pub path: Cow<'b, str>,
    /// What follows `?` in the target, still percent-encoded; empty if nothing does.
    pub query: &'b str,
    /// The version that the peer speaks.
    pub version: HttpVersion,
    /// Host and port: of an absolute-form target, else of the Host header; empty if an HTTP/1.0 request has none.
    pub host: &'b str,
    /// How the body's end is found.
    pub framing: Framing,
    /// Whether the peer wants the connection to stay open after the response.
    pub keep_alive: bool,
    /// Whether the peer waits for `100 Continue` before it sends the body.
    pub expect_continue: bool,
    pub(super) bytes: &'b [u8],
    pub(super) spans: [Span; HEADERS_MAX],
    pub(super) spans_len: u8,
}

/// A header line's name and value as places in the head.
#[derive(Clone, Copy, Default)]
pub(super) struct Span {
    pub(super) name_at: u16,
    pub(super) name_len: u16,
    pub(super) value_at: u16,
    pub(super) value_len: u16,
}

impl<'b> Head<'b> {
    /// The first value of that name, in any case; `None` as well if it is not UTF-8 (which a header may be:
    /// [`header_bytes`](Self::header_bytes)).
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&'b str> {
        simdutf8::basic::from_utf8(self.header_bytes(name)?).ok()
    }

    /// The first value of that name, in any case, as it came.
    #[must_use]
    pub fn header_bytes(&self, name: &str) -> Option<&'b [u8]> {
        self.values(name).next()
    }

    /// All values of that name that are UTF-8, in order.
    pub fn header_all(&self, name: &str) -> impl Iterator<Item = &'b str> {
        self.values(name)
            .filter_map(|value| simdutf8::basic::from_utf8(value).ok())
    }

    /// Whether a header that is a list of tokens (`Connection`, `Upgrade`) has this one, in any case.
    #[must_use]
    pub fn header_has_token(&self, name: &str, token: &str) -> bool {
        self.header_all(name)
            .flat_map(list_members)
            .any(|member| member.eq_ignore_ascii_case(token))
    }

    /// All header lines, in order. Names are tokens, in the peer's case; values have no white space around them.
    pub fn headers(&self) -> impl ExactSizeIterator<Item = (&'b str, &'b [u8])> {
        let bytes = self.bytes;
        self.spans().iter().map(move |span| {
            // Tokens are ASCII, so the conversion never fails.
            (
                str::from_utf8(span.name(bytes)).unwrap_or_default(),
                span.value(bytes),
            )
        })
    }

    /// The value of the first cookie of that name, as it came but for quotes around it. Names are case-sensitive.
    #[must_use]
    pub fn cookie(&self, name: &str) -> Option<&'b str> {
        self.header_all("cookie")
            .find_map(|value| cookie::find(value, name))
    }

    /// The first value of that name in the query, decoded; `None` as well if it decodes to something not UTF-8.
    #[must_use]
    pub fn query(&self, name: &str) -> Option<Cow<'b, str>> {
        Query::new(self.query).find(name)
    }

    /// All values of that name in the query, decoded, in order.
    pub fn query_all<'n>(&self, name: &'n str) -> impl Iterator<Item = Cow<'b, str>> + use<'b, 'n> {
        Query::new(self.query).find_all(name)
    }

    fn values(&self, name: &str) -> impl Iterator<Item = &'b [u8]> {
        let bytes = self.bytes;
        self.spans()
            .iter()
            .filter(move |span| {
                span.name_len as usize == name.len()
                    && span.name(bytes).eq_ignore_ascii_case(name.as_bytes())
            })
            .map(move |span| span.value(bytes))
    }

    fn spans(&self) -> &[Span] {
        &self.spans[..self.spans_len as usize]
    }
}

impl Span {
    fn name<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        &bytes[self.name_at as usize..][..self.name_len as usize]
    }

    fn value<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        &bytes[self.value_at as usize..][..self.value_len as usize]
    }
}

impl std::fmt::Debug for Head<'_> {
    /// Method, path and framing; not the query and not the headers, which hold secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Head")
            .field("method", &self.method)
            .field("path", &self.path)
            .field("version", &self.version)
            .field("host", &self.host)
            .field("framing", &self.framing)
            .field("keep_alive", &self.keep_alive)
            .field("headers", &self.spans_len)
            .finish_non_exhaustive()
    }
}
