//! Requests answered by an application, and handshakes it decides on: immediately, later, or never.
//!
//! A request is borrowed for one call. Where something must happen before the call (a body, a decision, a home's
//! registration), the head is stored as bytes and parsed again. [`reply`](crate::http::reply) writes an application's
//! response; an invalid one is answered with 500 and logged.

use std::net::IpAddr;
use std::sync::Arc;

use veche_hub::ConnectionId;
use veche_proto::http::{self, HEAD_BYTES_MAX, HEADERS_MAX, Head, Status, encoded_path};
use veche_types::AppId;

use super::protocol::{Above, Opened, Opening as _};
use super::{Http, Next, State};
use crate::context::app::{AppAnswer, Body, Gone, Outcome, Params, Request, Response, Verdict};
use crate::context::identity::{Named, is_valid_user};
use crate::context::note::{Decision, NoteLevel};
use crate::context::route::{Handler, Route};
use crate::context::shared::Shared;
use crate::context::stats::Handshake;
use crate::context::step::{Block, Then};
use crate::http::reply::{Refusal, Reply, write_response};
use crate::http::stream;
use crate::http::upgrade::{Candidate, Refused, Registration, judge};
use crate::outbox::journal::SlowKind;

/// A stored request head, until the request can be answered.
pub(crate) struct KeptRequest {
    pub(super) route: Arc<Route>,
    /// The raw head, with the empty line.
    pub(super) head: Box<[u8]>,
    /// The client's identity, as far as known.
    named: Named,
    /// The request body, if it was read.
    pub(super) body: Vec<u8>,
}

impl KeptRequest {
    pub(super) fn new(route: &Arc<Route>, head: &[u8], named: Named) -> Self {
        Self {
            route: Arc::clone(route),
            head: head.into(),
            named,
            body: Vec::new(),
        }
    }

    /// Returns the application's time limit.
    pub(super) fn timeout_ms(&self) -> u64 {
        match self.route.handler {
            Handler::Lua {
                request_timeout_ms: ms @ 1..,
                ..
            } => ms,
            _ => u64::MAX,
        }
    }

    /// Parses the head. It was valid before, possibly by limits that a reload has lowered since.
    pub(super) fn head(&self) -> Head<'_> {
        let limits = http::Limits {
            head_bytes_max: HEAD_BYTES_MAX,
            headers_max: HEADERS_MAX,
            target_bytes_max: HEAD_BYTES_MAX,
            body_bytes_max: u64::MAX,
        };
        match http::parse_head(&self.head, &limits) {
            Ok(head) => head,
            Err(error) => unreachable!("it was read before: {error}"),
        }
    }
}

/// A request head and the route it leads to.
pub(super) struct Question<'q> {
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
) -> Request<'a> {
    Request {
        head,
        params: Params::new(&route.path, &head.path),
        peer,
        body,
        user,
        has_password: route.identity.has_password(),
    }
}

impl<A: Above> Http<A> {
    /// Passes a complete request to an application.
    pub(super) fn ask(
        &mut self,
        id: ConnectionId,
        app: AppId,
        question: &Question<'_>,
        user: Option<&str>,
        body: &[u8],
        shared: &mut Shared,
    ) -> Next<A> {
        let Question { route, head, raw } = question;
        let reply = self.reply(head);
        shared.ports.outboxes.journal.set_user(id, user);
        let request = request(head, route, self.client, user, body);
        let outcome = shared.with_apps(|apps, shared| apps.request(app, id, &request, shared));
        match outcome {
            Some(Outcome::Now(response)) => self.respond(id, head, &response, shared),
            Some(Outcome::Later) => {
                let kept = KeptRequest::new(route, raw, Named::default());
                self.state = State::App(app, Box::new(kept));
                Then::Wait(Block::App)
            }
            None => {
                let refusal = Refusal::new(Status::SERVICE_UNAVAILABLE, "not found");
                refusal.write(&reply, id, shared);
                self.finish(id, reply.keep_alive, shared)
            }
        }
    }

    /// Passes a stored request to an application, after its body was read.
    pub(super) fn ask_kept(
        &mut self,
        id: ConnectionId,
        app: AppId,
        kept: &KeptRequest,
        body: &[u8],
        shared: &mut Shared,
    ) -> Next<A> {
        let question = Question {
            route: &kept.route,
            head: &kept.head(),
            raw: &kept.head,
        };
        let user = kept.named.user.as_deref();
        self.ask(id, app, &question, user, body, shared)
    }

