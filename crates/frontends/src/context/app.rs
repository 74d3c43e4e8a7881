//! What connections ask of applications, and what applications answer: the seam to scripts.
//!
//! A route with [`Handler::Lua`](crate::context::route::Handler) leads here. The trait knows no script, no VM and no coroutine:
//! `veche` implements it on Lua, tests on a few lines of Rust. What an application wants done it does through
//! [`Shared`] while it is called: messages into outboxes, publications to the hub, kicks into the ports. Connections
//! are never called back from there.

use std::borrow::Cow;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use percent_encoding::percent_decode_str;
use veche_hub::{Answer, ConnectionId, Ticket};
use veche_proto::http::{Head, Status};
use veche_proto::websocket::MessageKind;
pub use veche_types::AppId;

use crate::context::shared::Shared;

/// Messages of a session that are kept while its handler waits; beyond that its input waits.
pub const KEPT_MESSAGES_MAX: usize = 16;

/// Once so many bytes of messages are kept, input waits: so much and one message more is kept at most.
pub const KEPT_BYTES_HIGH: usize = 64 << 10;

/// What [`Apps::closed`] is told where the peer's Close frame has no code (RFC 6455, section 7.1.5).
pub const CLOSED_WITHOUT_CODE: u16 = 1005;

/// What [`Apps::closed`] is told where the connection ended without any Close frame (RFC 6455, section 7.1.5).
pub const CLOSED_ABNORMALLY: u16 = 1006;

/// How far a handler got at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It has ended.
    Done,
    /// It waits. The session gets no further message until its id comes in [`Shared::app_ready`].
    Waits,
}

/// An answer, at once or later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome<T> {
    /// Here it is.
    Now(T),
    /// It comes exactly once in [`Ports::app_answers`](crate::Ports::app_answers), unless [`Apps::gone`] comes first: as
    /// a whole, or as its beginning, its parts and its end, in this order.
    Later,
}

/// What an application makes of a handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The WebSocket is opened.
    Accept {
        /// Who the client is; `None` leaves it at what the route's identity says. Has to be a
        /// [valid user](crate::context::identity::is_valid_user).
        user: Option<String>,
        /// The subprotocol for the 101, one of those that were offered.
        protocol: Option<String>,
    },
    /// This is answered instead. The connection stays open for another request.
    Refuse(Response),
}

/// A whole response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// 200 to 599.
    pub status: Status,
    /// Names and values, without those that frame a response (`Content-Length`, `Transfer-Encoding`, `Connection`,
    /// `Keep-Alive`, `Date`): these are written by the connection. One that can't be written makes it a 500.
    pub headers: Vec<(String, String)>,
    /// Left out for HEAD, 204 and 304.
    pub body: Body,
}

/// What a response holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
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
pub struct Beginning {
    /// 200 to 599.
    pub status: Status,
    /// As those of a [`Response`].
    pub headers: Vec<(String, String)>,
}

/// What comes in [`Ports::app_answers`](crate::Ports::app_answers).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AppAnswer {
    /// To [`Apps::handshake`].
    Verdict(Verdict),
    /// To [`Apps::request`].
    Response(Response),
    /// The same, of a response in parts, which follow.
    Begin(Beginning),
    /// A part of it.
    Part {
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
pub enum Gone {
    /// The connection has ended, or something went wrong with it.
    Left,
    /// The application took longer than it may.
    TooLate,
}

/// The opening request of a WebSocket, or a whole HTTP request; lent for the call.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Method, path, query and headers.
    pub head: &'a Head<'a>,
    /// What the path holds for the route's parameters.
    pub params: Params<'a>,
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
pub struct Params<'a> {
    pattern: &'a str,
    path: &'a str,
}

