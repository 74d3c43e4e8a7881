//! Answers to API calls: short ones whole, long ones in chunks, each encoded when the caller has read what was before.

use veche_hub::ConnectionId;
use veche_proto::http::{ResponseBody, ResponseHead, Status, Version, finish_chunks, write_chunk};

use super::{Http, State};
use crate::backend::api::Answers;
use crate::context::shared::Shared;
use crate::context::step::{Block, Then};
use crate::context::work;
use crate::http::reply::Reply;
use crate::outbox::{ANSWERS_BYTES_HIGH, SLICE_BYTES};
use crate::websocket::Socket;

const JSON: &str = "application/json";

/// The rest of an answer.
pub(super) struct Answering {
    answers: Answers,
    keep_alive: bool,
}

impl Http {
    /// A call is answered.
    pub(super) fn call_ended(
        &mut self,
        id: ConnectionId,
        mut answers: Answers,
        reply: Reply,
        shared: &mut Shared,
    ) -> Then<Socket> {
        let bytes_max = match reply.version {
            // It knows no chunks.
            Version::Http10 => usize::MAX,
            Version::Http11 => SLICE_BYTES,
        };
        let mut part = shared.ports.outboxes.spare();
        let is_whole = answers.write(&mut part, bytes_max);
        shared.work.charge(work::ANSWER_BYTE * part.len() as u64);
        if is_whole {
            reply.write(id, Status::OK, JSON, &part, shared);
            shared.ports.outboxes.recycle(part);
            self.state = State::Head;
            return self.finish(id, reply.keep_alive, shared);
        }
        let head = ResponseHead {
            status: Status::OK,
            version: reply.version,
            keep_alive: reply.keep_alive && !shared.is_draining(),
            body: ResponseBody::Chunked,
        };
        shared.answered(id, Status::OK.0);
        let out = shared.ports.outboxes.buffer(id);
        // The header is one that can be written.
        let _ = head.write(out, shared.date.text(), &[("Content-Type", JSON)]);
        write_chunk(out, &part);
        shared.ports.outboxes.recycle(part);
        let keep_alive = head.keep_alive;
        let answering = Answering {
            answers,
            keep_alive,
        };
        self.go_on_answering(id, Box::new(answering), shared)
    }

    /// Writes as much of the rest as the caller's reading allows, and the connection's share of the turn.
    pub(super) fn go_on_answering(
        &mut self,
        id: ConnectionId,
        mut answering: Box<Answering>,
        shared: &mut Shared,
    ) -> Then<Socket> {
        loop {
            let queued = shared.ports.outboxes.queued(id);
            if queued > ANSWERS_BYTES_HIGH || shared.work.is_spent() {
                self.state = State::Answering(answering);
                return Then::Wait(Block::Output);
            }
            let mut part = shared.ports.outboxes.spare();
            let is_last = answering.answers.write(&mut part, SLICE_BYTES);
            shared.work.charge(work::ANSWER_BYTE * part.len() as u64);
            let out = shared.ports.outboxes.buffer(id);
            write_chunk(out, &part);
            if is_last {
                finish_chunks(out);
            }
            shared.ports.outboxes.recycle(part);
            if is_last {
                self.state = State::Head;
                return self.finish(id, answering.keep_alive, shared);
            }
        }
    }
}
