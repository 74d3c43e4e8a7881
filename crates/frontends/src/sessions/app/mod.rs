//! A session of an application. It runs the application's handlers one at a time, and queues messages while a handler
//! is suspended.
//!
//! The session does not interpret messages. A message is passed to the application at once, or queued if a handler is
//! suspended. The socket is read as long as the queue has room, so that pings are answered and a Close is noticed. A
//! session without a suspended handler holds no memory for a queue.

pub(crate) mod dialing;

use std::collections::VecDeque;
use std::sync::Arc;

use veche_hub::{ConnectionId, HubReply, Ticket, UserAction, UserCommand};
use veche_proto::websocket::MessageKind;
use veche_types::AppId;

use crate::context::app::{QUEUED_BYTES_HIGH, QUEUED_MESSAGES_MAX, RequestView};
use crate::context::apps::{AppProgress, Apps};
use crate::context::route::Route;
use crate::context::session::{Flow, Session, SessionContext};
use crate::context::session_info::SessionInfo;
use crate::context::step::WaitReason;
use crate::context::work_budget;
use crate::context::worker_context::Context;
use crate::http::protocol::{HandshakeRequest, NewSession, OpenSession};
use crate::http::upgrade::RefusedUpgrade;
use crate::outbox::ANSWERS_BYTES_HIGH;
use crate::outbox::delivery_mode::DeliveryMode;

/// The ticket of subscriptions that a back end requests. Applications number their tickets from 1 and ignore the
/// reply to this one.
const BACKEND_TICKET: Ticket = Ticket(u32::MAX);

/// A session of an application.
pub(crate) struct AppSession {
    app: AppId,
    state: State,
    /// Whether this is the session of an outbound connection. The input of such a session is processed
    /// even while its output is unsent; otherwise both ends might wait for each other to read. Its
    /// output is limited when an application sends.
    is_client: bool,
    /// The queued messages; `None` if the queue is empty.
    queued: Option<Box<QueuedMessages>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// No handler is running.
    Free,
    /// A handler is suspended.
    Busy,
    /// The end of the session was reported to the application.
    Over,
}

#[derive(Default)]
struct QueuedMessages {
    messages: VecDeque<(MessageKind, Vec<u8>)>,
    bytes: usize,
}

impl From<AppProgress> for State {
    fn from(progress: AppProgress) -> Self {
        match progress {
            AppProgress::Done => Self::Free,
            AppProgress::Suspended => Self::Busy,
        }
    }
}

impl AppSession {
    /// Creates the session of a client.
    pub(crate) fn new(app: AppId) -> Self {
        Self {
            app,
            state: State::Free,
            is_client: false,
            queued: None,
        }
    }

    /// Creates the session of an outbound connection.
    pub(crate) fn of_client(app: AppId) -> Self {
        Self {
            is_client: true,
            ..Self::new(app)
        }
    }

    /// Passes queued messages to the application while no handler is suspended and the client reads.
    fn pump(&mut self, apps: &mut dyn Apps, id: ConnectionId, shared: &mut Context) -> Flow {
        while self.state == State::Free
            && let Some(kept) = &mut self.queued
        {
            if shared.requests.is_disconnecting(id) {
                return take_disconnect(id, shared);
            }
            if !self.is_client && shared.requests.outboxes.of(id).queued() > ANSWERS_BYTES_HIGH {
                return Flow::Wait(WaitReason::Output);
            }
            let Some((kind, data)) = kept.messages.pop_front() else {
                self.queued = None;
                break;
            };
            kept.bytes -= data.len();
            self.state = apps.message(self.app, id, kind, &data, shared).into();
        }
        if self
            .queued
            .as_ref()
            .is_some_and(|kept| kept.messages.is_empty())
        {
            self.queued = None;
        }
        self.input_block().map_or(Flow::Continue, Flow::Wait)
    }

    fn end(
        &mut self,
        apps: &mut dyn Apps,
        id: ConnectionId,
        code: u16,
        reason: &str,
        shared: &mut Context,
    ) {
        self.state = State::Over;
        shared.requests.outboxes.refuse_pushes(id);
        for (kind, data) in self
            .queued
            .take()
            .map(|kept| kept.messages)
            .unwrap_or_default()
        {
            apps.message(self.app, id, kind, &data, shared);
        }
        apps.closed(self.app, id, code, reason, shared);
    }
}

/// Closes the session at once if its application has requested that, so that its handlers receive no further message.
fn take_disconnect(id: ConnectionId, shared: &mut Context) -> Flow {
    match shared.requests.take_disconnect(id) {
        Some((code, reason)) => Flow::Close(code, reason.into()),
        None => Flow::Continue,
    }
}

