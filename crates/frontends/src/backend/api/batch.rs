//! Several commands in one call, executed in order with a combined response: a batch, or Centrifugo's legacy commands.
//!
//! Consecutive publications do not wait for each other, since their order is preserved anyway. Any other command begins
//! when all earlier ones are answered, and later ones wait for its answer.

use std::collections::VecDeque;

use veche_hub::ConnectionId;

use super::answers::Answers;
use super::method::Method;
use crate::backend::command::{self, BadCommand, Numbered};
use crate::backend::{Backend, Progress};
use crate::context::shared::Shared;
use crate::context::step::Block;

/// Maximum number of commands per batch with possibly large answers.
const LARGE_MAX: usize = 32;

/// A batch of commands.
pub(super) struct Batch {
    waiting: VecDeque<(Method, Numbered)>,
    /// Methods of commands with unwritten answers, in order.
    methods: VecDeque<Method>,
    /// Commands wait for the answer to the last one that was begun.
    is_barrier: bool,
    are_lines: bool,
}

impl Batch {
    /// Parses the body of a batch, or of [`Method::Lines`].
    pub(super) fn parse(body: &[u8], are_lines: bool) -> Result<Self, BadCommand> {
        let commands = match are_lines {
            true => command::parse_lines(body),
            false => command::parse_batch(body),
        };
        let commands = commands?;
        let named = |command: Numbered| match Method::of(&command.method) {
            // Answered as unknown methods.
            Method::Batch | Method::Lines => (Method::Unknown(None), command),
            method => (method, command),
        };
        let waiting: VecDeque<_> = commands.into_iter().map(named).collect();
        let count = |is_one: fn(Method) -> bool| {
            let methods = waiting.iter().map(|(method, _)| *method);
            methods.filter(|method| is_one(*method)).count()
        };
        // Each visits all channels.
        if count(|method| method == Method::Channels) > 1 {
            return Err(BadCommand::new(
                "a batch may contain only one channels command",
            ));
        }
        let is_large = |method| {
            use Method::{Connections, History, Presence};
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

    /// Continues until a command has to wait, and returns for what.
    pub(super) fn advance(
        &mut self,
        backend: &mut Backend,
        id: ConnectionId,
        shared: &mut Shared,
    ) -> Option<Block> {
        while let Some((method, command)) = self.waiting.pop_front() {
            if (self.is_barrier || !method.publishes()) && !backend.is_answered() {
                self.waiting.push_front((method, command));
                return Some(Block::Answer);
            }
            self.is_barrier = !method.publishes();
            self.methods.push_back(method);
            let body = command.body.get().as_bytes();
            let result = method.carry_out(body, backend, id, shared);
            let progress = result.unwrap_or_else(|why| {
                backend.refuse(None, why, "", id, shared);
                Progress::Done
            });
            if let Some(id) = &command.id {
                backend.name_last(id);
            }
            if progress == Progress::Unfinished {
                return Some(Block::Credit);
            }
        }
        None
    }

    /// Returns the body of the response once all commands are answered.
    pub(super) fn answers(&mut self, backend: &mut Backend) -> Option<Answers> {
        let exchanges = backend.take_answers()?;
        let names = self.methods.drain(..).map(Method::name);
        debug_assert_eq!(exchanges.len(), names.len(), "each command is answered");
        if self.are_lines {
            return Some(Answers::lines(exchanges));
        }
        Some(Answers::batch(exchanges.into_iter().zip(names).collect()))
    }
}