    pub(super) fn respond(
        &mut self,
        id: ConnectionId,
        head: &Head<'_>,
        response: &Response,
        shared: &mut Shared,
    ) -> Next<A> {
        let reply = self.reply(head);
        self.state = State::Head;
        match &response.body {
            Body::Bytes(body) => write_response(&reply, id, response, body, shared),
            Body::File(file) => {
                let rest = stream::answer_app(id, head, &reply, response, file, shared);
                return self.stream(id, reply.keep_alive, rest, shared);
            }
        }
        self.finish(id, reply.keep_alive, shared)
    }

    /// Asks an application to decide on a handshake.
    pub(super) fn ask_verdict(
        &mut self,
        id: ConnectionId,
        app: AppId,
        mut candidate: Candidate<'_, '_, A::Session>,
        shared: &mut Shared,
    ) -> Next<A> {
        let asked = &mut candidate.named.asked;
        asked.get_or_insert_with(|| shared.process.endings());
        let user = candidate.named.user.as_deref();
        let request = request(candidate.head, candidate.route, self.client, user, b"");
        let outcome = shared.with_apps(|apps, shared| match apps.has_handshake(app) {
            true => apps.handshake(app, id, &request, shared),
            false => Outcome::Now(Verdict::Accept {
                user: None,
                protocol: None,
            }),
        });
        match outcome {
            Some(Outcome::Now(verdict)) => self.carry_out(id, candidate, verdict, shared),
            Some(Outcome::Later) => {
                let kept = KeptRequest::new(candidate.route, candidate.raw, candidate.named);
                self.state = State::Asking(app, Box::new(kept));
                Then::Wait(Block::App)
            }
            None => {
                let refusal = Refusal::new(Status::SERVICE_UNAVAILABLE, "not found");
                let outcome = Handshake::Refused;
                let refused = Refused { refusal, outcome };
                self.refuse_handshake(id, &self.reply(candidate.head), &refused, shared)
            }
        }
    }