impl OpenSession for AppSession {
    fn begin(
        wanted: &HandshakeRequest<'_, '_, '_>,
        _: &Context,
    ) -> Result<NewSession<Self>, RefusedUpgrade> {
        match wanted.route.handler.app() {
            Some(app) => Ok(NewSession::of(Self::new(app))),
            None => unreachable!("the route of an application's client must name an application"),
        }
    }

    fn has_user(&self) -> bool {
        true
    }

    fn delivery_mode(&self, route: &Route) -> DeliveryMode {
        route.delivery_mode()
    }

    fn wants_opened(&self) -> bool {
        true
    }

    fn handle_opened(&mut self, id: ConnectionId, request: &RequestView<'_>, shared: &mut Context) {
        let app = self.app;
        if let Some(progress) =
            shared.with_apps(|apps, shared| apps.opened(app, id, request, shared))
        {
            self.state = progress.into();
        }
    }
}

impl Session for AppSession {
    fn info(&self) -> SessionInfo<'_> {
        SessionInfo::of("lua")
    }

    fn input_block(&self) -> Option<WaitReason> {
        let kept = self.queued.as_ref()?;
        let is_full = kept.messages.len() >= QUEUED_MESSAGES_MAX || kept.bytes >= QUEUED_BYTES_HIGH;
        is_full.then_some(WaitReason::App)
    }

    /// Passes a message to the application, or queues it while a handler is suspended.
    #[inline]
    fn handle_message(
        &mut self,
        kind: MessageKind,
        data: &[u8],
        cx: &mut SessionContext<'_>,
    ) -> Flow {
        let (app, id) = (self.app, cx.id);
        cx.shared.work.charge(work_budget::COMMAND);
        if cx.shared.requests.is_disconnecting(id) {
            return take_disconnect(id, cx.shared);
        }
        if self.state == State::Free && self.queued.is_none() {
            let progress = cx
                .shared
                .with_apps(|apps, shared| apps.message(app, id, kind, data, shared));
            // `None` would mean that the worker has no applications, but then it opens no such session.
            if let Some(progress) = progress {
                self.state = progress.into();
            }
        } else if self.state != State::Over {
            let kept = self.queued.get_or_insert_default();
            kept.bytes += data.len();
            kept.messages.push_back((kind, data.to_vec()));
        }
        Flow::Continue
    }

    fn resume(&mut self, cx: &mut SessionContext<'_>) -> Flow {
        let id = cx.id;
        let flow = cx
            .shared
            .with_apps(|apps, shared| self.pump(apps, id, shared));
        flow.unwrap_or(Flow::Continue)
    }

    fn handle_answer(
        &mut self,
        ticket: Ticket,
        answer: HubReply,
        cx: &mut SessionContext<'_>,
    ) -> Option<Flow> {
        if self.state != State::Over {
            let (app, id) = (self.app, cx.id);
            cx.shared
                .with_apps(|apps, shared| apps.answered(app, id, ticket, answer, shared));
        }
        None
    }

    fn handle_user_command(
        &mut self,
        instruction: &Arc<UserCommand>,
        cx: &mut SessionContext<'_>,
    ) -> Flow {
        match &instruction.action {
            UserAction::Subscribe(wanted) => {
                cx.shared
                    .subscribe_by_backend(cx.id, wanted, BACKEND_TICKET);
            }
            UserAction::Unsubscribe { channel } => {
                cx.shared.unsubscribe_by_backend(cx.id, channel);
            }
            UserAction::Disconnect { .. } | UserAction::Refresh { .. } => {}
        }
        Flow::Continue
    }

    fn closes_on_fault(&self) -> bool {
        true
    }

    /// Reports the end of the session to the application. If the peer ended the session, its queued
    /// messages are passed to the application first.
    fn handle_closed(&mut self, code: u16, reason: &str, cx: &mut SessionContext<'_>) {
        if !cx.is_open {
            // The server has begun to close the session, so queued messages are dropped.
            self.queued = None;
        }
        if self.state != State::Over {
            let id = cx.id;
            cx.shared
                .with_apps(|apps, shared| self.end(apps, id, code, reason, shared));
        }
    }

    fn handle_app_ready(&mut self) -> bool {
        let was_busy = self.state == State::Busy;
        if was_busy {
            self.state = State::Free;
        }
        was_busy
    }

    fn handle_drained(&mut self, id: ConnectionId, shared: &mut Context) {
        if self.state != State::Over {
            let app = self.app;
            shared.with_apps(|apps, shared| apps.drained(app, id, shared));
        }
    }
}
