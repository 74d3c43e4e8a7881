//! Request bodies. A body is read for a call or an application, discarded before a response that
//! does not need it, or not read at all.

use veche_hub::ConnectionId;
use veche_proto::http::{BodyDecoder, CONTINUE, Framing, Head, HttpError};
use veche_types::AppId;

use super::call::{ApiCall as _, CallStatus};
use super::protocol::{BodyHandler, UpperLayer};
use super::{HttpNext, HttpStage, OpenedSession, PendingRequest, State};
use crate::context::step::{NextStep, StageStep};
use crate::context::worker_context::Context;
use crate::http::reply::ReplyContext;

/// Maximum size in bytes of an unneeded body that is read and discarded to keep the connection
/// alive. If a body is larger, the connection is closed instead.
const SKIPPED_BODY_BYTES_MAX: u64 = 64 << 10;

/// A request whose body is being read.
pub(super) struct RequestBody<C> {
    decoder: BodyDecoder,
    purpose: BodyPurpose<C>,
    data: Vec<u8>,
    reply: ReplyContext,
}

/// What the body is read for.
pub(super) enum BodyPurpose<C> {
    Call(Box<C>),
    /// The body of a request to an application.
    App(AppId, PendingRequest),
    /// The first messages of a client that opens a session. The server's messages to the client form the response.
    Stream(PendingRequest),
    /// The body of a request that a client protocol answers.
    Answer(BodyHandler),
    /// The body is not needed. It is discarded before the deferred answer is written.
    Dropped(DeferredAnswer),
}

/// Writes a response after an unneeded body was read and discarded.
pub(super) type DeferredAnswer = Box<dyn FnOnce(ReplyContext, ConnectionId, &mut Context)>;

impl<A: UpperLayer> HttpStage<A> {
    /// Answers a request whose body is not needed.
    pub(super) fn answer(
        &mut self,
        id: ConnectionId,
        head: &Head<'_>,
        shared: &mut Context,
        then: impl FnOnce(ReplyContext, ConnectionId, &mut Context) + 'static,
    ) -> Result<HttpNext<A>, HttpError> {
        let mut reply = self.reply(head);
        let droppable = match head.framing {
            Framing::None | Framing::Sized(0) => {
                then(reply, id, shared);
                return Ok(self.finish(id, head.keep_alive, shared));
            }
            Framing::Sized(length) => length <= SKIPPED_BODY_BYTES_MAX && !head.expect_continue,
            Framing::Chunked => false,
        };
        if droppable {
            return self.read_body(id, head, BodyPurpose::Dropped(Box::new(then)), shared);
        }
        // The response is written before the body is received. The connection ends afterwards, since what follows
        // could be the rest of the body or a new request.
        reply.keep_alive = false;
        then(reply, id, shared);
        Ok(NextStep::End)
    }

    pub(super) fn read_body(
        &mut self,
        id: ConnectionId,
        head: &Head<'_>,
        purpose: BodyPurpose<A::Call>,
        shared: &mut Context,
    ) -> Result<HttpNext<A>, HttpError> {
        let decoder = BodyDecoder::new(head.framing, &shared.config.limits.http);
        if head.expect_continue && !decoder.is_end() {
            shared
                .requests
                .outboxes
                .buffer(id)
                .extend_from_slice(CONTINUE);
        }
        let is_end = decoder.is_end();
        let body = RequestBody {
            decoder,
            purpose,
            data: Vec::new(),
            reply: self.reply(head),
        };
        if is_end {
            return Ok(self.body_complete(id, body, shared));
        }
        self.state = State::Body(Box::new(body));
        Ok(NextStep::Continue)
    }

    pub(super) fn body(
        &mut self,
        id: ConnectionId,
        input: &[u8],
        shared: &mut Context,
    ) -> Result<StageStep<OpenedSession<A::Session>>, HttpError> {
        let State::Body(body) = &mut self.state else {
            unreachable!("this must be called only while a request body is read")
        };
        let piece = body.decoder.decode(input)?;
        if !matches!(body.purpose, BodyPurpose::Dropped(_)) {
            body.data.extend_from_slice(&input[piece.data.clone()]);
        }
        let taken = piece.consumed;
        shared.requests.outboxes.access_log.body_received(id, taken);
        if !piece.is_end {
            let then = if taken < input.len() {
                NextStep::Continue
            } else {
                NextStep::NeedInput
            };
            return Ok(StageStep {
                consumed: taken,
                then,
            });
        }
        let State::Body(body) = std::mem::replace(&mut self.state, State::Head) else {
            unreachable!("as above")
        };
        Ok(StageStep {
            consumed: taken,
            then: self.body_complete(id, *body, shared),
        })
    }

    pub(super) fn body_complete(
        &mut self,
        id: ConnectionId,
        body: RequestBody<A::Call>,
        shared: &mut Context,
    ) -> HttpNext<A> {
        self.since_ms = shared.now.mono_ms;
        let mut call = match body.purpose {
            BodyPurpose::Call(call) => call,
            BodyPurpose::App(app, kept) => {
                return self.call_app_with_pending(id, app, &kept, &body.data, shared);
            }
            BodyPurpose::Stream(mut kept) => {
                kept.body = body.data;
                return self.authenticate_stream(id, kept, shared);
            }
            BodyPurpose::Answer(answer_to) => {
                answer_to(&body.data, shared).write(&body.reply, id, shared);
                return self.finish(id, body.reply.keep_alive, shared);
            }
            BodyPurpose::Dropped(then) => {
                let keep_alive = body.reply.keep_alive;
                then(body.reply, id, shared);
                return self.finish(id, keep_alive, shared);
            }
        };
        match call.run(&body.data, id, shared) {
            CallStatus::Answered(answers) => self.call_ended(id, answers, body.reply, shared),
            CallStatus::Refused(refusal) => {
                refusal.write(&body.reply, id, shared);
                self.finish(id, body.reply.keep_alive, shared)
            }
            CallStatus::Pending(block) => {
                self.state = State::Call(call, body.reply);
                NextStep::Wait(block)
            }
        }
    }
}
