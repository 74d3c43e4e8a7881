//! Responses that an application writes in parts: the head, chunks as the client reads, and the
//! end.
//!
//! An application may request to be notified when the outbox has room for more. It then needs to
//! hold only one part at a time, and the outbox holds little more than [`ANSWERS_BYTES_HIGH`]
//! bytes. HTTP/1.1 clients receive chunks; for HTTP/1.0 clients the end of the connection is the
//! end of the response.

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

/// A response that an application is writing in parts.
pub(super) struct ChunkedResponse {
    pub(super) app: AppId,
    /// The application's time limit for each part, in milliseconds.
    pub(super) timeout_ms: u64,
    is_chunked: bool,
    keep_alive: bool,
    /// Whether the response has no body, because of the request's method or the status.
    omits_body: bool,
    /// Whether the response is an event stream, which ends only when either side closes it.
    is_endless: bool,
    /// Whether the application is to be notified when the outbox has room.
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

    /// Handles a part of the response, or its end.
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
            // The part that was already sent can't be withdrawn. The connection ends without the
            // last chunk, so that the client notices the error.
            _ => {
                self.state = State::Head;
                NextStep::End
            }
        }
    }

    /// Notifies the application that the next part may follow, if it requested that and the outbox has room.
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
        // The time limit starts again, since the client and not the application caused the delay.
        self.since_ms = shared.now.mono_ms;
        shared.with_apps(|apps, shared| apps.written(app, id, shared));
        NextStep::Wait(WaitReason::App)
    }

    /// Returns whether an event stream is in progress, which ends only when either side closes it.
    pub(crate) fn is_endless(&self) -> bool {
        matches!(&self.state, State::Parts(parts) if parts.is_endless)
    }

    /// Handles an application that exceeded its time limit: the client gets a 504, or a truncated response if its
    /// head was already written.
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

/// The media type of server-sent events.
const EVENTS: &str = "text/event-stream";
