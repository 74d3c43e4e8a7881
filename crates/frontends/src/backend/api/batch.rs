//! Several commands in one call, executed in order with a combined response: a batch, or Centrifugo's legacy commands.
//!
//! Consecutive publications do not wait for each other, since their order is preserved anyway. Any other command starts
//! only after all earlier commands are answered, and later commands wait for its answer.

use std::collections::VecDeque;

use veche_hub::ConnectionId;

use super::ApiMethod;
use super::answers::ApiAnswerBody;
use crate::backend::command::{self, BadCommand, BatchCommand};
use crate::backend::{Backend, CommandProgress};
use crate::context::step::WaitReason;
use crate::context::worker_context::Context;

/// Maximum number of commands with potentially large answers (history, presence, connections) in one batch.
const LARGE_MAX: usize = 32;

/// A batch of commands in one API call.
pub(super) struct ApiBatch {
    waiting: VecDeque<(ApiMethod, BatchCommand)>,
    /// Methods of the started commands whose answers are not written yet, in order.
    methods: VecDeque<ApiMethod>,
    /// Whether the next command waits until the last started one is answered.
    is_barrier: bool,
    are_lines: bool,
}

impl ApiBatch {
    /// Parses the body of a batch, or of [`ApiMethod::Lines`].
    pub(super) fn parse(body: &[u8], are_lines: bool) -> Result<Self, BadCommand> {
        let commands = match are_lines {
            true => command::parse_lines(body),
            false => command::parse_batch(body),
        };
        let commands = commands?;
        let named = |command: BatchCommand| match ApiMethod::of(&command.method) {
            // Batches can't be nested: these two are answered as unknown methods.
            ApiMethod::Batch | ApiMethod::Lines => (ApiMethod::Unknown(None), command),
            method => (method, command),
        };
        let waiting: VecDeque<_> = commands.into_iter().map(named).collect();
        let count = |is_one: fn(ApiMethod) -> bool| {
            let methods = waiting.iter().map(|(method, _)| *method);
            methods.filter(|method| is_one(*method)).count()
        };
        // A `channels` command visits all channels of the server, so a batch may contain only one.
        if count(|method| method == ApiMethod::Channels) > 1 {
            return Err(BadCommand::new(
                "a batch may contain only one channels command",
            ));
        }
        let is_large = |method| {
            use ApiMethod::{Connections, History, Presence};
            matches!(method, History | Presence | Connections)
        };
        if count(is_large) > LARGE_MAX {
            return Err(BadCommand::new(format!(
                "a batch may contain at most {LARGE_MAX} history, presence and connections commands"
            )));
        }
        Ok(Self {
            waiting,
            methods: VecDeque::new(),
            is_barrier: false,
            are_lines,
        })
    }

    /// Starts commands until one has to wait, and returns what it waits for; `None` if all are started.
    pub(super) fn advance(
        &mut self,
        backend: &mut Backend,
        id: ConnectionId,
        shared: &mut Context,
    ) -> Option<WaitReason> {
        while let Some((method, command)) = self.waiting.pop_front() {
            if (self.is_barrier || !method.publishes()) && !backend.is_answered() {
                self.waiting.push_front((method, command));
                return Some(WaitReason::Answer);
            }
            self.is_barrier = !method.publishes();
            self.methods.push_back(method);
            let body = command.body.get().as_bytes();
            let result = method.execute(body, backend, id, shared);
            let progress = result.unwrap_or_else(|why| {
                backend.refuse(None, why, "", id, shared);
                CommandProgress::Done
            });
            if let Some(id) = &command.id {
                backend.set_last_id(id);
            }
            if progress == CommandProgress::Unfinished {
                return Some(WaitReason::Credit);
            }
        }
        None
    }

    /// Returns the body of the response once all commands are answered.
    pub(super) fn answers(&mut self, backend: &mut Backend) -> Option<ApiAnswerBody> {
        let exchanges = backend.take_answers()?;
        let names = self.methods.drain(..).map(ApiMethod::name);
        debug_assert_eq!(
            exchanges.len(),
            names.len(),
            "every command of a batch must have a reply"
        );
        if self.are_lines {
            return Some(ApiAnswerBody::lines(exchanges));
        }
        Some(ApiAnswerBody::batch(
            exchanges.into_iter().zip(names).collect(),
        ))
    }
}
