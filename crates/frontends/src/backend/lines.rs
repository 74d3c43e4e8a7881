//! Connections of push listeners: the back end sends one JSON object per line.
//!
//! A valid line is answered only if it requests an answer (`"ack":true`, or an `id`). An invalid line is always
//! answered with an error that has the line's number and the reason, and the connection stays open. Empty lines are
//! ignored.
//!
//! Two faults end the connection, and no later line is executed: a first line that is not a JSON object, and a line
//! that is too long. This is the defence against web pages, which can make a browser connect here with HTTP or TLS:
//! a page controls most of what the browser sends, but neither the first bytes nor the end of an overlong line.

use serde::de::IgnoredAny;
use veche_hub::{ConnectionId, HubReply, Ticket};

use crate::backend::command::{self, BadCommand};
use crate::backend::{AnswerShape, Backend, CommandProgress, Rejection};
use crate::context::step::{NextStep, NoNextStage, StageStep, WaitReason};
use crate::context::work_budget;
use crate::context::worker_context::Context;
use crate::outbox::ANSWERS_BYTES_HIGH;

/// The error for an invalid first line.
const NOT_OBJECT: &str =
    "expected one JSON object per line (this port does not accept HTTP): closing the connection";

/// The connection stage in which a back end sends push lines.
#[derive(Default)]
pub(crate) struct LineStage {
    backend: Backend,
    /// Number of lines received so far; the first line has the number 1.
    count: u64,
    /// Number of bytes of the incomplete line that were already searched for a line end.
    searched: usize,
    phase: Phase,
    /// When lines were last processed, in monotonic milliseconds.
    served_ms: u64,
}

/// Whether the peer has proved to be a back end.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Phase {
    /// Only empty lines were received so far.
    #[default]
    Unknown,
    /// The first line was a JSON object.
    Open,
    /// A fault was found: further input is dropped, and the connection ends after all answers.
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
            // A command leaves the queue once its answer is written, so this makes room for further commands.
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

    /// Returns the time at which lines were last processed, in monotonic milliseconds.
    pub(crate) fn served_ms(&self) -> u64 {
        self.served_ms
    }

    /// Answers the last line with the error `why`, and drops all later input.
    fn end(&mut self, why: &str, id: ConnectionId, shared: &mut Context) {
        self.refuse(None, BadCommand::new(why).into(), id, shared);
        self.phase = Phase::Over;
    }

    fn too_long(&mut self, max: usize, id: ConnectionId, shared: &mut Context) {
        let why = format!("line longer than {max} bytes: closing the connection");
        self.end(&why, id, shared);
    }

    /// Returns the step after a fault: the connection ends once the commands before the fault are answered.
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

    /// Answers the last line with an error.
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

    /// Returns whether all answers were written.
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

    /// Handles the hub's answer to a command. Returns whether input that waited for the answer may continue.
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

/// Returns whether the first line may be empty or a JSON object, judged by its first byte. Most input in other
/// protocols is thus refused before a line end arrives.
fn may_begin_object(bytes: &[u8]) -> bool {
    matches!(
        bytes.first(),
        None | Some(b'{' | b' ' | b'\t' | b'\r' | b'\n')
    )
}

/// Returns whether a line is a JSON object of any content.
fn is_object(line: &[u8]) -> bool {
    line.trim_ascii_start().starts_with(b"{") && serde_json::from_slice::<IgnoredAny>(line).is_ok()
}
