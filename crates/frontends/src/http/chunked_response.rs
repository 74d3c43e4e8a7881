//! Responses that an application writes in parts: their head, their chunks as the client reads, their end.
//!
//! An application that asks is told when there is room for more, so it holds one part at a time, and the outbox little
//! more than [`ANSWERS_BYTES_HIGH`]. To HTTP/1.1 they are chunks; to HTTP/1.0 the end is that of the connection.

use veche_hub::ConnectionId;
use veche_proto::http::{ResponseBody, ResponseHead, Status, finish_chunks, write_chunk};
use veche_types::AppId;

use super::protocol::UpperLayer;
use super::{HttpNext, HttpStage, PendingRequest, State};
use crate::context::app::{AbandonReason, AppAnswer, AppResponseHead};
use crate::context::log_note::NoteLevel;
use crate::context::step::{NextStep, WaitReason};
use crate::context::worker_context::Context;
use crate::http::reply::{Refusal, write_app_head};
use crate::outbox::ANSWERS_BYTES_HIGH;

/// A response that has begun.
pub(super) struct ChunkedResponse {
    pub(super) app: AppId,
    /// How long the application may take from part to part.
    pub(super) timeout_ms: u64,
    is_chunked: bool,
    keep_alive: bool,
    /// The request or the status wants no body.
    omits_body: bool,
    /// Events: they are over when somebody goes.
    is_endless: bool,
    /// The application waits for room.
    asks: bool,
}

impl<A: UpperLayer> HttpStage<A> {
    pub(super) fn begin_chunked(
        &mut self,
        id: ConnectionId,
        app: AppId,
        kept: &PendingRequest,
        beginning: &AppResponseHead,
        shared: &mut Context,
    ) -> HttpNext<A> {
        let request = kept.head();
        let AppResponseHead { status, headers } = beginning;
        let mut head = ResponseHead::to(&request, *status, ResponseBody::Chunked);
        head.keep_alive &= !shared.is_draining();
        let reply = self.reply(&request);
        if !write_app_head(&reply, id, head, *status, headers, |_| {}, shared) {
            shared.with_apps(|apps, shared| {
                apps.abandoned(app, id, AbandonReason::Disconnected, shared)
            });
            return self.finish(id, reply.keep_alive, shared);
        }
        shared.response_started(id, status.0);
        let is_events = |(name, value): &(String, String)| {
            name.eq_ignore_ascii_case("content-type") && value.starts_with(EVENTS)
        };
        let is_mute = reply.head_only || !status.has_body();
        let is_endless = headers.iter().any(is_events);
        let is_chunked = head.body == ResponseBody::Chunked;
        if is_endless && !is_mute {
            shared.requests.outboxes.begin_events(id, is_chunked);
        }
        self.state = State::Parts(Box::new(ChunkedResponse {
            app,
            timeout_ms: kept.timeout_ms(),
            is_chunked,
            keep_alive: head.keep_alive,
            omits_body: is_mute,
            is_endless,
            asks: false,
        }));
        self.since_ms = shared.now.mono_ms;
        NextStep::Wait(WaitReason::App)
    }

    /// What came after the beginning.
    pub(super) fn write_chunk(
        &mut self,
        id: ConnectionId,
        answer: &AppAnswer,
        shared: &mut Context,
    ) -> HttpNext<A> {
        let State::Parts(parts) = &mut self.state else {
            return NextStep::Wait(WaitReason::App);
        };
        match answer {
            AppAnswer::Chunk { data, asks } => {
                self.since_ms = shared.now.mono_ms;
                parts.asks |= asks;
                if !parts.omits_body {
                    let out = shared.requests.outboxes.buffer(id);
                    match parts.is_chunked {
                        true => write_chunk(out, data),
                        false => out.extend_from_slice(data),
                    }
                }
                self.continue_chunked(id, shared)
            }
            AppAnswer::End { is_whole: true } => {
                if parts.is_chunked && !parts.omits_body {
                    finish_chunks(shared.requests.outboxes.buffer(id));
                }
                let keep_alive = parts.keep_alive;
                if parts.is_endless {
                    shared.requests.outboxes.refuse_pushes(id);
                    shared.hub.close(id, &mut shared.requests);
                }
                self.state = State::Head;
                self.finish(id, keep_alive, shared)
            }
            // What the client has got can't be taken back; that there is no last chunk tells it.
            _ => {
                self.state = State::Head;
                NextStep::End
            }
        }
    }

    /// Asks for the next part, if there is room.
    pub(super) fn continue_chunked(
        &mut self,
        id: ConnectionId,
        shared: &mut Context,
    ) -> HttpNext<A> {
        let State::Parts(parts) = &mut self.state else {
            return NextStep::Wait(WaitReason::App);
        };
        if !parts.asks {
            return NextStep::Wait(WaitReason::App);
        }
        if shared.requests.outboxes.of(id).queued() > ANSWERS_BYTES_HIGH {
            return NextStep::Wait(WaitReason::Output);
        }
        parts.asks = false;
        let app = parts.app;
        // It was not the application that took its time.
        self.since_ms = shared.now.mono_ms;
        shared.with_apps(|apps, shared| apps.written(app, id, shared));
        NextStep::Wait(WaitReason::App)
    }

    /// Whether a response is under way that nobody expects to end.
    pub(crate) fn is_endless(&self) -> bool {
        matches!(&self.state, State::Parts(parts) if parts.is_endless)
    }

    /// The application has taken longer than it may: 504, or a response that breaks off.
    pub(super) fn app_is_late(&mut self, id: ConnectionId, shared: &mut Context) {
        self.record_slow(shared);
        self.gone(id, AbandonReason::TimedOut, shared);
        if let State::App(_, kept) = std::mem::replace(&mut self.state, State::Head) {
            let head = kept.head();
            let mut reply = self.reply(&head);
            reply.keep_alive = false;
            let refusal = Refusal::new(Status::GATEWAY_TIMEOUT, "the application took too long");
            refusal.write(&reply, id, shared);
        }
        let what = "the application took longer than request_timeout";
        shared.log(id, NoteLevel::Warn, what);
    }
}

/// The type of server-sent events.
const EVENTS: &str = "text/event-stream";
