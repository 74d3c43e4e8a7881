//! A parsed request head and its accessors.

use std::borrow::Cow;

use super::syntax::list_members;
use super::{Framing, Method, Query, cookie};

/// Maximum number of header lines of a head, regardless of configured limits.
pub const HEADERS_MAX: usize = 64;

/// Maximum length of a head in bytes, regardless of configured limits: offsets into it are 16 bits wide.
pub const HEAD_BYTES_MAX: usize = u16::MAX as usize;

/// The protocol version of a request. Responses always have version HTTP/1.1 (RFC 9110 section 6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpVersion {
    /// HTTP/1.0: no chunks, and the connection closes after each response unless requested otherwise.
    Http10,
    /// HTTP/1.1: connections persist by default.
    Http11,
}

/// A request's head. Borrows the bytes it was parsed from; its content has passed every check of this module.
#[derive(Clone)]
pub struct Head<'b> {
    /// The method of the request.
    pub method: Method<'b>,
    /// The raw request target.
    pub target: &'b str,
    /// The target's path in [normal form](super::normal_path); begins with `/`, or is `*` for `OPTIONS *`. Only this
    /// form may determine what is requested, since parsers of the raw target could disagree.
    pub path: Cow<'b, str>,
    /// The part of the target after `?`, percent-encoded; may be empty.
    pub query: &'b str,
    /// The HTTP version of the peer.
    pub version: HttpVersion,
    /// Host and port, from an absolute-form target or otherwise from the Host header; empty if an
    /// HTTP/1.0 request has neither.
    pub host: &'b str,
    /// How the body is delimited.
    pub framing: Framing,
    /// Whether the peer wants the connection to stay open after the response.
    pub keep_alive: bool,
    /// Whether the peer waits for `100 Continue` before it sends the body.
    pub expect_continue: bool,
    pub(super) bytes: &'b [u8],
    pub(super) spans: [Span; HEADERS_MAX],
    pub(super) spans_len: u8,
}

/// Offsets of a header line's name and value in the head.
#[derive(Clone, Copy, Default)]
pub(super) struct Span {
    pub(super) name_at: u16,
    pub(super) name_len: u16,
    pub(super) value_at: u16,
    pub(super) value_len: u16,
}

impl<'b> Head<'b> {
    /// Returns the first value with this case-insensitive name; `None` also if it is not UTF-8 (see
    /// [`header_bytes`](Self::header_bytes)).
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&'b str> {
        simdutf8::basic::from_utf8(self.header_bytes(name)?).ok()
    }

    /// Returns the first raw value with this case-insensitive name.
    #[must_use]
    pub fn header_bytes(&self, name: &str) -> Option<&'b [u8]> {
        self.values(name).next()
    }

    /// Returns all values with this name that are UTF-8, in order.
    pub fn header_all(&self, name: &str) -> impl Iterator<Item = &'b str> {
        self.values(name)
            .filter_map(|value| simdutf8::basic::from_utf8(value).ok())
    }

    /// Returns whether a header that is a list of tokens (`Connection`, `Upgrade`) contains `token`, ignoring case.
    #[must_use]
    pub fn header_has_token(&self, name: &str, token: &str) -> bool {
        self.header_all(name)
            .flat_map(list_members)
            .any(|member| member.eq_ignore_ascii_case(token))
    }

    /// Returns all header lines in order. Names are tokens in the peer's case; values have no surrounding white space.
    pub fn headers(&self) -> impl ExactSizeIterator<Item = (&'b str, &'b [u8])> {
        let bytes = self.bytes;
        self.spans().iter().map(move |span| {
            // Tokens are ASCII, so the conversion can't fail.
            (
                str::from_utf8(span.name(bytes)).unwrap_or_default(),
                span.value(bytes),
            )
        })
    }

    /// Returns the raw value of the first cookie with this name, without surrounding quotes. Names are case-sensitive.
    #[must_use]
    pub fn cookie(&self, name: &str) -> Option<&'b str> {
        self.header_all("cookie")
            .find_map(|value| cookie::find(value, name))
    }

    /// Returns the first decoded value with this name in the query; `None` also if it is not UTF-8.
    #[must_use]
    pub fn query(&self, name: &str) -> Option<Cow<'b, str>> {
        Query::new(self.query).find(name)
    }

    /// Returns all decoded values with this name in the query, in order.
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
    /// Shows method, path and framing; not query and headers, which may contain secrets.
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
