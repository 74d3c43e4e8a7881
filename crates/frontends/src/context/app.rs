//! What connections ask of applications, and what applications answer: the seam to scripts.
//!
//! A route with [`Handler::Lua`](crate::context::route::Handler) leads to an application, which is called by [`Apps`].

use std::borrow::Cow;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use percent_encoding::percent_decode_str;
use veche_proto::http::{Head, Status};
pub use veche_types::AppId;

pub use crate::context::apps::{Apps, HandlerProgress};

/// Messages of a session that are kept while its handler waits; beyond that its input waits.
pub const QUEUED_MESSAGES_MAX: usize = 16;

/// Once so many bytes of messages are kept, input waits: so much and one message more is kept at most.
pub const QUEUED_BYTES_HIGH: usize = 64 << 10;

/// An answer, at once or later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MaybeDeferred<T> {
    /// Here it is.
    Ready(T),
    /// It comes exactly once in [`Ports::app_answers`](crate::Ports::app_answers), unless [`Apps::gone`] comes first: as
    /// a whole, or as its beginning, its parts and its end, in this order.
    Deferred,
}

/// What an application makes of a handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandshakeDecision {
    /// The WebSocket is opened.
    Accept {
        /// Who the client is; `None` leaves it at what the route's identity says. Has to be a
        /// [valid user](crate::context::identity::is_valid_user).
        user: Option<String>,
        /// The subprotocol for the 101, one of those that were offered.
        protocol: Option<String>,
    },
    /// This is answered instead. The connection stays open for another request.
    Refuse(AppResponse),
}

/// A whole response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppResponse {
    /// 200 to 599.
    pub status: Status,
    /// Names and values, without those that frame a response (`Content-Length`, `Transfer-Encoding`, `Connection`,
    /// `Keep-Alive`, `Date`): these are written by the connection. One that can't be written makes it a 500.
    pub headers: Vec<(String, String)>,
    /// Left out for HEAD, 204 and 304.
    pub body: AppBody,
}

/// What a response holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AppBody {
    /// So much.
    Bytes(Vec<u8>),
    /// A file.
    File(AppFile),
}

/// A file that an application answers with: with the response's headers in place of the file's own of these names. To GET
/// with 200 ranges and conditions count. If there is no such file, or it may not be read, that is what is answered, and the
/// response's own status and headers are left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppFile {
    /// The folder that it may not lie outside of.
    pub root: Arc<Path>,
    /// Where it is below the folder, as [`static_files::is_safe_path`](crate::http::static_files::is_safe_path) wants it.
    pub relative: String,
}

/// The beginning of a response that is written in parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppResponseHead {
    /// 200 to 599.
    pub status: Status,
    /// As those of a [`AppResponse`].
    pub headers: Vec<(String, String)>,
}

/// What comes in [`Ports::app_answers`](crate::Ports::app_answers).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AppAnswer {
    /// To [`Apps::handshake`].
    Handshake(HandshakeDecision),
    /// To [`Apps::request`].
    Response(AppResponse),
    /// The same, of a response in parts, which follow.
    Head(AppResponseHead),
    /// A part of it.
    Chunk {
        /// As they are; nothing for none.
        data: Vec<u8>,
        /// Whether [`Apps::written`] is to be called once there is room for more.
        asks: bool,
    },
    /// Its end.
    End {
        /// Otherwise the client is to notice that something is missing.
        is_whole: bool,
    },
}

/// Why nobody waits any more for what an application has to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AbandonReason {
    /// The connection has ended, or something went wrong with it.
    Disconnected,
    /// The application took longer than it may.
    TimedOut,
}

/// The opening request of a WebSocket, or a whole HTTP request; lent for the call.
#[derive(Clone, Copy, Debug)]
pub struct RequestView<'a> {
    /// Method, path, query and headers.
    pub head: &'a Head<'a>,
    /// What the path holds for the route's parameters.
    pub params: RouteParams<'a>,
    /// Where it comes from.
    pub peer: IpAddr,
    /// Empty for the opening request of a WebSocket.
    pub body: &'a [u8],
    /// Who it is by the route's identity, or by the application's own verdict.
    pub user: Option<&'a str>,
    /// The header `Authorization` holds a password, which is nobody's business any more.
    pub has_password: bool,
}

/// Parameters of a route: `/room/:id` has `id`. Looked up only when asked for.
#[derive(Clone, Copy, Debug)]
pub struct RouteParams<'a> {
    pattern: &'a str,
    path: &'a str,
}

impl<'a> RouteParams<'a> {
    /// `path` is in normal form, and has to match `pattern`.
    pub(crate) fn new(pattern: &'a str, path: &'a str) -> Self {
        Self { pattern, path }
    }

    /// Names and values in the order of the path; values are decoded, so that a slash may be in them.
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
