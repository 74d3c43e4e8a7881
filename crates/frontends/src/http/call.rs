//! API calls and their responses. The layer above executes the calls. A short response is written at once, a long one
//! in chunks; each chunk is encoded when the caller has read the previous ones.

use std::net::IpAddr;

use veche_hub::{ConnectionId, HubReply, Ticket};
use veche_proto::http::{
    Head, HttpVersion, ResponseBody, ResponseHead, Status, finish_chunks, write_chunk,
};

use super::protocol::UpperLayer;
use super::{HttpNext, HttpStage, State};
use crate::context::step::{NextStep, WaitReason};
use crate::context::work_budget;
use crate::context::worker_context::Context;
use crate::http::reply::{Refusal, ReplyContext};
use crate::outbox::{ANSWERS_BYTES_HIGH, SLICE_BYTES};

const JSON: &str = "application/json";

/// An API call, from its head to its response.
pub(crate) trait ApiCall: Sized {
    /// The body of a response, which may be long.
    type Answers: AnswerBody;

    /// Begins a call, after its head was received. `below` is the part of the path after the
    /// route's path.
    fn begin(
        head: &Head<'_>,
        below: &str,
        client: IpAddr,
        id: ConnectionId,
        shared: &mut Context,
    ) -> Result<Self, Refusal>;

    /// Begins a call of the admin page.
    fn begin_admin(
        head: &Head<'_>,
        name: &str,
        is_tls: bool,
        client: IpAddr,
        id: ConnectionId,
        shared: &mut Context,
    ) -> Result<Self, Refusal>;

    fn run(
        &mut self,
        body: &[u8],
        id: ConnectionId,
        shared: &mut Context,
    ) -> CallStatus<Self::Answers>;

    /// Continues the call after a wait.
    fn resume(&mut self, id: ConnectionId, shared: &mut Context) -> CallStatus<Self::Answers>;

    /// Handles the reply to one of the call's tickets.
    fn answered(&mut self, ticket: Ticket, answer: HubReply);
}

/// The part of a response body that is not written yet.
pub(crate) trait AnswerBody {
    /// Appends the next part to `out`, until `out` has about `bytes_max` bytes. Returns whether it was the last part.
    fn write(&mut self, out: &mut Vec<u8>, bytes_max: usize) -> bool;
}

/// The status of a call after a step of its execution.
pub(crate) enum CallStatus<A> {
    /// The call has a response body.
    Answered(A),
    /// The call is refused for a temporary reason.
    Refused(Refusal),
    Pending(WaitReason),
}

/// A response whose body is not completely written.
pub(super) struct UnfinishedAnswer<B> {
    answers: B,
    keep_alive: bool,
}

impl<A: UpperLayer> HttpStage<A> {
    /// Writes the response of a call that has ended, or the first part of it.
    pub(super) fn call_ended(
        &mut self,
        id: ConnectionId,
        mut answers: <A::Call as ApiCall>::Answers,
        reply: ReplyContext,
        shared: &mut Context,
    ) -> HttpNext<A> {
        let bytes_max = match reply.version {
            // HTTP/1.0 has no chunked responses, so the body is written as a whole.
            HttpVersion::Http10 => usize::MAX,
            HttpVersion::Http11 => SLICE_BYTES,
        };
        let mut part = shared.requests.outboxes.spare();
        let is_whole = answers.write(&mut part, bytes_max);
        shared
            .work
            .charge(work_budget::ANSWER_BYTE * part.len() as u64);
        if is_whole {
            reply.write(id, Status::OK, JSON, &part, shared);
            shared.requests.outboxes.recycle(part);
            self.state = State::Head;
            return self.finish(id, reply.keep_alive, shared);
        }
        let head = ResponseHead {
            status: Status::OK,
            version: reply.version,
            keep_alive: reply.keep_alive && !shared.is_draining(),
            body: ResponseBody::Chunked,
        };
        shared.response_started(id, Status::OK.0);
        let out = shared.requests.outboxes.buffer(id);
        // Writing can't fail, since this header is valid.
        let _ = head.write(out, shared.date.text(), &[("Content-Type", JSON)]);
        write_chunk(out, &part);
        shared.requests.outboxes.recycle(part);
        let keep_alive = head.keep_alive;
        let answering = UnfinishedAnswer {
            answers,
            keep_alive,
        };
        self.continue_answer(id, Box::new(answering), shared)
    }

    /// Writes as much of the remaining body as fits into the outbox and into the connection's share of the turn.
    pub(super) fn continue_answer(
        &mut self,
        id: ConnectionId,
        mut answering: Box<UnfinishedAnswer<<A::Call as ApiCall>::Answers>>,
        shared: &mut Context,
    ) -> HttpNext<A> {
        loop {
            let queued = shared.requests.outboxes.queued(id);
            if queued > ANSWERS_BYTES_HIGH || shared.work.is_spent() {
                self.state = State::Answering(answering);
                return NextStep::Wait(WaitReason::Output);
            }
            let mut part = shared.requests.outboxes.spare();
            let is_last = answering.answers.write(&mut part, SLICE_BYTES);
            shared
                .work
                .charge(work_budget::ANSWER_BYTE * part.len() as u64);
            let out = shared.requests.outboxes.buffer(id);
            write_chunk(out, &part);
            if is_last {
                finish_chunks(out);
            }
            shared.requests.outboxes.recycle(part);
            if is_last {
                self.state = State::Head;
                return self.finish(id, answering.keep_alive, shared);
            }
        }
    }
}
