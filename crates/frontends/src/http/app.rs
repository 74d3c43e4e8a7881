//! HTTP requests that an application answers, and handshakes that it decides on: at once, or later, or (if the
//! connection ends first) never.
//!
//! A request is borrowed during one call. If something has to happen before the application can be called (reading a
//! body, authentication) or before a session can open (the application's decision, the registration by home workers),
//! the head is stored as bytes and parsed again afterwards. [`reply`](crate::http::reply) writes an application's
//! response; an invalid one is replaced by a 500 and logged.

use std::net::IpAddr;
use std::sync::Arc;

use veche_hub::ConnectionId;
use veche_proto::http::{self, HEAD_BYTES_MAX, HEADERS_MAX, Head, Status, encoded_path};
use veche_types::AppId;

use super::protocol::{OpenSession as _, OpenedSession, UpperLayer};
use super::{HttpNext, HttpStage, State};
use crate::context::app::{
    AbandonReason, AppAnswer, AppBody, AppResponse, HandshakeDecision, MaybeDeferred, RequestView,
    RouteParams,
};
use crate::context::identity::{Authenticated, is_valid_user};
use crate::context::log_note::{AuthDecision, NoteLevel};
use crate::context::route::{Route, RouteHandler};
use crate::context::stats::HandshakeOutcome;
use crate::context::step::{NextStep, WaitReason};
use crate::context::worker_context::Context;
use crate::http::reply::{Refusal, ReplyContext, write_response};
use crate::http::stream;
use crate::http::upgrade::{PendingUpgrade, RefusedUpgrade, UnregisteredSession, validate};
use crate::outbox::access_log_buffer::SlowEventKind;

/// A request head that is stored until the request can be answered.
pub(crate) struct PendingRequest {
    pub(super) route: Arc<Route>,
    /// The raw head, including the empty line at its end.
    pub(super) head: Box<[u8]>,
    /// The client's identity, as far as it is known.
    authenticated: Authenticated,
    /// The request body, if it was read.
    pub(super) body: Vec<u8>,
}

impl PendingRequest {
    pub(super) fn new(route: &Arc<Route>, head: &[u8], named: Authenticated) -> Self {
        Self {
            route: Arc::clone(route),
            head: head.into(),
            authenticated: named,
            body: Vec::new(),
        }
    }

    /// Returns the application's time limit for a response, in milliseconds; `u64::MAX` if it has none.
    pub(super) fn timeout_ms(&self) -> u64 {
        match self.route.handler {
            RouteHandler::App {
                request_timeout_ms: ms @ 1..,
                ..
            } => ms,
            _ => u64::MAX,
        }
    }

    /// Parses the stored head, which was valid when it was received. A reload may have lowered the configured limits
    /// since, so the largest possible limits are used instead.
    pub(super) fn head(&self) -> Head<'_> {
        let limits = http::HeadLimits {
            head_bytes_max: HEAD_BYTES_MAX,
            headers_max: HEADERS_MAX,
            target_bytes_max: HEAD_BYTES_MAX,
            body_bytes_max: u64::MAX,
        };
        match http::parse_head(&self.head, &limits) {
            Ok(head) => head,
            Err(error) => {
                unreachable!("the request's head was valid when it was parsed before: {error}")
            }
        }
    }
}

/// The head of a request or handshake, parsed and as raw bytes, and the route that matches it.
pub(super) struct PendingHandshake<'q> {
    pub(super) route: &'q Arc<Route>,
    pub(super) head: &'q Head<'q>,
    pub(super) raw: &'q [u8],
}

/// Returns the request as an application sees it.
fn request<'a>(
    head: &'a Head<'a>,
    route: &'a Route,
    peer: IpAddr,
    user: Option<&'a str>,
    body: &'a [u8],
) -> RequestView<'a> {
    RequestView {
        head,
        params: RouteParams::new(&route.path, &head.path),
        peer,
        body,
        user,
        has_password: route.identity.has_password(),
    }
}

impl<A: UpperLayer> HttpStage<A> {
    /// Passes a complete request to an application.
    pub(super) fn call_app(
        &mut self,
        id: ConnectionId,
        app: AppId,
        pending: &PendingHandshake<'_>,
        user: Option<&str>,
        body: &[u8],
        shared: &mut Context,
    ) -> HttpNext<A> {
        let PendingHandshake { route, head, raw } = pending;
        let reply = self.reply(head);
        shared.requests.outboxes.access_log.set_user(id, user);
        let request = request(head, route, self.client, user, body);
        let outcome = shared.with_apps(|apps, shared| apps.request(app, id, &request, shared));
        match outcome {
            Some(MaybeDeferred::Ready(response)) => self.respond(id, head, &response, shared),
            Some(MaybeDeferred::Deferred) => {
                let kept = PendingRequest::new(route, raw, Authenticated::default());
                self.state = State::App(app, Box::new(kept));
                NextStep::Wait(WaitReason::App)
            }
            None => {
                let refusal = Refusal::new(
                    Status::SERVICE_UNAVAILABLE,
                    "the server runs no applications",
                );
                refusal.write(&reply, id, shared);
                self.finish(id, reply.keep_alive, shared)
            }
        }
    }

