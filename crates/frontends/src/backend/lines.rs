//! A push listener's connection: one JSON object a line, from the back end.
//!
//! A good line is answered only when it asks for it (`"ack":true`, or an `id`); a bad one always, by one line that
//! says which and why, and the connection stays open. An empty line means nothing.
//!
//! Two faults end the connection, and nothing after them is carried out: a first line that is no JSON object, and a
//! line that is too long. A web page can make a browser connect here, in HTTP or in TLS, and choose most of what it
//! sends, but neither the first bytes nor where a line that is too long ends.

use serde::de::IgnoredAny;
use veche_hub::{ConnectionId, HubReply, Ticket};

use crate::backend::command::{self, BadCommand};
use crate::backend::{AnswerShape, Backend, CommandProgress, Rejection};
use crate::context::step::{NextStep, NoNextStage, StageStep, WaitReason};
use crate::context::work_budget;
use crate::context::worker_context::Context;
use crate::outbox::ANSWERS_BYTES_HIGH;

/// Said of a first line.
const NOT_OBJECT: &str =
    "expected a JSON object: this port takes one a line, and no HTTP; the connection ends";

/// The stage's state.
#[derive(Default)]
pub(crate) struct LineStage {
    backend: Backend,
    /// Lines taken so far; the first is line 1.
    count: u64,
    /// Bytes of the unfinished line that were searched for its end.
    searched: usize,
    phase: Phase,
    /// When lines were last worked on, in monotonic milliseconds.
    served_ms: u64,
}

/// How far the peer is believed to be a back end.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Phase {
    /// It has sent nothing but empty lines.
    #[default]
    Unknown,
    /// Its first line was a JSON object.
    Open,
    /// What comes is dropped; once all answers are written, the connection ends.
    Over,
}

impl LineStage {
    pub(crate) fn step(
        &mut self,
        id: ConnectionId,
        input: &mut [u8],
        shared: &mut Context,
    ) -> StageStep<NoNextStage> {
        self.served_ms = shared.now.mono_ms;
        let mut taken = 0;
        let mut then = loop {
            let rest = &input[taken..];
            if self.phase == Phase::Unknown && !may_begin_object(rest) {
                self.count += 1;
                self.end(NOT_OBJECT, id, shared);
                break NextStep::End;
            }
            let searched = self.searched.min(rest.len());
            let Some(end) = memchr::memchr(b'\n', &rest[searched..]) else {
                self.searched = rest.len();
                let max = shared.config.limits.line_bytes_max;
                if rest.strip_suffix(b"\r").unwrap_or(rest).len() <= max {
                    break NextStep::NeedInput;
                }
                self.count += 1;
                self.too_long(max, id, shared);
                break NextStep::End;
            };
            let length = searched + end;
            if self.backend.is_full() {
                self.searched = length;
                break NextStep::Wait(WaitReason::Answer);
            }
            self.searched = 0;
            let progress = self.line(id, &rest[..length], shared);
            taken += length + 1;
            // Not only at the end: what is written counts as queued, and makes room for further questions.
            self.write_answers(id, shared);
            if self.phase == Phase::Over {
                break NextStep::End;
            }
            if progress == CommandProgress::Unfinished {
                break NextStep::Wait(WaitReason::Credit);
            }
            if shared.requests.outboxes.of(id).queued() > ANSWERS_BYTES_HIGH {
                break NextStep::Wait(WaitReason::Output);
            }
            if taken == input.len() {
                break NextStep::NeedInput;
            }
            shared.work.charge(work_budget::INPUT + length as u64);
            if shared.work.is_spent() {
                break NextStep::Wait(WaitReason::Turn);
            }
        };
        self.write_answers(id, shared);
        if self.phase == Phase::Over {
            (taken, then) = (input.len(), self.ending());
        }
        StageStep {
            consumed: taken,
            then,
        }
    }

    /// Returns when lines were last worked on, in monotonic milliseconds.
    pub(crate) fn served_ms(&self) -> u64 {
        self.served_ms
    }

