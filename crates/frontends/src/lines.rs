//! A push listener's connection: one JSON object a line, from the back end.
//!
//! A good line is answered only when it asks for it (`"ack":true`, or an `id`); a bad one always, by one line that
//! says which and why, and the connection stays open. An empty line means nothing; a line of HTTP ends it.

use veche_hub::{Answer, SessionId, Ticket};

use crate::backend::{Backend, Progress, Shape, Unwilling};
use crate::command::{self, BadCommand};
use crate::outbox::ANSWERS_BYTES_HIGH;
use crate::shared::Shared;
use crate::step::{Block, Never, Step, Then};

/// The stage's state.
#[derive(Default)]
pub(crate) struct Lines {
    backend: Backend,
    /// Lines taken so far; the first is line 1.
    count: u64,
    /// Bytes of the unfinished line that were searched for its end.
    searched: usize,
    /// The line that comes is too long and was refused: what is left of it is dropped.
    skipping: bool,
}

impl Lines {
    pub(crate) fn step(
        &mut self,
        id: SessionId,
        input: &mut [u8],
        shared: &mut Shared,
    ) -> Step<Never> {
        let mut taken = 0;
        let then = loop {
            let rest = &input[taken..];
            let searched = self.searched.min(rest.len());
            let Some(end) = memchr::memchr(b'\n', &rest[searched..]) else {
                taken += self.unfinished(id, rest, shared);
                break Then::NeedInput;
            };
            let length = searched + end;
            if self.backend.is_full() {
                self.searched = length;
                break Then::Wait(Block::Answer);
            }
            self.searched = 0;
            if is_http(&rest[..length]) {
                self.count += 1;
                let why = BadCommand("this port takes JSON, one object a line, and no HTTP".into());
                self.refuse(None, why.into(), id, shared);
                taken = input.len();
                break Then::End;
            }
            let progress = match std::mem::take(&mut self.skipping) {
                true => Progress::Done,
                false => self.line(id, &rest[..length], shared),
            };
            taken += length + 1;
            // Not only at the end: what is written counts as queued, and makes room for further questions.
            self.write_answers(id, shared);
            if progress == Progress::Unfinished {
                break Then::Wait(Block::Credit);
            }
            if shared.ports.outboxes.of(id).queued() > ANSWERS_BYTES_HIGH {
                break Then::Wait(Block::Output);
            }
            if taken == input.len() {
                break Then::NeedInput;
            }
        };
        self.write_answers(id, shared);
        Step { taken, then }
    }

    /// The beginning of a line, whose end has not come: kept, unless it is too long already. Returns the bytes taken.
    fn unfinished(&mut self, id: SessionId, rest: &[u8], shared: &mut Shared) -> usize {
        let max = shared.site.limits.line_bytes_max;
        if !self.skipping && rest.strip_suffix(b"\r").unwrap_or(rest).len() > max {
            self.count += 1;
            self.too_long(id, max, shared);
            self.skipping = true;
        }
        if self.skipping {
            self.searched = 0;
            return rest.len();
        }
        self.searched = rest.len();
        0
    }

    fn too_long(&mut self, id: SessionId, max: usize, shared: &mut Shared) {
        let why = BadCommand(format!("longer than {max} bytes"));
        self.refuse(None, why.into(), id, shared);
    }

    fn line(&mut self, id: SessionId, line: &[u8], shared: &mut Shared) -> Progress {
        self.count += 1;
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            return Progress::Done;
        }
        let max = shared.site.limits.line_bytes_max;
        if line.len() > max {
            self.too_long(id, max, shared);
            return Progress::Done;
        }
        let mut scratch = std::mem::take(&mut shared.scratch.payload);
        let parsed = command::parse(line, &mut scratch);
        shared.scratch.payload = scratch;
        let (command_id, result) = match parsed {
            Err(error) => (None, Err(error.into())),
            Ok(command) => {
                let answered = command.ack || command.id.is_some();
                (
                    command.id,
                    self.backend
                        .publish(&command, Shape::Sum, answered, id, shared),
                )
            }
        };
        result.unwrap_or_else(|why| {
            self.refuse(command_id, why, id, shared);
            Progress::Done
        })
    }

    /// Answers the line that was taken last.
    fn refuse(
        &mut self,
        command_id: Option<&str>,
        why: Unwilling,
        id: SessionId,
        shared: &mut Shared,
    ) {
        let place = format!("line {}: ", self.count);
        self.backend.refuse(command_id, why, &place, id, shared);
    }

    /// Whether nothing is owed to the back end any more.
    pub(crate) fn is_settled(&self) -> bool {
        self.backend.is_settled()
    }

    pub(crate) fn resume(&mut self, id: SessionId, shared: &mut Shared) -> Then<Never> {
        if !self.backend.resume(id, shared) {
            return Then::Wait(Block::Credit);
        }
        self.write_answers(id, shared);
        Then::GoOn
    }

    /// Returns whether input that waited for an answer may go on.
    pub(crate) fn answered(
        &mut self,
        id: SessionId,
        ticket: Ticket,
        answer: Answer,
        shared: &mut Shared,
    ) -> bool {
        self.backend.answered(ticket, answer);
        self.write_answers(id, shared)
    }

    fn write_answers(&mut self, id: SessionId, shared: &mut Shared) -> bool {
        let mut wrote = false;
        if self.backend.is_settled() {
            return wrote;
        }
        let out = shared.ports.outboxes.buffer(id);
        while self.backend.write_answer(out, "result") {
            out.push(b'\n');
            wrote = true;
        }
        wrote
    }
}

/// Whether a line is a request's first: a page can make a browser send one, with commands for its body.
fn is_http(line: &[u8]) -> bool {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    !line.starts_with(b"{")
        && [&b" HTTP/1.0"[..], b" HTTP/1.1"]
            .iter()
            .any(|end| line.ends_with(end))
}