    /// Passes a stored request to an application, after its body was read.
    pub(super) fn call_app_with_pending(
        &mut self,
        id: ConnectionId,
        app: AppId,
        kept: &PendingRequest,
        body: &[u8],
        shared: &mut Context,
    ) -> HttpNext<A> {
        let pending = PendingHandshake {
            route: &kept.route,
            head: &kept.head(),
            raw: &kept.head,
        };
        let user = kept.authenticated.user.as_deref();
        self.call_app(id, app, &pending, user, body, shared)
    }

    pub(super) fn respond(
        &mut self,
        id: ConnectionId,
        head: &Head<'_>,
        response: &AppResponse,
        shared: &mut Context,
    ) -> HttpNext<A> {
        let reply = self.reply(head);
        self.state = State::Head;
        match &response.body {
            AppBody::Bytes(body) => write_response(&reply, id, response, body, shared),
            AppBody::File(file) => {
                let rest = stream::answer_app(id, head, &reply, response, file, shared);
                return self.stream(id, reply.keep_alive, rest, shared);
            }
        }
        self.finish(id, reply.keep_alive, shared)
    }

    /// Requests an application's decision on a handshake.
    pub(super) fn ask_handshake(
        &mut self,
        id: ConnectionId,
        app: AppId,
        mut candidate: PendingUpgrade<'_, '_, A::Session>,
        shared: &mut Context,
    ) -> HttpNext<A> {
        let asked = &mut candidate.authenticated.disconnects_seen;
        asked.get_or_insert_with(|| shared.process.disconnect_count());
        let user = candidate.authenticated.user.as_deref();
        let request = request(candidate.head, candidate.route, self.client, user, b"");
        let outcome = shared.with_apps(|apps, shared| match apps.has_handshake(app) {
            true => apps.handshake(app, id, &request, shared),
            false => MaybeDeferred::Ready(HandshakeDecision::Accept {
                user: None,
                protocol: None,
            }),
        });
        match outcome {
            Some(MaybeDeferred::Ready(decision)) => {
                self.apply_handshake(id, candidate, decision, shared)
            }
            Some(MaybeDeferred::Deferred) => {
                let kept =
                    PendingRequest::new(candidate.route, candidate.raw, candidate.authenticated);
                self.state = State::Asking(app, Box::new(kept));
                NextStep::Wait(WaitReason::App)
            }
            None => {
                let refusal = Refusal::new(
                    Status::SERVICE_UNAVAILABLE,
                    "the server runs no applications",
                );
                let outcome = HandshakeOutcome::Refused;
                let refused = RefusedUpgrade { refusal, outcome };
                self.refuse_handshake(id, &self.reply(candidate.head), &refused, shared)
            }
        }
    }

    fn apply_handshake(
        &mut self,
        id: ConnectionId,
        mut candidate: PendingUpgrade<'_, '_, A::Session>,
        decision: HandshakeDecision,
        shared: &mut Context,
    ) -> HttpNext<A> {
        let (head, reply) = (candidate.head, self.reply(candidate.head));
        let (user, protocol) = match decision {
            HandshakeDecision::Accept { user, protocol } => (user, protocol),
            HandshakeDecision::Refuse(response) => {
                shared.stats.handshake(HandshakeOutcome::Refused);
                let status = response.status.0;
                let what = format!("handshake refused with {status} by the application");
                shared.log_decision(&AuthDecision {
                    what: "connect",
                    user: candidate.authenticated.user.as_deref().unwrap_or_default(),
                    code: status.into(),
                    reason: "refused by the application",
                    ..AuthDecision::default()
                });
                shared.log(id, NoteLevel::Info, what);
                return self.respond(id, head, &response, shared);
            }
        };
        let fault = match (&user, &protocol) {
            (Some(user), _) if !is_valid_user(user) => {
                Some(format!("{user:?} is not a valid user"))
            }
            (_, Some(protocol)) if !candidate.offers(protocol) => {
                Some(format!("subprotocol {protocol:?} was not offered"))
            }
            _ => None,
        };
        if let Some(fault) = fault {
            let what = format!("the application's handshake result is invalid: {fault}");
            shared.log(id, NoteLevel::Warn, what);
            let refusal = Refusal::new(Status::INTERNAL_SERVER_ERROR, "the application failed");
            let outcome = HandshakeOutcome::Refused;
            self.abandon_app_request(id, candidate.app(), shared);
            return self.refuse_handshake(id, &reply, &RefusedUpgrade { refusal, outcome }, shared);
        }
        let user = user.or_else(|| candidate.authenticated.user.take());
        self.register(id, candidate, user, protocol.as_deref(), shared)
    }