    /// Refuses the line that was taken last, and all that comes after it.
    fn end(&mut self, why: &str, id: ConnectionId, shared: &mut Context) {
        self.refuse(None, BadCommand::new(why).into(), id, shared);
        self.phase = Phase::Over;
    }

    fn too_long(&mut self, max: usize, id: ConnectionId, shared: &mut Context) {
        let why = format!("longer than {max} bytes: the connection ends");
        self.end(&why, id, shared);
    }

    /// What was asked before the fault is answered before the end.
    fn ending(&self) -> NextStep<NoNextStage> {
        match self.backend.is_settled() {
            true => NextStep::End,
            false => NextStep::Wait(WaitReason::Answer),
        }
    }

    fn line(&mut self, id: ConnectionId, line: &[u8], shared: &mut Context) -> CommandProgress {
        self.count += 1;
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            return CommandProgress::Done;
        }
        let max = shared.config.limits.line_bytes_max;
        if line.len() > max {
            self.too_long(max, id, shared);
            return CommandProgress::Done;
        }
        let mut scratch = std::mem::take(&mut shared.scratch.payload);
        let parsed = command::parse(line, &mut scratch);
        shared.scratch.payload = scratch;
        if self.phase == Phase::Unknown {
            if parsed.is_err() && !is_object(line) {
                self.end(NOT_OBJECT, id, shared);
                return CommandProgress::Done;
            }
            self.phase = Phase::Open;
        }
        let (command_id, result) = match parsed {
            Err(error) => (None, Err(error.into())),
            Ok(command) => {
                let answered = command.ack || command.id.is_some();
                (
                    command.id,
                    self.backend
                        .publish(&command, AnswerShape::Sum, answered, id, shared),
                )
            }
        };
        result.unwrap_or_else(|why| {
            self.refuse(command_id, why, id, shared);
            CommandProgress::Done
        })
    }

    /// Answers the line that was taken last.
    fn refuse(
        &mut self,
        command_id: Option<&str>,
        why: Rejection,
        id: ConnectionId,
        shared: &mut Context,
    ) {
        let place = format!("line {}: ", self.count);
        self.backend.refuse(command_id, why, &place, id, shared);
    }

    /// Whether nothing is owed to the back end any more.
    pub(crate) fn is_settled(&self) -> bool {
        self.backend.is_settled()
    }

    pub(crate) fn resume(
        &mut self,
        id: ConnectionId,
        shared: &mut Context,
    ) -> NextStep<NoNextStage> {
        if !self.backend.resume(id, shared) {
            return NextStep::Wait(WaitReason::Credit);
        }
        self.write_answers(id, shared);
        match self.phase {
            Phase::Over => self.ending(),
            Phase::Unknown | Phase::Open => NextStep::Continue,
        }
    }

    /// Returns whether input that waited for an answer may go on.
    pub(crate) fn answered(
        &mut self,
        id: ConnectionId,
        ticket: Ticket,
        answer: HubReply,
        shared: &mut Context,
    ) -> bool {
        self.backend.answered(ticket, answer);
        self.write_answers(id, shared)
    }

    fn write_answers(&mut self, id: ConnectionId, shared: &mut Context) -> bool {
        let mut wrote = false;
        if self.backend.is_settled() {
            return wrote;
        }
        let out = shared.requests.outboxes.buffer(id);
        while self.backend.write_answer(out, "result") {
            out.push(b'\n');
            wrote = true;
        }
        wrote
    }
}

/// Whether what has come of the first line may become a JSON object, or an empty line, by its first byte. Most of what
/// is neither is known by that, and not held until a line's end comes.
fn may_begin_object(bytes: &[u8]) -> bool {
    matches!(
        bytes.first(),
        None | Some(b'{' | b' ' | b'\t' | b'\r' | b'\n')
    )
}

/// Whether a line is a JSON object, of whatever content.
fn is_object(line: &[u8]) -> bool {
    line.trim_ascii_start().starts_with(b"{") && serde_json::from_slice::<IgnoredAny>(line).is_ok()
}
