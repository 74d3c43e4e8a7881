//! How a connection ends: with a Close frame, after what is under way, or at once.

use std::sync::Arc;

use veche_hub::{ConnectionId, Deed, Instruction};
use veche_types::codes::CloseCode;

use super::{Connection, Stage};
use crate::context::note::NoteLevel;
use crate::context::shared::Shared;
use crate::context::step::{Block, Then};
use crate::outbox::End;
use crate::outbox::journal::SlowKind;

impl Connection {
    /// Closes the session with a code, for the hub, the operator or a limit.
    pub fn disconnect(&mut self, id: ConnectionId, code: u16, reason: &str, shared: &mut Shared) {
        match &mut self.stage {
            Stage::Socket(socket) => {
                socket.close(id, code, reason, shared);
                return self.settle(id, shared);
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
    pub fn instructed(
        &mut self,
        id: ConnectionId,
        instruction: &Arc<Instruction>,
        shared: &mut Shared,
    ) {
        if !matches!(self.stage, Stage::Socket(_)) {
            // A session that is still opening can be closed; other commands come too early.
            if let Deed::Disconnect { code, reason } = &instruction.deed
                && instruction.client.is_none()
            {
                self.disconnect(id, *code, reason, shared);
            }
            return;
        }
        if let Stage::Socket(socket) = &mut self.stage {
            socket.instructed(id, instruction, shared);
        }
        self.settle(id, shared);
    }

    /// Tells the session that publications of a channel were lost and can't be recovered.
    pub fn lost(&mut self, id: ConnectionId, channel: &str, shared: &mut Shared) {
        match &mut self.stage {
            Stage::Socket(socket) => {
                socket.lost(id, channel, shared);
                self.settle(id, shared);
            }
            // A session that is still opening, or an endless response.
            _ => {
                let (code, reason) = CloseCode::InsufficientState.parts();
                self.disconnect(id, code, reason, shared);
            }
        }
    }

    /// Unblocks a session that may have been closed: its input then only waits for its turn, since the peer's Close is
    /// part of it.
    pub(super) fn settle(&mut self, id: ConnectionId, shared: &mut Shared) {
        let is_closing = matches!(&self.stage, Stage::Socket(socket) if socket.is_closing());
        if is_closing && self.blocked.is_some_and(|block| block != Block::Turn) {
            return self.go_on(id, Then::GoOn, shared);
        }
        self.settle_deadline(id, shared);
    }

    /// Closes a client that reads too slowly: its outbox exceeds its limit.
    pub fn overflowed(&mut self, id: ConnectionId, shared: &mut Shared) {
        shared.stats.slow_consumers.add(1);
        self.note_slow(id, "closed with", shared);
        let user = shared.hub.user_of(id);
        let user = user.map_or_else(String::new, |user| format!(" (user {user:?})"));
        shared.note(
            id,
            NoteLevel::Warn,
            format!("closed with 1013: the client reads too slowly{user}"),
        );
        // Earlier output stays: it is complete, within the limit, and may contain the 101.
        let (code, reason) = CloseCode::SlowConsumer.parts();
        self.disconnect(id, code, reason, shared);
    }

    /// Logs a slow client that has begun to miss droppable publications.
    pub fn fell_behind(&mut self, id: ConnectionId, shared: &mut Shared) {
        self.note_slow(id, "misses publications, with", shared);
    }

    /// Records a slow consumer in the slow log.
    fn note_slow(&self, id: ConnectionId, what: &str, shared: &mut Shared) {
        let unsent = shared.ports.outboxes.queued(id) / 1024;
        let (silent_ms, path) = match &self.stage {
            Stage::Socket(socket) => (socket.silent_ms(shared), socket.path()),
            // An endless response.
            _ => (0, "HTTP"),
        };
        let what = || {
            let user = shared.hub.user_of(id).unwrap_or("a client");
            let peer = self.peer;
            format!("{user} at {peer} on {path}: {what} {unsent} KiB unsent")
        };
        let journal = &mut shared.ports.outboxes.journal;
        journal.took(SlowKind::Consumer, silent_ms, what);
    }

    /// Closes the session: the token or identity has expired.
    pub(super) fn expired(&mut self, id: ConnectionId, shared: &mut Shared) {
        shared.stats.tokens_expired.add(1);
        shared.note(id, NoteLevel::Info, "closed: the token has expired");
        let (code, reason) = CloseCode::Expired.parts();
        self.disconnect(id, code, reason, shared);
    }

    /// Returns whether it is a back end that pushes: lines, or a WebSocket of the API.
    #[must_use]
    pub fn is_back_end(&self) -> bool {
        match &self.stage {
            Stage::Lines(_) => true,
            Stage::Socket(socket) => socket.is_back_end(),
            Stage::Http(_) | Stage::Dialing(_) | Stage::Ending => false,
        }
    }

    /// Begins to drain: sessions are closed, idle connections end, and current requests are answered first.
    pub fn drain(&mut self, id: ConnectionId, shared: &mut Shared) {
        match &mut self.stage {
            // Accepted during the drain: it ends after its response.
            Stage::Http(_) if self.told_to_go => {}
            Stage::Http(http) if http.is_idle() && self.input.is_none() => self.end(id, shared),
            // An event stream would never end; its client reconnects.
            Stage::Http(http) if http.is_endless() => self.end(id, shared),
            Stage::Http(_) | Stage::Ending => {}
            // Commands already received from a back end are executed and answered first.
            Stage::Lines(_) => {
                self.told_to_go = true;
                self.finish_if_due(id, shared);
            }
            Stage::Dialing(_) | Stage::Socket(_) => {
                let (code, reason) = shared.parting().words();
                self.disconnect(id, code, reason, shared);
            }
        }
    }

    /// Rejects the peer: sends these bytes, which may be empty, and ends the connection.
    pub fn turn_away(&mut self, id: ConnectionId, words: &[u8], shared: &mut Shared) {
        shared.ports.outboxes.buffer(id).extend_from_slice(words);
        self.end(id, shared);
    }

    /// Sends the remaining output, then FIN, and waits briefly for the peer's FIN.
    pub(super) fn end(&mut self, id: ConnectionId, shared: &mut Shared) {
        if matches!(self.stage, Stage::Ending) {
            return;
        }
        match &mut self.stage {
            Stage::Socket(socket) => socket.closed(id, shared),
            Stage::Http(http) => http.abandon(id, shared),
            Stage::Dialing(dialing) => dialing.failed(super::CUT_OFF, shared),
            Stage::Lines(_) | Stage::Ending => {}
        }
        // A session that is still registering has subscriptions as well.
        shared.hub.close(id, &mut shared.ports);
        shared.ports.outboxes.end_entry(id, self.peer);
        shared.count_user_out(id);
        self.stage = Stage::Ending;
        self.blocked = None;
        self.input = None;
        self.begin_close_timeout(shared);
        shared.ports.outboxes.refuse_pushes(id);
        shared.ports.outboxes.finish(id, End::Shutdown);
    }

    /// Handles that the transport has sent all its output. An ending connection now waits for the peer's FIN for a
    /// limited time; while bytes were unsent, only `write_timeout` applied.
    pub fn all_sent(&mut self, shared: &Shared) {
        if matches!(self.stage, Stage::Ending) {
            self.begin_close_timeout(shared);
        }
    }

    pub(super) fn begin_close_timeout(&mut self, shared: &Shared) {
        self.deadline_ms = shared.now.mono_ms + shared.site.limits.close_timeout_ms;
    }

    pub(super) fn abort(&mut self, id: ConnectionId, shared: &mut Shared) {
        self.end(id, shared);
        shared.ports.outboxes.finish(id, End::Abort);
    }

    /// Ends a connection that only waited for its current work.
    pub(super) fn finish_if_due(&mut self, id: ConnectionId, shared: &mut Shared) {
        if self.blocked.is_some() {
            return;
        }
        if self.ended {
            self.finish_after_end(id, shared);
        } else if self.told_to_go
            && matches!(&self.stage, Stage::Lines(lines) if lines.is_settled())
        {
            self.end(id, shared);
        }
    }

    /// After the peer's FIN, ends the connection once everything it requested was answered.
    pub(super) fn finish_after_end(&mut self, id: ConnectionId, shared: &mut Shared) {
        if let Stage::Lines(lines) = &self.stage {
            // The last line may lack its terminator, as in `printf … | nc`.
            if let Some(input) = self.input.as_mut().filter(|input| !input.ends_with(b"\n")) {
                input.push(b'\n');
                self.work_on_input(id, shared);
                return self.ended(id, shared);
            }
            if !lines.is_settled() {
                return;
            }
        }
        self.end(id, shared);
        // The worker closes the transport after the last byte.
        shared.ports.outboxes.finish(id, End::Shutdown);
    }
}
