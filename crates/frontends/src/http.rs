//! A connection while it speaks HTTP: head → route → handler → response, request after request.
//!
//! It decides what a request leads to and writes the response; an upgrade ends the stage ([`upgrade`](crate::upgrade)).
//! API calls are carried out by [`backend`](crate::backend), answers are written by [`reply`](crate::reply) and [`stream`](crate::stream).

use std::sync::Arc;

use veche_hub::{Answer, SessionId, Ticket};
use veche_proto::http::{
    self, BodyDecoder, CONTINUE, Framing, Head, HeadScan, HttpError, Method, Status,
};

use crate::api::{Call, CallEnd};
use crate::outbox::ANSWERS_BYTES_HIGH;
use crate::reply::{Refusal, Reply, refuse_request};
use crate::route::{Found, Handler, Route};
use crate::shared::{NoteLevel, Shared};
use crate::socket::Socket;
use crate::stats::Handshake;
use crate::step::{Block, Step, Then};
use crate::stream::{self, Pumped, Stream};
use crate::upgrade::{Registration, upgrade};

/// Unwanted bodies up to this size are read and dropped so that the connection can go on; larger ones end it.
const SKIPPED_BODY_BYTES_MAX: u64 = 64 << 10;

/// The stage's state; boxed, since few connections stay in it.
pub(crate) struct Http {
    scan: HeadScan,
    state: State,
    listener: u16,
    /// Since when the present wait lasts: accept, first byte of a head, end of a head, end of a response.
    since_ms: u64,
    accepted_ms: u64,
    requests: u64,
}

enum State {
    Head,
    Body(Box<Body>),
    /// A home worker has yet to answer an API call.
    Call(Box<Call>, Reply),
    /// A home worker has yet to register the session.
    Registering(Box<Registration>),
    Streaming(Box<Stream>),
}

/// A request whose body is being read.
struct Body {
    decoder: BodyDecoder,
    /// What it is for; `None` drops it.
    call: Option<Call>,
    data: Vec<u8>,
    reply: Reply,
    /// What is answered after an unwanted body was read.
    then: Option<AnswerLater>,
}

/// Writes an answer once the body that nobody wants has been read.
type AnswerLater = Box<dyn FnOnce(Reply, SessionId, &mut Shared)>;

impl Http {
    pub(crate) fn new(listener: u16, now_ms: u64) -> Self {
        Self {
            scan: HeadScan::default(),
            state: State::Head,
            listener,
            since_ms: now_ms,
            accepted_ms: now_ms,
            requests: 0,
        }
    }

