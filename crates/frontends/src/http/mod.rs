//! A connection in its HTTP stage: head → route → handler → response, request after request.
//!
//! This module moves between the states of the stage and sets the deadlines. `request` selects the handler of a
//! request; an upgrade ends the stage ([`upgrade`](crate::http::upgrade)). The [layer above](protocol) executes
//! sessions and API calls. `app` calls applications. `chunked_response` writes responses that applications send in
//! parts; [`reply`](crate::http::reply) and [`stream`](crate::http::stream) write all other responses.

mod admin_page;
pub(crate) mod api_error;
mod app;
mod authentication;
mod body;
pub(crate) mod call;
mod chunked_response;
mod exposition;
pub(crate) mod protocol;
pub(crate) mod reply;
mod request;
pub mod static_files;
pub(crate) mod stream;
mod streams;
pub mod upgrade;
pub(crate) mod wrong_key;

use std::net::IpAddr;
use std::sync::Arc;

use veche_hub::{ConnectionId, HubReply, Ticket};
use veche_proto::http::{self, HeadScan, HttpError, Status};
use veche_types::AppId;

use crate::context::app::AbandonReason;
use crate::context::identity::CertificateNames;
use crate::context::route::RouteHeaders;
use crate::context::stats::HandshakeOutcome;
use crate::context::step::{NextStep, StageStep, WaitReason};
use crate::context::work_budget;
use crate::context::worker_context::Context;
use crate::http::reply::{ReplyContext, refuse_request};
use crate::http::stream::{StreamProgress, StreamedBody};
use crate::http::upgrade::UnregisteredSession;
use crate::outbox::ANSWERS_BYTES_HIGH;
use app::PendingRequest;
use authentication::AuthStep;
use body::RequestBody;
use call::{ApiCall, CallStatus, UnfinishedAnswer};
use chunked_response::ChunkedResponse;
pub(crate) use protocol::OpenedSession;
use protocol::UpperLayer;

/// Time limit for the first request of a connection that was accepted during a drain, in milliseconds.
const HEADER_MS_IN_DRAIN: u64 = 1_000;

/// The next step of the stage: it continues with more input, or ends with an open session.
type HttpNext<A> = NextStep<OpenedSession<<A as UpperLayer>::Session>>;

/// The HTTP stage of a connection. The connection boxes it, since few connections stay in this stage.
pub(crate) struct HttpStage<A: UpperLayer> {
    scan: HeadScan,
    state: State<A>,
    peer: IpAddr,
    /// The names in the client's certificate, if it has sent one.
    certificate_names: Option<Box<CertificateNames>>,
    /// The address of the client: the peer's address, or the address that a trusted proxy reports.
    client: IpAddr,
    listener: u16,
    /// Headers that the route of the current request adds to its response.
    headers: Option<Arc<RouteHeaders>>,
    /// Monotonic time in milliseconds at which the current wait began: at the accept, the first byte of a head, the
    /// end of a head, or the end of a response.
    since_ms: u64,
    /// Monotonic time in milliseconds at which input was last processed; at first, that of the accept.
    served_ms: u64,
    accepted_ms: u64,
    requests: u64,
}

enum State<A: UpperLayer> {
    Head,
    Body(Box<RequestBody<A::Call>>),
    /// An API call waits for answers of home workers, or for credit to send to them.
    Call(Box<A::Call>, ReplyContext),
    /// A session waits to be registered by home workers.
    Registering(Box<UnregisteredSession<A::Session>>),
    Streaming(Box<StreamedBody>),
    /// A long API response is being written as the caller reads it.
    Answering(Box<UnfinishedAnswer<<A::Call as ApiCall>::Answers>>),
    /// A request waits for an application's answer.
    App(AppId, Box<PendingRequest>),
    /// An application writes its response in parts.
    Parts(Box<ChunkedResponse>),
    /// A handshake waits for an application's decision.
    Asking(AppId, Box<PendingRequest>),
    Naming(AuthStep, Box<PendingRequest>),
}

impl<A: UpperLayer> HttpStage<A> {
    pub(crate) fn new(listener: u16, peer: IpAddr, now_ms: u64) -> Self {
        Self {
            scan: HeadScan::default(),
            state: State::Head,
            peer,
            certificate_names: None,
            client: peer,
            listener,
            headers: None,
            since_ms: now_ms,
            served_ms: now_ms,
            accepted_ms: now_ms,
            requests: 0,
        }
    }

    /// Sets the names from the client's certificate.
    pub(crate) fn set_certificate_names(&mut self, certificate_names: CertificateNames) {
        self.certificate_names = Some(Box::new(certificate_names));
    }

    /// Sets the client address received from a proxy.
    pub(crate) fn set_peer(&mut self, peer: IpAddr) {
        self.peer = peer;
        self.client = peer;
    }

