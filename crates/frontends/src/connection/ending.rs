//! Ends connections: with a Close frame, after pending requests, or at once.

use std::sync::Arc;

use veche_hub::{ConnectionId, UserAction, UserCommand};
use veche_types::codes::CloseCode;

use super::{Connection, Stage};
use crate::context::log_note::NoteLevel;
use crate::context::step::{NextStep, WaitReason};
use crate::context::worker_context::Context;
use crate::outbox::TransportEnd;
use crate::outbox::access_log_buffer::SlowEventKind;

impl Connection {
    /// Closes the session with a code: on behalf of the hub or the operator, or because of a limit.
    pub fn disconnect(&mut self, id: ConnectionId, code: u16, reason: &str, shared: &mut Context) {
        match &mut self.stage {
            Stage::Socket(socket) => {
                socket.close(id, code, reason, shared);
                return self.unblock_if_closed(id, shared);
            }
            Stage::Http(_) | Stage::Lines(_) => self.end(id, shared),
            Stage::Dialing(dialing) => {
                dialing.failed(reason, shared);
                self.abort(id, shared);
            }
            Stage::Ending => {}
        }
        self.settle_deadline(id, shared);
    }

    /// Executes a back end's command on the session.
    pub fn handle_user_command(
        &mut self,
        id: ConnectionId,
        instruction: &Arc<UserCommand>,
        shared: &mut Context,
    ) {
        if !matches!(self.stage, Stage::Socket(_)) {
            // A session that is still opening can be closed; all other commands require an open session.
            if let UserAction::Disconnect { code, reason } = &instruction.action
                && instruction.client.is_none()
            {
                self.disconnect(id, *code, reason, shared);
            }
            return;
        }
        if let Stage::Socket(socket) = &mut self.stage {
            socket.handle_user_command(id, instruction, shared);
        }
        self.unblock_if_closed(id, shared);
    }

    /// Notifies the session that publications of a channel were lost and can't be recovered.
    pub fn handle_lost_history(&mut self, id: ConnectionId, channel: &str, shared: &mut Context) {
        match &mut self.stage {
            Stage::Socket(socket) => {
                socket.handle_lost_history(id, channel, shared);
                self.unblock_if_closed(id, shared);
            }
            // The session is still opening, or an application is writing an event stream. The connection is closed, so
            // that the client reconnects.
            _ => {
                let (code, reason) = CloseCode::InsufficientState.parts();
                self.disconnect(id, code, reason, shared);
            }
        }
    }

    /// Resumes the input of a blocked session if it is closing, since the input may contain the peer's Close. A
    /// session that waits for its next turn stays blocked.
    pub(super) fn unblock_if_closed(&mut self, id: ConnectionId, shared: &mut Context) {
        let is_closing = matches!(&self.stage, Stage::Socket(socket) if socket.is_closing());
        if is_closing && self.blocked.is_some_and(|block| block != WaitReason::Turn) {
            return self.apply_step(id, NextStep::Continue, shared);
        }
        self.settle_deadline(id, shared);
    }

    /// Closes a session whose outbox exceeds the limit because the client reads too slowly.
    pub fn handle_overflow(&mut self, id: ConnectionId, shared: &mut Context) {
        shared.stats.slow_consumers.add(1);
        self.record_slow_consumer(id, "closed with", shared);
        let user = shared.hub.user_of(id);
        let user = user.map_or_else(String::new, |user| format!(" (user {user:?})"));
        shared.log(
            id,
            NoteLevel::Warn,
            format!("closed with 1013: the client reads too slowly{user}"),
        );
        // Output that is already queued stays in the outbox: it is complete, within the limit, and may contain the
        // 101 response.
        let (code, reason) = CloseCode::SlowConsumer.parts();
        self.disconnect(id, code, reason, shared);
    }

    /// Records that a slow client has begun to miss droppable publications.
    pub fn log_missed_publications(&mut self, id: ConnectionId, shared: &mut Context) {
        self.record_slow_consumer(id, "misses publications, with", shared);
    }

    /// Records a slow consumer in the slow log.
    fn record_slow_consumer(&self, id: ConnectionId, what: &str, shared: &mut Context) {
        let unsent = shared.requests.outboxes.queued(id) / 1024;
        let (silent_ms, path) = match &self.stage {
            Stage::Socket(socket) => (socket.silent_ms(shared), socket.path()),
            // The session is still opening, or the client receives an event stream.
            _ => (0, "an HTTP connection"),
        };
        let what = || {
            let user = shared.hub.user_of(id).unwrap_or("a client");
            let peer = self.peer;
            format!("{user} at {peer} on {path}: {what} {unsent} KiB unsent")
        };
        let access_log = &mut shared.requests.outboxes.access_log;
        access_log.record_duration(SlowEventKind::Consumer, silent_ms, what);
    }

