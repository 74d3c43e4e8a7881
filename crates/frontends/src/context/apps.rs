//! The trait by which connections call the applications of their worker.
//!
//! It knows no script, VM or coroutine: the product implements it with Lua, tests with a few lines of Rust. During a
//! call an application acts through the context: messages to outboxes, publications to the hub, disconnects in the
//! requests. Connections are never re-entered.

use veche_hub::{ConnectionId, HubReply, Ticket};
use veche_proto::websocket::MessageKind;
use veche_types::AppId;

use crate::context::app::{
    AbandonReason, AppResponse, HandshakeDecision, MaybeDeferred, RequestView,
};
use crate::context::worker_context::Context;

/// The progress of a handler call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppProgress {
    /// The handler has ended.
    Done,
    /// The handler is suspended. The session gets no further message until its id is in [`Context::app_ready`].
    Suspended,
}

/// The applications of one worker.
///
/// Each method receives the context without the applications themselves, and none re-enters a connection. Ids become
/// stale with the connection: a send to a stale one fails cleanly ([`Outboxes::send`](crate::Outboxes::send)).
///
/// The calls for one id come in this order: `handshake` (if implemented), `opened`, any number of `message`, `drained`
/// and `answered`, `closed`. Between a [`AppProgress::Suspended`] and the id in [`Context::app_ready`] no message follows, with
/// one exception: if the peer ends the session, its remaining messages are passed right before `closed`, so an
/// application has to queue up to [`QUEUED_MESSAGES_MAX`](crate::app::QUEUED_MESSAGES_MAX) messages and the end behind a
/// suspended handler. (Messages cut off by our own Close are dropped.) After a handler has requested to close its own
/// session, it gets no further message.
pub trait Apps: std::any::Any {
    /// Returns whether this application decides on handshakes; if not, `handshake` is never called for it.
    fn has_handshake(&self, app: AppId) -> bool;

    /// Decides on a handshake that is valid by the protocol and by the route's origins and identity; the 101 is not
    /// written yet. Without an answer within the handshake timeout the connection ends with 503.
    fn handshake(
        &mut self,
        app: AppId,
        id: ConnectionId,
        request: &RequestView<'_>,
        shared: &mut Context,
    ) -> MaybeDeferred<HandshakeDecision>;

    /// Handles an open session: the 101 is written, later output follows it, and the user's personal channel is
    /// subscribed.
    fn opened(
        &mut self,
        app: AppId,
        id: ConnectionId,
        request: &RequestView<'_>,
        shared: &mut Context,
    ) -> AppProgress;

    /// Handles a complete message.
    fn message(
        &mut self,
        app: AppId,
        id: ConnectionId,
        kind: MessageKind,
        data: &[u8],
        shared: &mut Context,
    ) -> AppProgress;

    /// Handles that there is room again after [`SendResult::Full`](crate::outbox::SendResult::Full). Also called while a
    /// handler is suspended.
    fn drained(&mut self, app: AppId, id: ConnectionId, shared: &mut Context);

    /// Handles the hub's answer to a subscription or publication made with this session and ticket.
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

    /// Handles the end of the session; called immediately, even while a handler is suspended, as the last call for this
    /// id. Nothing can be sent to the session any more.
    ///
    /// Code and reason are those of the first Close frame, the peer's or ours;
    /// [`CloseCode::NoCode`](veche_types::codes::CloseCode::NoCode); or
    /// [`CloseCode::Abnormal`](veche_types::codes::CloseCode::Abnormal) with our reason.
    fn closed(
        &mut self,
        app: AppId,
        id: ConnectionId,
        code: u16,
        reason: &str,
        shared: &mut Context,
    );

    /// Handles a complete HTTP request. The next one of the connection waits for its response.
    fn request(
        &mut self,
        app: AppId,
        id: ConnectionId,
        request: &RequestView<'_>,
        shared: &mut Context,
    ) -> MaybeDeferred<AppResponse>;

    /// Handles that the outbox has room again after a part of a response. Called once for all parts that waited.
    fn written(&mut self, app: AppId, id: ConnectionId, shared: &mut Context);

    /// Handles the opening of a connection that this application dialed: the first call for its id. Later calls are
    /// those of a session: `message`, `drained`, `closed`. Returns `None` if the connection is no longer needed; it is
    /// then closed.
    fn client_opened(
        &mut self,
        app: AppId,
        token: u64,
        id: ConnectionId,
        protocol: Option<&str>,
        shared: &mut Context,
    ) -> Option<()>;

    /// Handles the failure of a connection that this application dialed.
    fn client_failed(&mut self, app: AppId, token: u64, why: &str, shared: &mut Context) {
        let _ = (app, token, why, shared);
    }

    /// Handles that the decision or response is no longer needed, or the accepted session did not open: `opened` will
    /// not follow.
    fn abandoned(&mut self, app: AppId, id: ConnectionId, why: AbandonReason, shared: &mut Context);

    /// Runs timers and ended calls; called once per turn.
    fn turn(&mut self, shared: &mut Context);

    /// Returns the latest time of the next [`Apps::turn`] in monotonic milliseconds; `u64::MAX` for never.
    fn deadline_ms(&self) -> u64;
}
