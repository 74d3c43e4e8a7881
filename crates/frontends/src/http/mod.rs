//! A connection while it speaks HTTP: head → route → handler → response, request after request.
//!
//! It goes from state to state and keeps the deadlines; what a request leads to is decided in `request`, and an upgrade
//! ends the stage ([`upgrade`](crate::http::upgrade)).
//! What lies [above](protocol::Above) is carried out elsewhere: sessions and calls of the API. Applications are asked in `app`, what they write in parts goes out
//! through `parts`, answers are written by
//! [`reply`](crate::http::reply) and [`stream`](crate::http::stream).

mod admin_page;
pub(crate) mod api_error;
mod app;
mod body;
pub(crate) mod call;
mod exposition;
pub(crate) mod guessing;
mod named;
mod parts;
pub(crate) mod protocol;
pub(crate) mod reply;
mod request;
pub mod static_files;
pub(crate) mod stream;
mod streams;
pub mod upgrade;

use std::net::IpAddr;
use std::sync::Arc;

use veche_hub::{Answer, ConnectionId, Ticket};
use veche_proto::http::{self, HeadScan, HttpError, Status};
use veche_types::AppId;

use crate::context::app::Gone;
use crate::context::identity::Certified;
use crate::context::route::Headers;
use crate::context::shared::Shared;
use crate::context::stats::Handshake;
use crate::context::step::{Block, Step, Then};
use crate::context::work;
use crate::http::reply::{Reply, refuse_request};
use crate::http::stream::{Pumped, Stream};
use crate::http::upgrade::Registration;
use crate::outbox::ANSWERS_BYTES_HIGH;
use app::KeptRequest;
use body::Body;
use call::{Answering, ApiCall, CallEnd};
use named::Naming;
use parts::Parts;
use protocol::Above;
pub(crate) use protocol::Opened;

/// How long a connection that comes while the server goes away has for its request, in milliseconds.
const HEADER_MS_IN_DRAIN: u64 = 1_000;

/// What comes of a request: the stage goes on, or ends with an open session.
type Next<A> = Then<Opened<<A as Above>::Session>>;

/// The stage's state; boxed, since few connections stay in it.
pub(crate) struct Http<A: Above> {
    scan: HeadScan,
    state: State<A>,
    peer: IpAddr,
    /// Of the certificate that the client has shown.
    certified: Option<Box<Certified>>,
    /// Who asks: the peer, or whom it asks for, if it is a proxy that we trust.
    client: IpAddr,
    listener: u16,
    /// Headers that the route of the present request adds to answers.
    headers: Option<Arc<Headers>>,
    /// Since when the present wait lasts: accept, first byte of a head, end of a head, end of a response.
    since_ms: u64,
    accepted_ms: u64,
    requests: u64,
}

enum State<A: Above> {
    Head,
    Body(Box<Body<A::Call>>),
    /// A home worker has yet to answer an API call.
    Call(Box<A::Call>, Reply),
    /// A home worker has yet to register the session.
    Registering(Box<Registration<A::Session>>),
    Streaming(Box<Stream>),
    /// A long answer to an API call is written as the caller reads.
    Answering(Box<Answering<<A::Call as ApiCall>::Answers>>),
    /// An application has yet to answer a request.
    App(AppId, Box<KeptRequest>),
    /// An application has begun to answer.
    Parts(Box<Parts>),
    /// An application has yet to judge a handshake.
    Asking(AppId, Box<KeptRequest>),
    /// It has yet to be found out who asks.
    Naming(Naming, Box<KeptRequest>),
}

impl<A: Above> Http<A> {
    pub(crate) fn new(listener: u16, peer: IpAddr, now_ms: u64) -> Self {
        Self {
            scan: HeadScan::default(),
            state: State::Head,
            peer,
            certified: None,
            client: peer,
            listener,
            headers: None,
            since_ms: now_ms,
            accepted_ms: now_ms,
            requests: 0,
        }
    }