    /// Closes the session because its token or identity has expired.
    pub(super) fn handle_expired(&mut self, id: ConnectionId, shared: &mut Context) {
        shared.stats.tokens_expired.add(1);
        shared.log(id, NoteLevel::Info, "closed: the token has expired");
        let (code, reason) = CloseCode::Expired.parts();
        self.disconnect(id, code, reason, shared);
    }

    /// Returns whether the peer is a back end that pushes, by push lines or by a WebSocket of the API.
    #[must_use]
    pub fn is_back_end(&self) -> bool {
        match &self.stage {
            Stage::Lines(_) => true,
            Stage::Socket(socket) => socket.is_back_end(),
            Stage::Http(_) | Stage::Dialing(_) | Stage::Ending => false,
        }
    }

    /// Begins to drain the connection: a session is closed, an idle connection ends, and a current request is
    /// answered first.
    pub fn drain(&mut self, id: ConnectionId, shared: &mut Context) {
        match &mut self.stage {
            // The connection was accepted during the drain, so it ends after its response.
            Stage::Http(_) if self.is_draining => {}
            Stage::Http(http) if http.is_idle() && self.input.is_none() => self.end(id, shared),
            // An event stream would never end by itself; its client reconnects.
            Stage::Http(http) if http.is_endless() => self.end(id, shared),
            Stage::Http(_) | Stage::Ending => {}
            // Commands already received from a back end are executed and answered before the
            // connection ends.
            Stage::Lines(_) => {
                self.is_draining = true;
                self.finish_if_due(id, shared);
            }
            Stage::Dialing(_) | Stage::Socket(_) => {
                let (code, reason) = shared.shutdown_reason().close_code_and_reason();
                self.disconnect(id, code, reason, shared);
            }
        }
    }

    /// Rejects the peer: sends these bytes, which may be empty, and ends the connection.
    pub fn reject(&mut self, id: ConnectionId, words: &[u8], shared: &mut Context) {
        shared.requests.outboxes.buffer(id).extend_from_slice(words);
        self.end(id, shared);
    }

    /// Sends the remaining output, then FIN, and waits briefly for the peer's FIN.
    pub(super) fn end(&mut self, id: ConnectionId, shared: &mut Context) {
        if matches!(self.stage, Stage::Ending) {
            return;
        }
        match &mut self.stage {
            Stage::Socket(socket) => socket.closed(id, shared),
            Stage::Http(http) => http.abandon(id, shared),
            Stage::Dialing(dialing) => dialing.failed(super::ABNORMAL_CLOSURE, shared),
            Stage::Lines(_) | Stage::Ending => {}
        }
        // This is done in every stage, since a session that is still being registered already has subscriptions.
        shared.hub.close(id, &mut shared.requests);
        shared.requests.outboxes.end_entry(id, self.peer);
        shared.remove_user_session(id);
        self.stage = Stage::Ending;
        self.blocked = None;
        self.input = None;
        self.begin_close_timeout(shared);
        shared.requests.outboxes.refuse_pushes(id);
        shared.requests.outboxes.finish(id, TransportEnd::Shutdown);
    }

    /// Called when the transport has sent all output. From then on, an ending connection waits for the peer's FIN, at
    /// most for the close timeout. While bytes are unsent, only `write_timeout` applies.
    pub fn handle_all_sent(&mut self, shared: &Context) {
        if matches!(self.stage, Stage::Ending) {
            self.begin_close_timeout(shared);
        }
    }

    pub(super) fn begin_close_timeout(&mut self, shared: &Context) {
        self.deadline_ms = shared.now.mono_ms + shared.config.limits.close_timeout_ms;
    }

    pub(super) fn abort(&mut self, id: ConnectionId, shared: &mut Context) {
        self.end(id, shared);
        shared.requests.outboxes.finish(id, TransportEnd::Abort);
    }

    /// Ends a draining connection once its current work is done.
    pub(super) fn finish_if_due(&mut self, id: ConnectionId, shared: &mut Context) {
        if self.blocked.is_some() {
            return;
        }
        if self.ended {
            self.finish_after_end(id, shared);
        } else if self.is_draining
            && matches!(&self.stage, Stage::Lines(lines) if lines.is_settled())
        {
            self.end(id, shared);
        }
    }

    /// After the peer's FIN, ends the connection once all of its requests are answered.
    pub(super) fn finish_after_end(&mut self, id: ConnectionId, shared: &mut Context) {
        if let Stage::Lines(lines) = &self.stage {
            // The last line may lack its line end, as in `printf … | nc`.
            if let Some(input) = self.input.as_mut().filter(|input| !input.ends_with(b"\n")) {
                input.push(b'\n');
                self.process_buffered(id, shared);
                return self.handle_ended(id, shared);
            }
            if !lines.is_settled() {
                return;
            }
        }
        self.end(id, shared);
        // The worker closes the transport after the last byte.
        shared.requests.outboxes.finish(id, TransportEnd::Shutdown);
    }
}