    /// Registers an accepted session. Opens it at once if no other worker has to confirm the
    /// registration.
    pub(super) fn register(
        &mut self,
        id: ConnectionId,
        candidate: PendingUpgrade<'_, '_, A::Session>,
        user: Option<String>,
        protocol: Option<&str>,
        shared: &mut Context,
    ) -> HttpNext<A> {
        let (head, raw, route) = (candidate.head, candidate.raw, candidate.route);
        let app = candidate.app();
        shared
            .requests
            .outboxes
            .access_log
            .set_user(id, user.as_deref());
        let mut registration = match candidate.register(id, user.as_deref(), protocol, shared) {
            Ok(registration) => registration,
            Err(refused) => {
                self.abandon_app_request(id, app, shared);
                return self.refuse_handshake(id, &self.reply(head), &refused, shared);
            }
        };
        if registration.is_complete() {
            let mut opened = registration.open(id, shared);
            if opened.session.wants_opened() {
                let request = request(head, route, self.client, user.as_deref(), b"");
                opened.session.handle_opened(id, &request, shared);
            }
            return NextStep::Become(opened);
        }
        if registration.hears_opened() {
            registration.opening = Some(Box::new(PendingRequest::new(
                route,
                raw,
                Authenticated {
                    user,
                    ..Authenticated::default()
                },
            )));
        }
        self.state = State::Registering(Box::new(registration));
        NextStep::Wait(WaitReason::Answer)
    }

    /// Opens a session that all home workers have registered.
    pub(super) fn open(
        &mut self,
        id: ConnectionId,
        mut registration: UnregisteredSession<A::Session>,
        shared: &mut Context,
    ) -> OpenedSession<A::Session> {
        let opening = registration.opening.take();
        let mut opened = registration.open(id, shared);
        if let Some(kept) = opening {
            let head = kept.head();
            let request = request(
                &head,
                &kept.route,
                self.client,
                kept.authenticated.user.as_deref(),
                b"",
            );
            opened.session.handle_opened(id, &request, shared);
        }
        opened
    }

    /// Adds an entry to the slow log if the application exceeded the threshold before its response began.
    pub(super) fn record_slow(&self, shared: &mut Context) {
        if let State::App(_, kept) | State::Asking(_, kept) = &self.state {
            let lasted_ms = shared.now.mono_ms.saturating_sub(self.since_ms);
            let what = || {
                let head = kept.head();
                format!("{} {}", head.method.as_str(), encoded_path(&head.path))
            };
            let access_log = &mut shared.requests.outboxes.access_log;
            access_log.record_duration(SlowEventKind::Request, lasted_ms, what);
        }
    }

    pub(super) fn refuse_handshake(
        &mut self,
        id: ConnectionId,
        reply: &ReplyContext,
        refused: &RefusedUpgrade,
        shared: &mut Context,
    ) -> HttpNext<A> {
        refused.note(id, shared);
        refused.refusal.write(reply, id, shared);
        self.state = State::Head;
        self.finish(id, reply.keep_alive, shared)
    }

    /// Handles a deferred answer of an application; returns `None` if no request waits for it.
    pub(crate) fn handle_app_answer(
        &mut self,
        id: ConnectionId,
        answer: AppAnswer,
        shared: &mut Context,
    ) -> Option<HttpNext<A>> {
        self.record_slow(shared);
        match (std::mem::replace(&mut self.state, State::Head), answer) {
            (State::App(_, kept), AppAnswer::Response(response)) => {
                Some(self.respond(id, &kept.head(), &response, shared))
            }
            (State::App(app, kept), AppAnswer::Head(beginning)) => {
                Some(self.begin_chunked(id, app, &kept, &beginning, shared))
            }
            (State::Parts(parts), answer) => {
                self.state = State::Parts(parts);
                Some(self.write_chunk(id, &answer, shared))
            }
            (State::Asking(app, mut kept), AppAnswer::Handshake(decision)) => {
                let named = std::mem::take(&mut kept.authenticated);
                let head = kept.head();
                // The handshake is validated again, since a shutdown may have begun while the application decided.
                let is_tls = self.is_tls(shared);
                Some(
                    match validate(&head, &kept.head, &kept.route, is_tls, shared) {
                        Ok(mut candidate) => {
                            candidate.authenticated = named;
                            self.apply_handshake(id, candidate, decision, shared)
                        }
                        Err(refused) => {
                            if matches!(decision, HandshakeDecision::Accept { .. }) {
                                self.abandon_app_request(id, Some(app), shared);
                            }
                            self.refuse_handshake(id, &self.reply(&head), &refused, shared)
                        }
                    },
                )
            }
            (state, _) => {
                self.state = state;
                None
            }
        }
    }

    /// Notifies an application that its pending response or decision is no longer needed, or that the session it has
    /// accepted does not open.
    pub(crate) fn gone(&mut self, id: ConnectionId, why: AbandonReason, shared: &mut Context) {
        let app = match &self.state {
            State::App(app, _) | State::Asking(app, _) => Some(*app),
            State::Parts(parts) => Some(parts.app),
            State::Registering(registration) => registration.app(),
            _ => None,
        };
        if let Some(app) = app {
            shared.with_apps(|apps, shared| apps.abandoned(app, id, why, shared));
        }
    }

    fn abandon_app_request(&self, id: ConnectionId, app: Option<AppId>, shared: &mut Context) {
        if let Some(app) = app {
            shared.with_apps(|apps, shared| {
                apps.abandoned(app, id, AbandonReason::Disconnected, shared)
            });
        }
    }
}