    /// Whether it waits for a request of which nothing has come.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.state, State::Head) && !self.scan.is_midway()
    }

    pub(crate) fn step(
        &mut self,
        id: SessionId,
        input: &mut [u8],
        shared: &mut Shared,
    ) -> Step<Socket> {
        let result = match &mut self.state {
            State::Head => self.head(id, input, shared),
            State::Body(_) => self.body(id, input, shared),
            // Input waits while these last.
            State::Call(..) | State::Registering(_) | State::Streaming(_) => Ok(Step {
                taken: 0,
                then: Then::Wait(Block::Answer),
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
        id: SessionId,
        input: &[u8],
        shared: &mut Shared,
    ) -> Result<Step<Socket>, HttpError> {
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
        self.since_ms = shared.now.mono_ms;
        let then = self.request(id, &head, shared)?;
        Ok(Step { taken: end, then })
    }

    /// What a request leads to.
    fn request(
        &mut self,
        id: SessionId,
        head: &Head<'_>,
        shared: &mut Shared,
    ) -> Result<Then<Socket>, HttpError> {
        let site = Arc::clone(&shared.site);
        let reply = Reply::to(head);
        let (route, below) = match site.listeners[self.listener as usize]
            .router
            .find(&head.method, head.path)
        {
            Found::Route { index, below } => (&site.routes[index as usize], below),
            Found::MethodNotAllowed => {
                let allow = site.listeners[self.listener as usize]
                    .router
                    .allowed(head.path);
                let refusal =
                    Refusal::new(Status::METHOD_NOT_ALLOWED, "this path takes other methods");
                return self.refuse(id, head, refusal.with("Allow", allow), shared);
            }
            Found::Nothing => {
                if head.header_bytes("upgrade").is_some() {
                    shared.stats.handshake(Handshake::NotFound);
                }
                return self.refuse(
                    id,
                    head,
                    Refusal::new(Status::NOT_FOUND, "nothing here"),
                    shared,
                );
            }
        };
        let socket_only = matches!(route.handler, Handler::Push | Handler::Echo);
        if socket_only
            || (head.header_bytes("upgrade").is_some() && takes_socket_here(route, below))
        {
            return self.upgrade(id, head, route, shared);
        }
        match &route.handler {
            Handler::Api => {
                let call = match Call::begin(head, below, shared) {
                    Ok(call) => call,
                    Err(refusal) => return self.refuse(id, head, refusal, shared),
                };
                self.read_body(id, head, Some(call), None, shared)
            }
            Handler::Health => {
                let (status, text) = match shared.process.is_ready() && !shared.is_draining() {
                    true => (Status::OK, "ok\n"),
                    false => (Status::SERVICE_UNAVAILABLE, "not ready\n"),
                };
                self.answer(id, head, shared, move |reply, id, shared| {
                    reply.write(
                        id,
                        status,
                        "text/plain; charset=utf-8",
                        text.as_bytes(),
                        shared,
                    );
                })
            }
            Handler::Metrics => self.answer(id, head, shared, move |reply, id, shared| {
                let text = shared.process.metrics();
                let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
                reply.write(id, Status::OK, kind, text.as_bytes(), shared);
            }),
            Handler::Static { root } => {
                if head.framing == Framing::None {
                    let stream = stream::answer(id, head, root, below, shared);
                    return Ok(self.stream(id, reply, stream, shared));
                }
                let refusal = match head.method {
                    Method::Get | Method::Head => {
                        Refusal::new(Status::BAD_REQUEST, "a file is asked for without a body")
                    }
                    _ => Refusal::new(Status::METHOD_NOT_ALLOWED, "files take GET and HEAD")
                        .with("Allow", "GET, HEAD"),
                };
                self.refuse(id, head, refusal, shared)
            }
            Handler::Push | Handler::Echo => {
                unreachable!("handled above: these speak WebSocket only")
            }
        }
    }

    /// Refuses one request; the connection goes on if its body is small enough to be dropped.
    fn refuse(
        &mut self,
        id: SessionId,
        head: &Head<'_>,
        refusal: Refusal,
        shared: &mut Shared,
    ) -> Result<Then<Socket>, HttpError> {
        self.answer(id, head, shared, move |reply, id, shared| {
            refusal.write(reply, id, shared)
        })
    }

    /// Answers a request whose body, if any, nobody wants.
    fn answer(
        &mut self,
        id: SessionId,
        head: &Head<'_>,
        shared: &mut Shared,
        then: impl FnOnce(Reply, SessionId, &mut Shared) + 'static,
    ) -> Result<Then<Socket>, HttpError> {
        let mut reply = Reply::to(head);
        let droppable = match head.framing {
            Framing::None | Framing::Sized(0) => {
                then(reply, id, shared);
                return Ok(self.finish(id, head.keep_alive, shared));
            }
            Framing::Sized(length) => length <= SKIPPED_BODY_BYTES_MAX && !head.expect_continue,
            Framing::Chunked => false,
        };
        if droppable {
            return self.read_body(id, head, None, Some(Box::new(then)), shared);
        }
        // The answer comes before the body: what follows can't be told apart from a request any more.
        reply.keep_alive = false;
        then(reply, id, shared);
        Ok(Then::End)
    }

    fn read_body(
        &mut self,
        id: SessionId,
        head: &Head<'_>,
        call: Option<Call>,
        then: Option<AnswerLater>,
        shared: &mut Shared,
    ) -> Result<Then<Socket>, HttpError> {
        let decoder = BodyDecoder::new(head.framing, &shared.site.limits.http);
        if head.expect_continue && !decoder.is_end() {
            shared.ports.outboxes.buffer(id).extend_from_slice(CONTINUE);
        }
        let is_end = decoder.is_end();
        let body = Body {
            decoder,
            call,
            data: Vec::new(),
            reply: Reply::to(head),
            then,
        };
        if is_end {
            return Ok(self.body_complete(id, body, shared));
        }
        self.state = State::Body(Box::new(body));
        Ok(Then::GoOn)
    }

    fn body(
        &mut self,
        id: SessionId,
        input: &[u8],
        shared: &mut Shared,
    ) -> Result<Step<Socket>, HttpError> {
        let State::Body(body) = &mut self.state else {
            unreachable!("called in this state only")
        };
        let piece = body.decoder.decode(input)?;
        if body.call.is_some() {
            body.data.extend_from_slice(&input[piece.data.clone()]);
        }
        let taken = piece.consumed;
        if !piece.is_end {
            let then = if taken < input.len() {
                Then::GoOn
            } else {
                Then::NeedInput
            };
            return Ok(Step { taken, then });
        }
        let State::Body(body) = std::mem::replace(&mut self.state, State::Head) else {
            unreachable!("as above")
        };
        Ok(Step {
            taken,
            then: self.body_complete(id, *body, shared),
        })
    }

    fn body_complete(&mut self, id: SessionId, body: Body, shared: &mut Shared) -> Then<Socket> {
        self.since_ms = shared.now.mono_ms;
        if let Some(then) = body.then {
            then(body.reply, id, shared);
            return self.finish(id, body.reply.keep_alive, shared);
        }
        let Some(mut call) = body.call else {
            unreachable!("a body is wanted by a call or dropped before an answer")
        };
        match call.run(&body.data, id, shared) {
            CallEnd::Answered(answer) => self.call_ended(id, &answer, body.reply, shared),
            CallEnd::Waits(block) => {
                self.state = State::Call(Box::new(call), body.reply);
                Then::Wait(block)
            }
        }
    }

    fn call_ended(
        &mut self,
        id: SessionId,
        answer: &[u8],
        reply: Reply,
        shared: &mut Shared,
    ) -> Then<Socket> {
        reply.write(id, Status::OK, "application/json", answer, shared);
        self.state = State::Head;
        self.finish(id, reply.keep_alive, shared)
    }

    /// After a response: go on with the next request, or end.
    fn finish(&mut self, id: SessionId, keep_alive: bool, shared: &mut Shared) -> Then<Socket> {
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
        id: SessionId,
        reply: Reply,
        stream: Option<Stream>,
        shared: &mut Shared,
    ) -> Then<Socket> {
        match stream {
            None => self.finish(id, reply.keep_alive, shared),
            Some(stream) => {
                self.state = State::Streaming(Box::new(stream));
                self.pump(id, shared)
            }
        }
    }

    /// Writes as much of a streamed response as the client's reading allows.
    fn pump(&mut self, id: SessionId, shared: &mut Shared) -> Then<Socket> {
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

    fn upgrade(
        &mut self,
        id: SessionId,
        head: &Head<'_>,
        route: &Arc<Route>,
        shared: &mut Shared,
    ) -> Result<Then<Socket>, HttpError> {
        match upgrade(id, head, route, shared) {
            Err(refused) => {
                shared.stats.handshake(refused.outcome);
                let what = format!(
                    "handshake refused with {}: {}",
                    refused.refusal.status.0,
                    refused.refusal.why()
                );
                shared.note(id, NoteLevel::Info, what);
                self.refuse(id, head, refused.refusal, shared)
            }
            Ok(registration) => {
                if registration.is_complete() {
                    return Ok(Then::Become(registration.open(id, shared)));
                }
                self.state = State::Registering(Box::new(registration));
                Ok(Then::Wait(Block::Answer))
            }
        }
    }

    pub(crate) fn answered(
        &mut self,
        id: SessionId,
        ticket: Ticket,
        answer: Answer,
        shared: &mut Shared,
    ) -> Then<Socket> {
        match &mut self.state {
            State::Call(call, _) => {
                call.answered(ticket, answer);
                Then::GoOn
            }
            State::Registering(registration) => {
                registration.answered();
                if !registration.is_complete() {
                    return Then::Wait(Block::Answer);
                }
                let State::Registering(registration) =
                    std::mem::replace(&mut self.state, State::Head)
                else {
                    unreachable!("matched above")
                };
                Then::Become(registration.open(id, shared))
            }
            _ => Then::Wait(Block::Answer),
        }
    }

    pub(crate) fn resume(&mut self, id: SessionId, shared: &mut Shared) -> Then<Socket> {
        match std::mem::replace(&mut self.state, State::Head) {
            State::Call(mut call, reply) => match call.resume(id, shared) {
                CallEnd::Answered(answer) => self.call_ended(id, &answer, reply, shared),
                CallEnd::Waits(block) => {
                    self.state = State::Call(call, reply);
                    Then::Wait(block)
                }
            },
            State::Streaming(stream) => {
                self.state = State::Streaming(stream);
                self.pump(id, shared)
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
    pub(crate) fn abandon(&mut self, id: SessionId, shared: &mut Shared) {
        if let State::Registering(registration) = &self.state {
            registration.withdraw(id, shared);
            self.state = State::Head;
            shared.stats.handshake(Handshake::Malformed);
            let error = HttpError {
                status: Status::SERVICE_UNAVAILABLE,
                reason: "the session could not be opened",
            };
            refuse_request(id, &error, shared);
        }
    }

    pub(crate) fn deadline_ms(&self, shared: &Shared) -> u64 {
        let limits = &shared.site.limits;
        let wait = match self.state {
            State::Head if self.requests > 0 && !self.scan.is_midway() => limits.idle_timeout_ms,
            State::Head => limits.header_timeout_ms.min(limits.handshake_timeout_ms),
            State::Body(_) => limits.body_timeout_ms,
            State::Registering(_) => limits.handshake_timeout_ms,
            // A home worker always answers, and a stalled send has its own deadline.
            State::Call(..) | State::Streaming(_) => return u64::MAX,
        };
        self.since_ms.saturating_add(wait)
    }

    /// The wait is over; says 408 where something had begun.
    pub(crate) fn timeout(&mut self, id: SessionId, shared: &mut Shared) -> bool {
        if self.deadline_ms(shared) > shared.now.mono_ms {
            return true;
        }
        if matches!(self.state, State::Registering(_)) {
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

/// Whether an upgrade on this route, at this place below it, opens a WebSocket.
fn takes_socket_here(route: &Route, below: &str) -> bool {
    match route.handler {
        Handler::Api => below.trim_end_matches('/') == "/socket",
        _ => route.handler.takes_websocket(),
    }
}
