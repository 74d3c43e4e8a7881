//! The worker's interface to applications, in addition to the calls that sessions make.

use std::any::Any;

use veche_frontends::app::{
    AbandonReason, AppProgress, AppResponse, HandshakeDecision, MaybeDeferred, RequestView,
};
use veche_frontends::hooks::HookRequest;
use veche_frontends::worker_context::TokenRenewal;
use veche_frontends::{Apps, Context, RenewError};
use veche_hub::{ChannelEvent, Ticket};
use veche_types::{AppId, ConnectionId, MessageKind};

use crate::worker::Worker;

/// The applications of a worker. Sessions call them through the trait [`Apps`]; the worker uses their concrete type.
pub trait AppHost: Apps {
    /// A message from the applications of one worker to those of another.
    type Message;

    /// Returns the application that made a hub request, given the session id of the request; `None` if the id belongs
    /// to a connection.
    fn requesting_app(session: ConnectionId) -> Option<AppId> {
        let _ = session;
        None
    }

    /// Handles a message from the applications of another worker.
    fn handle_message(&mut self, message: Self::Message, shared: &mut Context);

    /// Returns whether [`next_message`](Self::next_message) has a message for any worker.
    fn has_messages(&self) -> bool {
        false
    }

    /// Takes the next message for the applications of worker `to`.
    fn next_message(&mut self, to: usize) -> Option<Self::Message> {
        let _ = to;
        None
    }

    /// Makes an application decide on a client's command. The application adds exactly one decision to the worker's
    /// hook decisions, during this call or later. A `timeout_ms` of 0 means no time limit.
    fn decide_hook(
        &mut self,
        app: AppId,
        timeout_ms: u64,
        request: &HookRequest,
        shared: &mut Context,
    );

    /// Reports to an application the result of a token renewal that the application has requested for a session.
    fn handle_renewed(
        &mut self,
        renewal: &TokenRenewal,
        result: Result<Option<u64>, RenewError>,
        shared: &mut Context,
    );

    /// Handles channel events; `lost` is the number of events lost before them. Returns whether an application now has
    /// work, so that another turn is needed.
    fn handle_channel_event(&mut self, events: &[ChannelEvent], lost: u64) -> bool {
        let _ = (events, lost);
        false
    }

    /// Notifies all applications, except services, that the worker is stopping.
    fn stop(&mut self, shared: &mut Context) {
        let _ = shared;
    }

    /// Returns whether the stop handlers of all applications have ended.
    fn has_stopped(&self) -> bool {
        true
    }

    /// Returns whether an application still has a client, including a disconnected one whose last handler has not
    /// ended.
    fn has_clients(&self) -> bool {
        false
    }

    /// Requests services to stop. Those still running at `until_ms`, in monotonic milliseconds, are aborted. May be
    /// called again with an earlier time.
    fn stop_services(&mut self, until_ms: u64, shared: &mut Context) {
        let _ = (until_ms, shared);
    }

    /// Returns whether services were requested to stop and none is running any more.
    fn have_services_ended(&self) -> bool {
        true
    }
}

/// The type of the applications of a worker without applications. No value of it exists.
#[derive(Debug)]
pub enum NoApps {}

impl Apps for NoApps {
    fn has_handshake(&self, _: AppId) -> bool {
        match *self {}
    }

    fn handshake(
        &mut self,
        _: AppId,
        _: ConnectionId,
        _: &RequestView<'_>,
        _: &mut Context,
    ) -> MaybeDeferred<HandshakeDecision> {
        match *self {}
    }

    fn opened(
        &mut self,
        _: AppId,
        _: ConnectionId,
        _: &RequestView<'_>,
        _: &mut Context,
    ) -> AppProgress {
        match *self {}
    }

    fn message(
        &mut self,
        _: AppId,
        _: ConnectionId,
        _: MessageKind,
        _: &[u8],
        _: &mut Context,
    ) -> AppProgress {
        match *self {}
    }

    fn drained(&mut self, _: AppId, _: ConnectionId, _: &mut Context) {
        match *self {}
    }

    fn closed(&mut self, _: AppId, _: ConnectionId, _: u16, _: &str, _: &mut Context) {
        match *self {}
    }

    fn request(
        &mut self,
        _: AppId,
        _: ConnectionId,
        _: &RequestView<'_>,
        _: &mut Context,
    ) -> MaybeDeferred<AppResponse> {
        match *self {}
    }

    fn written(&mut self, _: AppId, _: ConnectionId, _: &mut Context) {
        match *self {}
    }

