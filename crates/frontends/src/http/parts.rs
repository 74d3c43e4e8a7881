//! Responses that an application writes in parts: head, chunks as the client reads, end.
//!
//! An application that requests it is told when there is room for more, so it holds one part at a time, and the outbox
//! little more than [`ANSWERS_BYTES_HIGH`]. HTTP/1.1 clients get chunks; for HTTP/1.0 the connection's end marks the
//! end.

use veche_hub::ConnectionId;
use veche_proto::http::{ResponseBody, ResponseHead, Status, finish_chunks, write_chunk};
use veche_types::AppId;

use super::protocol::Above;
use super::{Http, KeptRequest, Next, State};
use crate::context::app::{AppAnswer, Beginning, Gone};
use crate::context::note::NoteLevel;
use crate::context::shared::Shared;
use crate::context::step::{Block, Then};
use crate::http::reply::{Refusal, write_app_head};
use crate::outbox::ANSWERS_BYTES_HIGH;

/// A response in progress.
pub(super) struct Parts {
    pub(super) app: AppId,
    /// The application's time limit from part to part.
    pub(super) timeout_ms: u64,
    is_chunked: bool,
    keep_alive: bool,
    /// The request or status has no body.
    is_mute: bool,
    /// An event stream: it ends when either side closes it.
    is_endless: bool,
    /// The application waits for room.
    asks: bool,
}

impl<A: Above> Http<A> {
    pub(super) fn begin_parts(
        &mut self,
        id: ConnectionId,
        app: AppId,
        kept: &KeptRequest,
        beginning: &Beginning,
        shared: &mut Shared,
    ) -> Next<A> {
        let request = kept.head();
        let Beginning { status, headers } = beginning;
        let mut head = ResponseHead::to(&request, *status, ResponseBody::Chunked);
        head.keep_alive &= !shared.is_draining();
        let reply = self.reply(&request);
        if !write_app_head(&reply, id, head, *status, headers, |_| {}, shared) {
            shared.with_apps(|apps, shared| apps.gone(app, id, Gone::Left, shared));
            return self.finish(id, reply.keep_alive, shared);
        }
        shared.answered(id, status.0);
        let is_events = |(name, value): &(String, String)| {
            name.eq_ignore_ascii_case("content-type") && value.starts_with(EVENTS)
        };
        let is_mute = reply.head_only || !status.has_body();
        let is_endless = headers.iter().any(is_events);
        let is_chunked = head.body == ResponseBody::Chunked;
        if is_endless && !is_mute {
            shared.ports.outboxes.begin_events(id, is_chunked);
        }
        self.state = State::Parts(Box::new(Parts {
            app,
            timeout_ms: kept.timeout_ms(),
            is_chunked,
            keep_alive: head.keep_alive,
            is_mute,
            is_endless,
            asks: false,
        }));
        self.since_ms = shared.now.mono_ms;
        Then::Wait(Block::App)
    }

    /// Handles a part after the head.
    pub(super) fn part(
        &mut self,
        id: ConnectionId,
        answer: &AppAnswer,
        shared: &mut Shared,
    ) -> Next<A> {
        let State::Parts(parts) = &mut self.state else {
            return Then::Wait(Block::App);
        };
        match answer {
            AppAnswer::Part { data, asks } => {
                self.since_ms = shared.now.mono_ms;
                parts.asks |= asks;
                if !parts.is_mute {
                    let out = shared.ports.outboxes.buffer(id);
                    match parts.is_chunked {
                        true => write_chunk(out, data),
                        false => out.extend_from_slice(data),
                    }
                }
                self.go_on_with_parts(id, shared)
            }
            AppAnswer::End { is_whole: true } => {
                if parts.is_chunked && !parts.is_mute {
                    finish_chunks(shared.ports.outboxes.buffer(id));
                }
                let keep_alive = parts.keep_alive;
                if parts.is_endless {
                    shared.ports.outboxes.refuse_pushes(id);
                    shared.hub.close(id, &mut shared.ports);
                }
                self.state = State::Head;
                self.finish(id, keep_alive, shared)
            }
            // Sent data can't be revoked; the missing last chunk shows the error.
            _ => {
                self.state = State::Head;
                Then::End
            }
        }
    }

    /// Requests the next part if there is room.
    pub(super) fn go_on_with_parts(&mut self, id: ConnectionId, shared: &mut Shared) -> Next<A> {
        let State::Parts(parts) = &mut self.state else {
            return Then::Wait(Block::App);
        };
        if !parts.asks {
            return Then::Wait(Block::App);
        }
        if shared.ports.outboxes.of(id).queued() > ANSWERS_BYTES_HIGH {
            return Then::Wait(Block::Output);
        }
        parts.asks = false;
        let app = parts.app;
        // The delay was not the application's.
        self.since_ms = shared.now.mono_ms;
        shared.with_apps(|apps, shared| apps.written(app, id, shared));
        Then::Wait(Block::App)
    }

    /// Returns whether a response without an expected end is in progress.
    pub(crate) fn is_endless(&self) -> bool {
        matches!(&self.state, State::Parts(parts) if parts.is_endless)
    }

    /// Handles an application that exceeded its time limit: 504, or a truncated response.
    pub(super) fn app_is_late(&mut self, id: ConnectionId, shared: &mut Shared) {
        self.note_slow(shared);
        self.gone(id, Gone::TooLate, shared);
        if let State::App(_, kept) = std::mem::replace(&mut self.state, State::Head) {
            let head = kept.head();
            let mut reply = self.reply(&head);
            reply.keep_alive = false;
            let refusal = Refusal::new(Status::GATEWAY_TIMEOUT, "the application took too long");
            refusal.write(&reply, id, shared);
        }
        let what = "the application took longer than request_timeout";
        shared.note(id, NoteLevel::Warn, what);
    }
}

/// The media type of server-sent events.
const EVENTS: &str = "text/event-stream";
