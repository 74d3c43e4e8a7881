//! The interface between connections and applications: requests and responses.
//!
//! A route may lead to an application, which is called through [`Apps`].

use std::borrow::Cow;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use percent_encoding::percent_decode_str;
use veche_proto::http::{Head, Status};
pub use veche_types::AppId;

pub use crate::context::apps::{AppProgress, Apps};

/// Maximum number of messages of one session that are queued while its handler is suspended; further input waits.
pub const QUEUED_MESSAGES_MAX: usize = 16;

/// Total size of queued messages, in bytes, at which further input starts to wait. The last queued
/// message may exceed it.
pub const QUEUED_BYTES_HIGH: usize = 64 << 10;

/// A result that is available immediately or later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MaybeDeferred<T> {
    /// The result is available.
    Ready(T),
    /// The result follows exactly once. An application's answer is added to
    /// [`Requests::app_answers`](crate::Requests::app_answers), as a whole or as head, chunks and end in this order,
    /// unless [`Apps::abandoned`] is called first. An authentication result is sent to the
    /// [`CompletionSink`](crate::context::identity::CompletionSink).
    Deferred,
}

/// An application's decision on a handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandshakeDecision {
    /// The WebSocket is opened.
    Accept {
        /// The user; `None` keeps the user that the route's identity determined. Has to be a
        /// [valid user](crate::context::identity::is_valid_user).
        user: Option<String>,
        /// The subprotocol of the 101 response, one of those that the client offered.
        protocol: Option<String>,
    },
    /// The server responds with this response instead of 101. The connection stays open for another request.
    Refuse(AppResponse),
}

/// A complete response of an application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppResponse {
    /// The status, 200 to 599.
    pub status: Status,
    /// Names and values of the headers, without those for framing (`Content-Length`, `Transfer-Encoding`,
    /// `Connection`, `Keep-Alive`, `Date`), which the connection writes. If a header is invalid, the response is
    /// replaced with a 500.
    pub headers: Vec<(String, String)>,
    /// The body; not sent for HEAD, 204 and 304.
    pub body: AppBody,
}

/// The body of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AppBody {
    /// The bytes of the body.
    Bytes(Vec<u8>),
    /// The content of a file.
    File(AppFile),
}

/// A file as the body of a response. The response's headers take precedence over the file's own. For GET with status
/// 200, range and conditional requests are served. If the file is missing or unreadable, the client gets an error
/// response instead of this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppFile {
    /// The folder that contains the file; no file outside of it is served.
    pub root: Arc<Path>,
    /// The path below the folder, valid for [`static_files::is_safe_path`](crate::http::static_files::is_safe_path).
    pub relative: String,
}

/// The head of a response that is written in parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppResponseHead {
    /// The status, 200 to 599.
    pub status: Status,
    /// Names and values of the headers, with the rules of [`AppResponse::headers`].
    pub headers: Vec<(String, String)>,
}

/// A deferred answer in [`Requests::app_answers`](crate::Requests::app_answers).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AppAnswer {
    /// The answer to [`Apps::handshake`].
    Handshake(HandshakeDecision),
    /// The answer to [`Apps::request`].
    Response(AppResponse),
    /// The head of a response whose body follows in parts.
    Head(AppResponseHead),
    /// A part of the response.
    Chunk {
        /// Part of the body, written unchanged; may be empty.
        data: Vec<u8>,
        /// Whether [`Apps::written`] is to be called when the outbox has room for more.
        asks: bool,
    },
    /// The end of the response.
    End {
        /// Whether the response is complete. If false, the client sees a truncated response.
        is_whole: bool,
    },
}

/// The reason why an application's response is no longer needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AbandonReason {
    /// The connection has ended or failed.
    Disconnected,
    /// The application exceeded its time limit.
    TimedOut,
}

/// The opening request of a WebSocket, or a complete HTTP request; borrowed for the call.
#[derive(Clone, Copy, Debug)]
pub struct RequestView<'a> {
    /// Method, path, query and headers.
    pub head: &'a Head<'a>,
    /// Values of the route's parameters in the path.
    pub params: RouteParams<'a>,
    /// The IP address of the client.
    pub peer: IpAddr,
    /// The body of an HTTP request; empty for the opening request of a WebSocket.
    pub body: &'a [u8],
    /// The user that the route's identity or the application's own handshake decision determined; `None` if
    /// anonymous.
    pub user: Option<&'a str>,
    /// Whether `Authorization` contains a password, which was already verified and must not be passed on.
    pub has_password: bool,
}

/// The parameters in a route's path: `/room/:id` has the parameter `id`. Their values are parsed on demand.
#[derive(Clone, Copy, Debug)]
pub struct RouteParams<'a> {
    pattern: &'a str,
    path: &'a str,
}

impl<'a> RouteParams<'a> {
    /// Creates the parameters of `path`, which must be normalised and match `pattern`.
    pub(crate) fn new(pattern: &'a str, path: &'a str) -> Self {
        Self { pattern, path }
    }

    /// Returns names and decoded values in the order of the path; a value may contain a slash.
    pub fn iter(self) -> impl Iterator<Item = (&'a str, Cow<'a, str>)> {
        self.pattern
            .split('/')
            .zip(self.path.split('/'))
            .filter_map(|(piece, value)| {
                let name = piece.strip_prefix(':')?;
                Some((name, percent_decode_str(value).decode_utf8_lossy()))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_found_by_their_place_and_decoded() {
        type Pairs = &'static [(&'static str, &'static str)];
        let table: &[(&str, &str, Pairs)] = &[
            ("/room/:id", "/room/7", &[("id", "7")]),
            ("/room/:id", "/room/a b%2Fc", &[("id", "a b/c")]),
            ("/room/:id", "/room/%2570", &[("id", "%70")]),
            ("/:a/x/:b/*", "/1/x/2/3/4", &[("a", "1"), ("b", "2")]),
            ("/app/*", "/app/:id", &[]),
            ("/", "/", &[]),
        ];
        for (pattern, path, expected) in table {
            let found: Vec<_> = RouteParams::new(pattern, path).iter().collect();
            let found: Vec<_> = found
                .iter()
                .map(|(name, value)| (*name, &**value))
                .collect();
            assert_eq!(found, *expected, "{pattern} {path}");
        }
    }
}