impl<'a> Params<'a> {
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

/// The applications of one worker.
///
/// Each method is called with a [`Shared`] out of which the applications themselves are taken, and none calls back
/// into a connection. Ids go stale with the connection: a send to a stale one fails cleanly
/// ([`Outboxes::send`](crate::Outboxes::send)).
///
/// For one id the calls come in this order: `handshake` (if there is one), `opened`, any number of `message`,
/// `drained` and `answered`, `closed`. Between a [`Progress::Waits`] and the id in [`Shared::app_ready`] no message
/// comes, with one exception: where the session ends by the peer's doing, what it had sent before is handed over right
/// before `closed`, so an application has to queue up to [`KEPT_MESSAGES_MAX`] messages and the end behind a handler
/// that waits. (What our own Close cuts off is dropped.)
/// After a handler has asked to close its own session (a kick in the ports) it gets no further message.
pub trait Apps: std::any::Any {
    /// Whether this application judges handshakes; if not, `handshake` is never called for it.
    fn has_handshake(&self, app: AppId) -> bool;

    /// A handshake that is right by the protocol and by the route's origins and identity; the 101 is not written yet.
    /// No answer within the handshake timeout ends the connection with 503.
    fn handshake(
        &mut self,
        app: AppId,
        id: ConnectionId,
        request: &Request<'_>,
        shared: &mut Shared,
    ) -> Outcome<Verdict>;

    /// The session is open: the 101 is written, and what is sent from now on stands behind it. The user's personal
    /// channel is subscribed.
    fn opened(
        &mut self,
        app: AppId,
        id: ConnectionId,
        request: &Request<'_>,
        shared: &mut Shared,
    ) -> Progress;

    /// A whole message.
    fn message(
        &mut self,
        app: AppId,
        id: ConnectionId,
        kind: MessageKind,
        data: &[u8],
        shared: &mut Shared,
    ) -> Progress;

    /// There is room again after [`Sending::Full`](crate::outbox::Sending::Full). Comes also while a handler waits.
    fn drained(&mut self, app: AppId, id: ConnectionId, shared: &mut Shared);

    /// The hub answered a subscription or publication that was made with this session and ticket.
    fn answered(
        &mut self,
        app: AppId,
        id: ConnectionId,
        ticket: Ticket,
        answer: Answer,
        shared: &mut Shared,
    ) {
        let _ = (app, id, ticket, answer, shared);
    }

    /// The session is over; comes at once, also while a handler waits, and is the last call for this id. Nothing can be
    /// sent to it any more.
    ///
    /// Code and reason are those of the peer's Close frame or of ours, whichever was first;
    /// [`CLOSED_WITHOUT_CODE`]; or [`CLOSED_ABNORMALLY`] with our words for why.
    fn closed(
        &mut self,
        app: AppId,
        id: ConnectionId,
        code: u16,
        reason: &str,
        shared: &mut Shared,
    );

    /// A whole HTTP request. The next one of the connection waits for its answer.
    fn request(
        &mut self,
        app: AppId,
        id: ConnectionId,
        request: &Request<'_>,
        shared: &mut Shared,
    ) -> Outcome<Response>;

    /// There is room for more after an [`AppAnswer::Part`] that asked for this. Comes once for all that have asked.
    fn written(&mut self, app: AppId, id: ConnectionId, shared: &mut Shared);

    /// A connection that this application has dialed is open: the first call for its id. From now on its calls are
    /// those of a session: `message`, `drained`, `closed`. `None`: nobody wants it any more, and it is closed.
    fn client_opened(
        &mut self,
        app: AppId,
        token: u64,
        id: ConnectionId,
        protocol: Option<&str>,
        shared: &mut Shared,
    ) -> Option<()> {
        let _ = (app, token, id, protocol, shared);
        None
    }

    /// A connection that this application has dialed did not come to be.
    fn client_failed(&mut self, app: AppId, token: u64, why: &str, shared: &mut Shared) {
        let _ = (app, token, why, shared);
    }

    /// Nobody waits for the verdict or the response any more, or the session that was accepted did not come to be:
    /// there will be no `opened`.
    fn gone(&mut self, app: AppId, id: ConnectionId, why: Gone, shared: &mut Shared);

    /// Once a turn: timers, calls that have ended.
    fn turn(&mut self, shared: &mut Shared);

    /// When [`Apps::turn`] has something to do, at the latest: monotonic milliseconds; `u64::MAX` for never.
    fn deadline_ms(&self) -> u64;
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
            let found: Vec<_> = Params::new(pattern, path).iter().collect();
            let found: Vec<_> = found
                .iter()
                .map(|(name, value)| (*name, &**value))
                .collect();
            assert_eq!(found, *expected, "{pattern} {path}");
        }
    }
}
