//! Request bodies: read for a call or an application, discarded before a response that needs none, or not read at all.

use veche_hub::ConnectionId;
use veche_proto::http::{BodyDecoder, CONTINUE, Framing, Head, HttpError};
use veche_types::AppId;

use super::call::{ApiCall as _, CallEnd};
use super::protocol::{Above, AnswerTo};
use super::{Http, KeptRequest, Next, Opened, State};
use crate::context::shared::Shared;
use crate::context::step::{Step, Then};
use crate::http::reply::Reply;

/// Unneeded bodies up to this size are read and discarded to keep the connection; larger ones close it.
const SKIPPED_BODY_BYTES_MAX: u64 = 64 << 10;

/// A request whose body is being read.
pub(super) struct Body<C> {
    decoder: BodyDecoder,
    purpose: Purpose<C>,
    data: Vec<u8>,
    reply: Reply,
}

/// The use of a body.
pub(super) enum Purpose<C> {
    Call(Box<C>),
    /// A request to an application.
    App(AppId, KeptRequest),
    /// It opens a session whose messages are parts of the response.
    Stream(KeptRequest),
    /// A client protocol answers it.
    Answer(AnswerTo),
    /// It is discarded before this response.
    Dropped(AnswerLater),
}

/// Writes a response after an unneeded body was read.
pub(super) type AnswerLater = Box<dyn FnOnce(Reply, ConnectionId, &mut Shared)>;

impl<A: Above> Http<A> {
    /// Answers a request that needs no body.
    pub(super) fn answer(
        &mut self,
        id: ConnectionId,
        head: &Head<'_>,
        shared: &mut Shared,
        then: impl FnOnce(Reply, ConnectionId, &mut Shared) + 'static,
    ) -> Result<Next<A>, HttpError> {
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
            return self.read_body(id, head, Purpose::Dropped(Box::new(then)), shared);
        }
        // The response precedes the body, so later bytes can't be told apart from a request.
        reply.keep_alive = false;
        then(reply, id, shared);
        Ok(Then::End)
    }

    pub(super) fn read_body(
        &mut self,
        id: ConnectionId,
        head: &Head<'_>,
        purpose: Purpose<A::Call>,
        shared: &mut Shared,
    ) -> Result<Next<A>, HttpError> {
        let decoder = BodyDecoder::new(head.framing, &shared.site.limits.http);
        if head.expect_continue && !decoder.is_end() {
            shared.ports.outboxes.buffer(id).extend_from_slice(CONTINUE);
        }
        let is_end = decoder.is_end();
        let body = Body {
            decoder,
            purpose,
            data: Vec::new(),
            reply: self.reply(head),
        };
        if is_end {
            return Ok(self.body_complete(id, body, shared));
        }
        self.state = State::Body(Box::new(body));
        Ok(Then::GoOn)
    }

    pub(super) fn body(
        &mut self,
        id: ConnectionId,
        input: &[u8],
        shared: &mut Shared,
    ) -> Result<Step<Opened<A::Session>>, HttpError> {
        let State::Body(body) = &mut self.state else {
            unreachable!("called in this state only")
        };
        let piece = body.decoder.decode(input)?;
        if !matches!(body.purpose, Purpose::Dropped(_)) {
            body.data.extend_from_slice(&input[piece.data.clone()]);
        }
        let taken = piece.consumed;
        shared.ports.outboxes.journal.body(id, taken);
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

    pub(super) fn body_complete(
        &mut self,
        id: ConnectionId,
        body: Body<A::Call>,
        shared: &mut Shared,
    ) -> Next<A> {
        self.since_ms = shared.now.mono_ms;
        let mut call = match body.purpose {
            Purpose::Call(call) => call,
            Purpose::App(app, kept) => return self.ask_kept(id, app, &kept, &body.data, shared),
            Purpose::Stream(mut kept) => {
                kept.body = body.data;
                return self.name_stream(id, kept, shared);
            }
            Purpose::Answer(answer_to) => {
                answer_to(&body.data, shared).write(&body.reply, id, shared);
                return self.finish(id, body.reply.keep_alive, shared);
            }
            Purpose::Dropped(then) => {
                let keep_alive = body.reply.keep_alive;
                then(body.reply, id, shared);
                return self.finish(id, keep_alive, shared);
            }
        };
        match call.run(&body.data, id, shared) {
            CallEnd::Answered(answers) => self.call_ended(id, answers, body.reply, shared),
            CallEnd::Refused(refusal) => {
                refusal.write(&body.reply, id, shared);
                self.finish(id, body.reply.keep_alive, shared)
            }
            CallEnd::Waits(block) => {
                self.state = State::Call(call, body.reply);
                Then::Wait(block)
            }
        }
    }
}
