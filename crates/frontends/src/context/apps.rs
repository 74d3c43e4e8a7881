//! The trait by which connections call the applications of their worker.
//!
//! It knows no script, no VM and no coroutine: `veche` implements it on Lua, tests on a few lines of Rust. An application
//! does what it wants done through [`Context`] while it is called: messages into outboxes, publications to the hub, kicks
//! into the ports. Connections are never called back from there.

use veche_hub::{ConnectionId, HubReply, Ticket};
use veche_proto::websocket::MessageKind;
use veche_types::AppId;

use crate::context::app::{
    AbandonReason, AppResponse, HandshakeDecision, MaybeDeferred, RequestView,
};
use crate::context::worker_context::Context;

/// How far a handler got at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandlerProgress {
    /// It has ended.
    Done,
    /// It waits. The session gets no further message until its id comes in [`Context::app_ready`].
    Suspended,
}

/// The applications of one worker.
///
/// Each method is called with a [`Context`] out of which the applications themselves are taken, and none calls back
/// into a connection. Ids go stale with the connection: a send to a stale one fails cleanly
/// ([`Outboxes::send`](crate::Outboxes::send)).
///
/// For one id the calls come in this order: `handshake` (if there is one), `opened`, any number of `message`,
/// `drained` and `answered`, `closed`. Between a [`HandlerProgress::Suspended`] and the id in [`Context::app_ready`] no message
/// comes, with one exception: where the session ends by the peer's doing, what it had sent before is handed over right
/// before `closed`, so an application has to queue up to [`KEPT_MESSAGES_MAX`](crate::app::KEPT_MESSAGES_MAX) messages and the end
/// behind a handler that waits. (What our own Close cuts off is dropped.)
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
        request: &RequestView<'_>,
        shared: &mut Context,
    ) -> MaybeDeferred<HandshakeDecision>;

    /// The session is open: the 101 is written, and what is sent from now on stands behind it. The user's personal
    /// channel is subscribed.
    fn opened(
        &mut self,
        app: AppId,
        id: ConnectionId,
        request: &RequestView<'_>,
        shared: &mut Context,
    ) -> HandlerProgress;

    /// A whole message.
    fn message(
        &mut self,
        app: AppId,
        id: ConnectionId,
        kind: MessageKind,
        data: &[u8],
        shared: &mut Context,
    ) -> HandlerProgress;

    /// There is room again after [`Sending::Full`](crate::outbox::Sending::Full). Comes also while a handler waits.
    fn drained(&mut self, app: AppId, id: ConnectionId, shared: &mut Context);

    /// The hub answered a subscription or publication that was made with this session and ticket.
    fn answered(
        &mut self,
        app: AppId,
        id: ConnectionId,
        ticket: Ticket,
        answer: HubReply,
        shared: &mut Context,
    ) {
        let _ = (app, id, ticket, answer, shared);
    }

    /// The session is over; comes at once, also while a handler waits, and is the last call for this id. Nothing can be
    /// sent to it any more.
    ///
    /// Code and reason are those of the peer's Close frame or of ours, whichever was first;
    /// [`CloseCode::NoCode`](veche_types::codes::CloseCode::NoCode); or
    /// [`CloseCode::Abnormal`](veche_types::codes::CloseCode::Abnormal) with our words for why.
    fn closed(
        &mut self,
        app: AppId,
        id: ConnectionId,
        code: u16,
        reason: &str,
        shared: &mut Context,
    );

    /// A whole HTTP request. The next one of the connection waits for its answer.
    fn request(
        &mut self,
        app: AppId,
        id: ConnectionId,
        request: &RequestView<'_>,
        shared: &mut Context,
    ) -> MaybeDeferred<AppResponse>;

    /// There is room for more after an [`AppAnswer::Part`](crate::AppAnswer::Part) that asked for this. Comes once
    /// for all that have asked.
    fn written(&mut self, app: AppId, id: ConnectionId, shared: &mut Context);

    /// A connection that this application has dialed is open: the first call for its id. From now on its calls are
    /// those of a session: `message`, `drained`, `closed`. `None`: nobody wants it any more, and it is closed.
    fn client_opened(
        &mut self,
        app: AppId,
        token: u64,
        id: ConnectionId,
        protocol: Option<&str>,
        shared: &mut Context,
    ) -> Option<()> {
        let _ = (app, token, id, protocol, shared);
        None
    }

    /// A connection that this application has dialed did not come to be.
    fn client_failed(&mut self, app: AppId, token: u64, why: &str, shared: &mut Context) {
        let _ = (app, token, why, shared);
    }

    /// Nobody waits for the verdict or the response any more, or the session that was accepted did not come to be:
    /// there will be no `opened`.
    fn abandoned(&mut self, app: AppId, id: ConnectionId, why: AbandonReason, shared: &mut Context);

    /// Once a turn: timers, calls that have ended.
    fn turn(&mut self, shared: &mut Context);

    /// When [`Apps::turn`] has something to do, at the latest: monotonic milliseconds; `u64::MAX` for never.
    fn deadline_ms(&self) -> u64;
}