    /// Returns the address of the client if a proxy reported it; `None` if the client is the peer itself.
    pub(crate) fn proxied_client(&self) -> Option<IpAddr> {
        (self.client != self.peer).then_some(self.client)
    }

    /// Returns the monotonic time in milliseconds at which input was last processed; before that, the time of the accept.
    pub(crate) fn served_ms(&self) -> u64 {
        self.served_ms
    }

    /// Returns whether the stage waits for a request and has received no byte of it.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.state, State::Head) && !self.scan.is_midway()
    }

    pub(crate) fn step(
        &mut self,
        id: ConnectionId,
        input: &mut [u8],
        shared: &mut Context,
    ) -> StageStep<OpenedSession<A::Session>> {
        self.served_ms = shared.now.mono_ms;
        let result = match &mut self.state {
            State::Head => self.head(id, input, shared),
            State::Body(_) => self.body(id, input, shared),
            // In these states the input waits until the current request is answered.
            State::Call(..)
            | State::Registering(_)
            | State::Streaming(_)
            | State::Answering(_)
            | State::Naming(..) => Ok(StageStep {
                consumed: 0,
                then: NextStep::Wait(WaitReason::Answer),
            }),
            State::App(..) | State::Parts(_) | State::Asking(..) => Ok(StageStep {
                consumed: 0,
                then: NextStep::Wait(WaitReason::App),
            }),
        };
        result.unwrap_or_else(|error| {
            refuse_request(id, &error, shared);
            StageStep {
                consumed: input.len(),
                then: NextStep::End,
            }
        })
    }

    fn head(
        &mut self,
        id: ConnectionId,
        input: &[u8],
        shared: &mut Context,
    ) -> Result<StageStep<OpenedSession<A::Session>>, HttpError> {
        let site = Arc::clone(&shared.config);
        if !self.scan.is_midway() {
            self.since_ms = if self.requests == 0 {
                self.accepted_ms
            } else {
                shared.now.mono_ms
            };
        }
        let Some((head, end)) = http::read_head(&mut self.scan, input, &site.limits.http)? else {
            return Ok(StageStep {
                consumed: 0,
                then: NextStep::NeedInput,
            });
        };
        self.scan = HeadScan::default();
        self.requests += 1;
        self.headers = None;
        shared.work.charge(work_budget::REQUEST);
        self.since_ms = shared.now.mono_ms;
        let then = self.request(id, &head, &input[..end], shared)?;
        Ok(StageStep {
            consumed: end,
            then,
        })
    }

    /// Returns the properties of the current request that its response depends on.
    fn reply(&self, head: &http::Head<'_>) -> ReplyContext {
        ReplyContext::to(head, self.headers.clone())
    }

    /// After a complete response, continues with the next request or ends the connection.
    fn finish(&mut self, id: ConnectionId, keep_alive: bool, shared: &mut Context) -> HttpNext<A> {
        shared.requests.outboxes.end_entry(id, self.client);
        self.since_ms = shared.now.mono_ms;
        if !keep_alive || shared.is_draining() {
            return NextStep::End;
        }
        // A client that pipelines requests must also read the responses before more requests are processed.
        if shared.requests.outboxes.of(id).queued() > ANSWERS_BYTES_HIGH {
            return NextStep::Wait(WaitReason::Output);
        }
        NextStep::Continue
    }

    /// Begins to write the remaining body of a response; if there is none, the response is complete.
    fn stream(
        &mut self,
        id: ConnectionId,
        keep_alive: bool,
        stream: Option<StreamedBody>,
        shared: &mut Context,
    ) -> HttpNext<A> {
        match stream {
            None => self.finish(id, keep_alive, shared),
            Some(stream) => {
                self.state = State::Streaming(Box::new(stream));
                self.pump(id, shared)
            }
        }
    }

    /// Writes as much of the body as fits into the outbox.
    fn pump(&mut self, id: ConnectionId, shared: &mut Context) -> HttpNext<A> {
        let State::Streaming(stream) = &mut self.state else {
            return NextStep::Continue;
        };
        match stream.pump(id, shared) {
            StreamProgress::Whole => {}
            StreamProgress::Full => return NextStep::Wait(WaitReason::Output),
            StreamProgress::Cut => return NextStep::End,
        }
        let keep_alive = stream.keep_alive;
        self.state = State::Head;
        self.finish(id, keep_alive, shared)
    }

    pub(crate) fn answered(
        &mut self,
        id: ConnectionId,
        ticket: Ticket,
        answer: HubReply,
        shared: &mut Context,
    ) -> HttpNext<A> {
        match &mut self.state {
            State::Call(call, _) => {
                call.answered(ticket, answer);
                NextStep::Continue
            }
            State::Registering(registration) => {
                registration.answered(id, ticket, &answer, shared);
                if !registration.is_complete() {
                    return NextStep::Wait(WaitReason::Answer);
                }
                let State::Registering(registration) =
                    std::mem::replace(&mut self.state, State::Head)
                else {
                    unreachable!("matched above")
                };
                NextStep::Become(self.open(id, *registration, shared))
            }
            State::App(..) | State::Parts(_) => {
                let app = match &self.state {
                    State::App(app, _) => *app,
                    State::Parts(parts) => parts.app,
                    _ => unreachable!("matched above"),
                };
                shared.with_apps(|apps, shared| apps.answered(app, id, ticket, answer, shared));
                NextStep::Wait(WaitReason::App)
            }
            _ => NextStep::Wait(WaitReason::Answer),
        }
    }

    pub(crate) fn resume(&mut self, id: ConnectionId, shared: &mut Context) -> HttpNext<A> {
        match std::mem::replace(&mut self.state, State::Head) {
            State::Call(mut call, reply) => match call.resume(id, shared) {
                CallStatus::Answered(answers) => self.call_ended(id, answers, reply, shared),
                CallStatus::Refused(refusal) => {
                    refusal.write(&reply, id, shared);
                    self.finish(id, reply.keep_alive, shared)
                }
                CallStatus::Pending(block) => {
                    self.state = State::Call(call, reply);
                    NextStep::Wait(block)
                }
            },
            State::Streaming(stream) => {
                self.state = State::Streaming(stream);
                self.pump(id, shared)
            }
            State::Answering(answering) => self.continue_answer(id, answering, shared),
            State::Parts(parts) => {
                self.state = State::Parts(parts);
                self.continue_chunked(id, shared)
            }
            State::Head => {
                // The stage read no input while it waited, so the time limit for the next request
                // begins now.
                self.since_ms = shared.now.mono_ms;
                NextStep::Continue
            }
            other => {
                self.state = other;
                NextStep::Continue
            }
        }
    }

    /// Handles the end of the connection, and notifies an application whose response is pending.
    pub(crate) fn abandon(&mut self, id: ConnectionId, shared: &mut Context) {
        self.gone(id, AbandonReason::Disconnected, shared);
        let state = std::mem::replace(&mut self.state, State::Head);
        let outcome = match &state {
            State::Registering(registration) => {
                registration.withdraw(id, shared);
                Some(HandshakeOutcome::Malformed)
            }
            State::Asking(..) => Some(HandshakeOutcome::Refused),
            State::Naming(AuthStep::Upgrade | AuthStep::Stream, _) => {
                Some(HandshakeOutcome::Unavailable)
            }
            _ => None,
        };
        let is_asked_about = matches!(state, State::Naming(AuthStep::Request(_), _));
        if let Some(outcome) = outcome {
            shared.stats.handshake(outcome);
        }
        if outcome.is_some() || is_asked_about {
            let error = HttpError {
                status: Status::SERVICE_UNAVAILABLE,
                reason: match outcome {
                    Some(_) => "the session could not be opened",
                    None => "authentication timed out",
                },
            };
            refuse_request(id, &error, shared);
        }
    }

    pub(crate) fn deadline_ms(&self, shared: &Context) -> u64 {
        let limits = &shared.config.limits;
        let wait = match self.state {
            State::Head if self.requests > 0 && !self.scan.is_midway() => limits.idle_timeout_ms,
            State::Head => {
                let limit_ms = limits.header_timeout_ms.min(limits.handshake_timeout_ms);
                match shared.is_draining() {
                    true => limit_ms.min(HEADER_MS_IN_DRAIN),
                    false => limit_ms,
                }
            }
            State::Body(_) => limits.body_timeout_ms,
            State::Registering(_) | State::Asking(..) | State::Naming(..) => {
                limits.handshake_timeout_ms
            }
            State::App(_, ref kept) => kept.timeout_ms(),
            State::Parts(ref parts) => parts.timeout_ms,
            // No deadline: home workers always answer, and stalled sending has a deadline of its own.
            State::Call(..) | State::Streaming(_) | State::Answering(_) => return u64::MAX,
        };
        self.since_ms.saturating_add(wait)
    }

    /// Returns true if the deadline has not expired; otherwise ends the wait and returns false. If the wait was for a
    /// request, the client gets a 408 if it has sent a part of the request, or if it was the connection's first.
    pub(crate) fn timeout(&mut self, id: ConnectionId, shared: &mut Context) -> bool {
        if self.deadline_ms(shared) > shared.now.mono_ms {
            return true;
        }
        if matches!(self.state, State::App(..) | State::Parts(_)) {
            self.app_is_late(id, shared);
        } else if matches!(
            self.state,
            State::Registering(_) | State::Asking(..) | State::Naming(..)
        ) {
            self.abandon(id, shared);
        } else if !self.is_idle() || self.requests == 0 {
            let error = HttpError {
                status: Status::REQUEST_TIMEOUT,
                reason: "the request took too long to arrive",
            };
            refuse_request(id, &error, shared);
        }
        false
    }
}
