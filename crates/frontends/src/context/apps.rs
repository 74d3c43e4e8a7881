//! The trait by which connections call the applications of their worker.
//!
//! The trait does not depend on how applications run, so tests implement it with a few lines of
//! Rust. During a call an application acts through the context: it sends messages to outboxes,
//! sends publications to the hub, and requests disconnects. No method calls back into a connection.

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
    /// The handler is suspended. Further messages of the session are passed only after the session's id was in
    /// [`Context::app_ready`].
    Suspended,
}

/// The applications of one worker.
///
/// Each method receives the context without the applications themselves, and none calls back into a connection. An id
/// becomes stale when its connection is closed: a send to a stale id returns an error
/// ([`Outboxes::send`](crate::Outboxes::send)).
///
/// The calls for one id come in this order: `handshake` (if the application has one), `opened`, any number of
/// `message`, `drained` and `answered`, then `closed`. After [`AppProgress::Suspended`], no message follows until the
/// id was in [`Context::app_ready`], with one exception: if the peer ends the session, its remaining messages are
/// passed right before `closed`. An application must therefore be able to queue up to
/// [`QUEUED_MESSAGES_MAX`](crate::app::QUEUED_MESSAGES_MAX) messages and the end of the session behind a suspended
/// handler. (If the server sends its Close first, remaining messages are dropped.) After a handler has requested to
/// close its own session, the session gets no further message.
pub trait Apps: std::any::Any {
    /// Returns whether this application decides on handshakes; if not, `handshake` is never called for it.
    fn has_handshake(&self, app: AppId) -> bool;

    /// Decides on a handshake that has passed the checks of its protocol, origin and identity, before the 101 response
    /// is written. If no decision comes within the handshake timeout, the connection ends with a 503 response.
    fn handshake(
        &mut self,
        app: AppId,
        id: ConnectionId,
        request: &RequestView<'_>,
        shared: &mut Context,
    ) -> MaybeDeferred<HandshakeDecision>;

    /// Handles an open session. The 101 response is written, so output of the application follows it, and the session
    /// is subscribed to the user's personal channel.
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

    /// Notifies the application that the outbox has room again after a send returned
    /// [`SendResult::Full`](crate::outbox::SendResult::Full). Also called while a handler is suspended.
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
    /// Code and reason are those of the Close frame that was sent first, by the peer or by the server;
    /// [`CloseCode::NoCode`](veche_types::codes::CloseCode::NoCode) if that frame has none;
    /// [`CloseCode::Abnormal`](veche_types::codes::CloseCode::Abnormal) with the server's reason if there was no
    /// Close frame.
    fn closed(
        &mut self,
        app: AppId,
        id: ConnectionId,
        code: u16,
        reason: &str,
        shared: &mut Context,
    );

    /// Handles a complete HTTP request. The connection's next request is passed only after the response to this one.
    fn request(
        &mut self,
        app: AppId,
        id: ConnectionId,
        request: &RequestView<'_>,
        shared: &mut Context,
    ) -> MaybeDeferred<AppResponse>;

    /// Notifies the application that the outbox has room again for a response in parts. Called once,
    /// even if several parts requested the call.
    fn written(&mut self, app: AppId, id: ConnectionId, shared: &mut Context);

    /// Handles the opening of a connection that this application dialed. This is the first call for
    /// the connection's id. Later calls are those of a session: `message`, `drained`, `closed`.
    /// Returns `None` if the connection is no longer needed, so that it is closed.
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

    /// Notifies the application that a pending decision or response is no longer needed, or that an accepted session
    /// did not open. In the latter case `opened` is not called for the session.
    fn abandoned(&mut self, app: AppId, id: ConnectionId, why: AbandonReason, shared: &mut Context);

    /// Runs due timers, and continues handlers that waited for a call which is now complete. Called once per turn.
    fn turn(&mut self, shared: &mut Context);

    /// Returns the monotonic time in milliseconds by which [`Apps::turn`] has to be called next; `u64::MAX`: no
    /// deadline.
    fn deadline_ms(&self) -> u64;
}