    fn client_opened(
        &mut self,
        _: AppId,
        _: u64,
        _: ConnectionId,
        _: Option<&str>,
        _: &mut Context,
    ) -> Option<()> {
        match *self {}
    }

    fn abandoned(&mut self, _: AppId, _: ConnectionId, _: AbandonReason, _: &mut Context) {
        match *self {}
    }

    fn turn(&mut self, _: &mut Context) {
        match *self {}
    }

    fn deadline_ms(&self) -> u64 {
        match *self {}
    }
}

impl AppHost for NoApps {
    type Message = std::convert::Infallible;

    fn handle_message(&mut self, _: Self::Message, _: &mut Context) {
        match *self {}
    }

    fn decide_hook(&mut self, _: AppId, _: u64, _: &HookRequest, _: &mut Context) {
        match *self {}
    }

    fn handle_renewed(
        &mut self,
        _: &TokenRenewal,
        _: Result<Option<u64>, RenewError>,
        _: &mut Context,
    ) {
        match *self {}
    }
}

impl<A: AppHost, T> Worker<A, T> {
    /// Calls a function with the applications, which are moved out of the context during the call. Returns `None` if
    /// there are none.
    pub fn with_apps<R>(&mut self, call: impl FnOnce(&mut A, &mut Context) -> R) -> Option<R> {
        let result = self.shared.with_apps(|apps, shared| {
            let apps: &mut dyn Any = apps;
            apps.downcast_mut::<A>().map(|apps| call(apps, shared))
        });
        result.flatten()
    }

    pub(crate) fn apps(&self) -> Option<&A> {
        let apps: &dyn Any = self.shared.apps.as_deref()?;
        apps.downcast_ref()
    }

    pub(crate) fn apps_mut(&mut self) -> Option<&mut A> {
        let apps: &mut dyn Any = self.shared.apps.as_deref_mut()?;
        apps.downcast_mut()
    }

    /// Runs the applications' turn, and resumes the connections that waited for an application. Effects that this
    /// causes are handled in the next turn, so that two applications that answer each other immediately can't occupy
    /// the worker forever.
    pub(crate) fn run_apps(&mut self) {
        if self
            .shared
            .with_apps(|apps, shared| apps.turn(shared))
            .is_none()
        {
            return;
        }
        if self.shared.requests.outboxes.has_drained() {
            let mut ids = std::mem::take(&mut self.ids);
            self.shared.requests.outboxes.take_drained(&mut ids);
            for id in ids.drain(..) {
                self.with(id, |connection, shared| {
                    connection.handle_drained(id, shared)
                });
            }
            self.ids = ids;
        }
        for _ in 0..self.shared.requests.app_answers.len() {
            if let Some((id, answer)) = self.shared.requests.app_answers.pop_front() {
                self.with(id, |connection, shared| {
                    connection.handle_app_answer(id, answer, shared);
                });
            }
        }
        for renewal in std::mem::take(&mut self.shared.requests.renewals) {
            let id = renewal.session;
            let mut result = Err(RenewError::Closed);
            self.with(id, |connection, shared| {
                result = connection.renew_token(id, &renewal.credential, shared);
            });
            self.with_apps(|apps, shared| apps.handle_renewed(&renewal, result, shared));
        }
        if !self.shared.app_ready.is_empty() {
            let mut ids = std::mem::take(&mut self.ids);
            ids.append(&mut self.shared.app_ready);
            for id in ids.drain(..) {
                self.with(id, |connection, shared| {
                    connection.handle_app_ready(id, shared)
                });
            }
            self.ids = ids;
        }
    }

    /// Passes a hub reply to the application that made the request. Returns the reply if a session made the request.
    pub(crate) fn answer_app(
        &mut self,
        id: ConnectionId,
        ticket: Ticket,
        answer: veche_hub::HubReply,
    ) -> Option<veche_hub::HubReply> {
        let Some(app) = A::requesting_app(id) else {
            return Some(answer);
        };
        self.shared
            .with_apps(|apps, shared| apps.answered(app, id, ticket, answer, shared));
        None
    }

    /// Returns the time until applications have work, in milliseconds; `None` if applications have no work until the
    /// next event.
    pub(crate) fn apps_due_in_ms(&self) -> Option<u64> {
        let shared = &self.shared;
        let apps = shared.apps.as_ref()?;
        if !shared.app_ready.is_empty()
            || !shared.requests.app_answers.is_empty()
            || shared.requests.outboxes.has_drained()
            || !shared.requests.renewals.is_empty()
        {
            return Some(0);
        }
        match apps.deadline_ms() {
            u64::MAX => None,
            deadline_ms => Some(deadline_ms.saturating_sub(shared.now.mono_ms)),
        }
    }
}