    /// The client has shown a certificate.
    pub(crate) fn set_certified(&mut self, certified: Certified) {
        self.certified = Some(Box::new(certified));
    }

    /// Who has connected, if a proxy has done so for him.
    pub(crate) fn set_peer(&mut self, peer: IpAddr) {
        self.peer = peer;
        self.client = peer;
    }

    /// Who asks, if it is not the peer itself.
    pub(crate) fn proxied_client(&self) -> Option<IpAddr> {
        (self.client != self.peer).then_some(self.client)
    }

    /// Returns since when the next request is waited for or the last one is under way, in monotonic milliseconds.
    pub(crate) fn since_ms(&self) -> u64 {
        self.since_ms
    }

    /// Whether it waits for a request of which nothing has come.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.state, State::Head) && !self.scan.is_midway()
    }

    pub(crate) fn step(
        &mut self,
        id: ConnectionId,
        input: &mut [u8],
        shared: &mut Shared,
    ) -> Step<Opened<A::Session>> {
        let result = match &mut self.state {
            State::Head => self.head(id, input, shared),
            State::Body(_) => self.body(id, input, shared),
            // Input waits while these last.
            State::Call(..)
            | State::Registering(_)
            | State::Streaming(_)
            | State::Answering(_)
            | State::Naming(..) => Ok(Step {
                taken: 0,
                then: Then::Wait(Block::Answer),
            }),
            State::App(..) | State::Parts(_) | State::Asking(..) => Ok(Step {
                taken: 0,
                then: Then::Wait(Block::App),
            }),
        };
        result.unwrap_or_else(|error| {
            refuse_request(id, &error, shared);
            Step {
                taken: input.len(),
                then: Then::End,
            }
        })
    }

    fn head(
        &mut self,
        id: ConnectionId,
        input: &[u8],
        shared: &mut Shared,
    ) -> Result<Step<Opened<A::Session>>, HttpError> {
        let site = Arc::clone(&shared.site);
        if !self.scan.is_midway() {
            self.since_ms = if self.requests == 0 {
                self.accepted_ms
            } else {
                shared.now.mono_ms
            };
        }
        let Some((head, end)) = http::read_head(&mut self.scan, input, &site.limits.http)? else {
            return Ok(Step {
                taken: 0,
                then: Then::NeedInput,
            });
        };
        self.scan = HeadScan::default();
        self.requests += 1;
        self.headers = None;
        shared.work.charge(work::REQUEST);
        self.since_ms = shared.now.mono_ms;
        let then = self.request(id, &head, &input[..end], shared)?;
        Ok(Step { taken: end, then })
    }

    /// Returns how the present request is answered.
    fn reply(&self, head: &http::Head<'_>) -> Reply {
        Reply::to(head, self.headers.clone())
    }

    /// After a response: go on with the next request, or end.
    fn finish(&mut self, id: ConnectionId, keep_alive: bool, shared: &mut Shared) -> Next<A> {
        shared.ports.outboxes.end_entry(id, self.client);
        self.since_ms = shared.now.mono_ms;
        if !keep_alive || shared.is_draining() {
            return Then::End;
        }
        // Whoever pipelines must also read.
        if shared.ports.outboxes.of(id).queued() > ANSWERS_BYTES_HIGH {
            return Then::Wait(Block::Output);
        }
        Then::GoOn
    }

    /// Begins to stream the rest of a response, if there is one.
    fn stream(
        &mut self,
        id: ConnectionId,
        keep_alive: bool,
        stream: Option<Stream>,
        shared: &mut Shared,
    ) -> Next<A> {
        match stream {
            None => self.finish(id, keep_alive, shared),
            Some(stream) => {
                self.state = State::Streaming(Box::new(stream));
                self.pump(id, shared)
            }
        }
    }

    /// Writes as much of a streamed response as the client's reading allows.
    fn pump(&mut self, id: ConnectionId, shared: &mut Shared) -> Next<A> {
        let State::Streaming(stream) = &mut self.state else {
            return Then::GoOn;
        };
        match stream.pump(id, shared) {
            Pumped::Whole => {}
            Pumped::Full => return Then::Wait(Block::Output),
            Pumped::Cut => return Then::End,
        }
        let keep_alive = stream.keep_alive;
        self.state = State::Head;
        self.finish(id, keep_alive, shared)
    }

    pub(crate) fn answered(
        &mut self,
        id: ConnectionId,
        ticket: Ticket,
        answer: Answer,
        shared: &mut Shared,
    ) -> Next<A> {
        match &mut self.state {
            State::Call(call, _) => {
                call.answered(ticket, answer);
                Then::GoOn
            }
            State::Registering(registration) => {
                registration.answered(id, ticket, &answer, shared);
                if !registration.is_complete() {
                    return Then::Wait(Block::Answer);
                }
                let State::Registering(registration) =
                    std::mem::replace(&mut self.state, State::Head)
                else {
                    unreachable!("matched above")
                };
                Then::Become(self.open(id, *registration, shared))
            }
            State::App(..) | State::Parts(_) => {
                let app = match &self.state {
                    State::App(app, _) => *app,
                    State::Parts(parts) => parts.app,
                    _ => unreachable!("matched above"),
                };
                shared.with_apps(|apps, shared| apps.answered(app, id, ticket, answer, shared));
                Then::Wait(Block::App)
            }
            _ => Then::Wait(Block::Answer),
        }
    }

    pub(crate) fn resume(&mut self, id: ConnectionId, shared: &mut Shared) -> Next<A> {
        match std::mem::replace(&mut self.state, State::Head) {
            State::Call(mut call, reply) => match call.resume(id, shared) {
                CallEnd::Answered(answers) => self.call_ended(id, answers, reply, shared),
                CallEnd::Refused(refusal) => {
                    refusal.write(&reply, id, shared);
                    self.finish(id, reply.keep_alive, shared)
                }
                CallEnd::Waits(block) => {
                    self.state = State::Call(call, reply);
                    Then::Wait(block)
                }
            },
            State::Streaming(stream) => {
                self.state = State::Streaming(stream);
                self.pump(id, shared)
            }
            State::Answering(answering) => self.go_on_answering(id, answering, shared),
            State::Parts(parts) => {
                self.state = State::Parts(parts);
                self.go_on_with_parts(id, shared)
            }
            State::Head => {
                // It was not for want of a request that none was read.
                self.since_ms = shared.now.mono_ms;
                Then::GoOn
            }
            other => {
                self.state = other;
                Then::GoOn
            }
        }
    }

    /// The connection is about to end: whoever waits for a 101 is told that it won't come.
    pub(crate) fn abandon(&mut self, id: ConnectionId, shared: &mut Shared) {
        self.gone(id, Gone::Left, shared);
        let state = std::mem::replace(&mut self.state, State::Head);
        let outcome = match &state {
            State::Registering(registration) => {
                registration.withdraw(id, shared);
                Some(Handshake::Malformed)
            }
            State::Asking(..) => Some(Handshake::Refused),
            State::Naming(Naming::Upgrade | Naming::Stream, _) => Some(Handshake::Unavailable),
            _ => None,
        };
        let is_asked_about = matches!(state, State::Naming(Naming::Request(_), _));
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

    pub(crate) fn deadline_ms(&self, shared: &Shared) -> u64 {
        let limits = &shared.site.limits;
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
            // A home worker always answers, and a stalled send has its own deadline.
            State::Call(..) | State::Streaming(_) | State::Answering(_) => return u64::MAX,
        };
        self.since_ms.saturating_add(wait)
    }

    /// The wait is over; says 408 where something had begun.
    pub(crate) fn timeout(&mut self, id: ConnectionId, shared: &mut Shared) -> bool {
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
