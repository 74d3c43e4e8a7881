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
    /// Closes the session with a code: the hub, the operator or a limit wants it.
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

    /// Carries out what a back end wants of the session.
    pub fn instructed(
        &mut self,
        id: ConnectionId,
        instruction: &Arc<Instruction>,
        shared: &mut Shared,
    ) {
        if !matches!(self.stage, Stage::Socket(_)) {
            // Whoever is about to open is closed as any other; the rest comes too early.
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
            // A session that is about to open, or a response that does not end.
            _ => {
                let (code, reason) = CloseCode::InsufficientState.parts();
                self.disconnect(id, code, reason, shared);
            }
        }
    }

    /// What came of something that may have closed the session: then its input waits for nothing but its turn, since the
    /// peer's Close is in it.
    pub(super) fn settle(&mut self, id: ConnectionId, shared: &mut Shared) {
        let is_closing = matches!(&self.stage, Stage::Socket(socket) if socket.is_closing());
        if is_closing && self.blocked.is_some_and(|block| block != Block::Turn) {
            return self.go_on(id, Then::GoOn, shared);
        }
        self.settle_deadline(id, shared);
    }

    /// The client does not read what it is sent: its outbox is over its budget.
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
        // What was written before stays: it is whole, it is within the budget, and the 101 may be among it.
        let (code, reason) = CloseCode::SlowConsumer.parts();
        self.disconnect(id, code, reason, shared);
    }

    /// The client does not read what it is sent, and has begun to miss what it may miss.
    pub fn fell_behind(&mut self, id: ConnectionId, shared: &mut Shared) {
        self.note_slow(id, "misses publications, with", shared);
    }

    /// Who does not keep up, for whoever wants to know.
    fn note_slow(&self, id: ConnectionId, what: &str, shared: &mut Shared) {
        let unsent = shared.ports.outboxes.queued(id) / 1024;
        let (silent_ms, path) = match &self.stage {
            Stage::Socket(socket) => (socket.silent_ms(shared), socket.path()),
            // A response that does not end.
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

    /// The token that said who the client is holds no more.
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

    /// The server goes away: sessions are closed, what is idle ends, what is under way is answered and then ends.
    pub fn drain(&mut self, id: ConnectionId, shared: &mut Shared) {
        match &mut self.stage {
            // It has come since, and ends with its answer.
            Stage::Http(_) if self.told_to_go => {}
            Stage::Http(http) if http.is_idle() && self.input.is_none() => self.end(id, shared),
            // Events would go on for ever; whoever listens connects again.
            Stage::Http(http) if http.is_endless() => self.end(id, shared),
            Stage::Http(_) | Stage::Ending => {}
            // What a back end has sent is carried out and answered first.
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

    /// The peer can't be talked with: it gets these bytes, which may be none, and then the end.
    pub fn turn_away(&mut self, id: ConnectionId, words: &[u8], shared: &mut Shared) {
        shared.ports.outboxes.buffer(id).extend_from_slice(words);
        self.end(id, shared);
    }

    /// Sends what is written, then FIN, and waits a little for the peer's.
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
        // A session that is still registering has subscriptions too.
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

    /// The transport has sent all that it was given. The time that an ending connection has for the peer's FIN begins now:
    /// as long as bytes were unsent, `write_timeout` alone limited it.
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

    /// Ends a connection that waited only for what was under way.
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

    /// After the peer's FIN all that was asked is answered; then nothing keeps the connection.
    pub(super) fn finish_after_end(&mut self, id: ConnectionId, shared: &mut Shared) {
        if let Stage::Lines(lines) = &self.stage {
            // The last line may lack its end: `printf … | nc` writes such.
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
        // The worker closes the transport when the last byte has left.
        shared.ports.outboxes.finish(id, End::Shutdown);
    }
}