    fn carry_out(
        &mut self,
        id: ConnectionId,
        mut candidate: Candidate<'_, '_, A::Session>,
        verdict: Verdict,
        shared: &mut Shared,
    ) -> Next<A> {
        let (head, reply) = (candidate.head, self.reply(candidate.head));
        let (user, protocol) = match verdict {
            Verdict::Accept { user, protocol } => (user, protocol),
            Verdict::Refuse(response) => {
                shared.stats.handshake(Handshake::Refused);
                let status = response.status.0;
                let what = format!("handshake refused with {status} by the application");
                shared.decided(&Decision {
                    what: "connect",
                    user: candidate.named.user.as_deref().unwrap_or_default(),
                    code: status.into(),
                    reason: "refused by the application",
                    ..Decision::default()
                });
                shared.note(id, NoteLevel::Info, what);
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
            shared.note(id, NoteLevel::Warn, what);
            let refusal = Refusal::new(Status::INTERNAL_SERVER_ERROR, "the application failed");
            let outcome = Handshake::Refused;
            self.tell_gone(id, candidate.app(), shared);
            return self.refuse_handshake(id, &reply, &Refused { refusal, outcome }, shared);
        }
        let user = user.or_else(|| candidate.named.user.take());
        self.register(id, candidate, user, protocol.as_deref(), shared)
    }

    /// Registers an accepted session, and opens it if all homes are on this worker.
    pub(super) fn register(
        &mut self,
        id: ConnectionId,
        candidate: Candidate<'_, '_, A::Session>,
        user: Option<String>,
        protocol: Option<&str>,
        shared: &mut Shared,
    ) -> Next<A> {
        let (head, raw, route) = (candidate.head, candidate.raw, candidate.route);
        let app = candidate.app();
        shared.ports.outboxes.journal.set_user(id, user.as_deref());
        let mut registration = match candidate.register(id, user.as_deref(), protocol, shared) {
            Ok(registration) => registration,
            Err(refused) => {
                self.tell_gone(id, app, shared);
                return self.refuse_handshake(id, &self.reply(head), &refused, shared);
            }
        };
        if registration.is_complete() {
            let mut opened = registration.open(id, shared);
            if opened.session.hears_opened() {
                let request = request(head, route, self.client, user.as_deref(), b"");
                opened.session.opened(id, &request, shared);
            }
            return Then::Become(opened);
        }
        if registration.hears_opened() {
            registration.opening = Some(Box::new(KeptRequest::new(
                route,
                raw,
                Named {
                    user,
                    ..Named::default()
                },
            )));
        }
        self.state = State::Registering(Box::new(registration));
        Then::Wait(Block::Answer)
    }

    /// Opens a session that all homes have registered.
    pub(super) fn open(
        &mut self,
        id: ConnectionId,
        mut registration: Registration<A::Session>,
        shared: &mut Shared,
    ) -> Opened<A::Session> {
        let opening = registration.opening.take();
        let mut opened = registration.open(id, shared);
        if let Some(kept) = opening {
            let head = kept.head();
            let request = request(
                &head,
                &kept.route,
                self.client,
                kept.named.user.as_deref(),
                b"",
            );
            opened.session.opened(id, &request, shared);
        }
        opened
    }

    /// Records in the slow log if an application took long to begin its response.
    pub(super) fn note_slow(&self, shared: &mut Shared) {
        if let State::App(_, kept) | State::Asking(_, kept) = &self.state {
            let lasted_ms = shared.now.mono_ms.saturating_sub(self.since_ms);
            let what = || {
                let head = kept.head();
                format!("{} {}", head.method.as_str(), encoded_path(&head.path))
            };
            let journal = &mut shared.ports.outboxes.journal;
            journal.took(SlowKind::Request, lasted_ms, what);
        }
    }

    pub(super) fn refuse_handshake(
        &mut self,
        id: ConnectionId,
        reply: &Reply,
        refused: &Refused,
        shared: &mut Shared,
    ) -> Next<A> {
        refused.note(id, shared);
        refused.refusal.write(reply, id, shared);
        self.state = State::Head;
        self.finish(id, reply.keep_alive, shared)
    }

    /// Handles a deferred answer of an application; `None` if nothing waits for it.
    pub(crate) fn app_answered(
        &mut self,
        id: ConnectionId,
        answer: AppAnswer,
        shared: &mut Shared,
    ) -> Option<Next<A>> {
        self.note_slow(shared);
        match (std::mem::replace(&mut self.state, State::Head), answer) {
            (State::App(_, kept), AppAnswer::Response(response)) => {
                Some(self.respond(id, &kept.head(), &response, shared))
            }
            (State::App(app, kept), AppAnswer::Begin(beginning)) => {
                Some(self.begin_parts(id, app, &kept, &beginning, shared))
            }
            (State::Parts(parts), answer) => {
                self.state = State::Parts(parts);
                Some(self.part(id, &answer, shared))
            }
            (State::Asking(app, mut kept), AppAnswer::Verdict(verdict)) => {
                let named = std::mem::take(&mut kept.named);
                let head = kept.head();
                // Validated again: a drain may have begun.
                let is_tls = self.is_tls(shared);
                Some(
                    match judge(&head, &kept.head, &kept.route, is_tls, shared) {
                        Ok(mut candidate) => {
                            candidate.named = named;
                            self.carry_out(id, candidate, verdict, shared)
                        }
                        Err(refused) => {
                            if matches!(verdict, Verdict::Accept { .. }) {
                                self.tell_gone(id, Some(app), shared);
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

    /// Handles the end of the connection: tells an application that owes a response.
    pub(crate) fn gone(&mut self, id: ConnectionId, why: Gone, shared: &mut Shared) {
        let app = match &self.state {
            State::App(app, _) | State::Asking(app, _) => Some(*app),
            State::Parts(parts) => Some(parts.app),
            State::Registering(registration) => registration.app(),
            _ => None,
        };
        if let Some(app) = app {
            shared.with_apps(|apps, shared| apps.gone(app, id, why, shared));
        }
    }

    fn tell_gone(&self, id: ConnectionId, app: Option<AppId>, shared: &mut Shared) {
        if let Some(app) = app {
            shared.with_apps(|apps, shared| apps.gone(app, id, Gone::Left, shared));
        }
    }
}
