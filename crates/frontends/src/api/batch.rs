//! Several methods in one call, carried out one after the other, and their answers in one.
//!
//! Publications that follow each other are not waited for, since their order is kept anyway. Any other command begins when
//! those before it are answered, and those behind it wait for its answer.

use std::collections::VecDeque;

use serde_json::value::RawValue;
use veche_hub::ConnectionId;

use super::answers::Answers;
use super::method::Method;
use crate::backend::{Backend, Progress};
use crate::command::{self, BadCommand};
use crate::shared::Shared;
use crate::step::Block;

/// Most commands of a batch whose answers may be large.
const LARGE_MAX: usize = 32;

/// See the module's text.
pub(super) struct Batch {
    waiting: VecDeque<(Method, Box<RawValue>)>,
    /// Of those whose answers are not written, in order.
    methods: VecDeque<Method>,
    /// The last one that was begun holds back those behind it.
    is_barrier: bool,
}

impl Batch {
    pub(super) fn parse(body: &[u8]) -> Result<Self, BadCommand> {
        let commands = command::parse_batch(body)?;
        let named = |(name, body): (String, Box<RawValue>)| match Method::of(&name) {
            // Answered as what is not known.
            Method::Batch => (Method::Unknown(None), body),
            method => (method, body),
        };
        let waiting: VecDeque<_> = commands.into_iter().map(named).collect();
        let count = |is_one: fn(Method) -> bool| {
            let methods = waiting.iter().map(|(method, _)| *method);
            methods.filter(|method| is_one(*method)).count()
        };
        // Each takes a look at all channels there are.
        if count(|method| method == Method::Channels) > 1 {
            return Err(BadCommand("a batch asks for channels once".to_owned()));
        }
        let is_large = |method| {
            use Method::{Connections, History, Presence};
            matches!(method, History | Presence | Connections)
        };
        if count(is_large) > LARGE_MAX {
            return Err(BadCommand(format!(
                "a batch asks for history, presence and connections at most {LARGE_MAX} times"
            )));
        }
        Ok(Self {
            waiting,
            methods: VecDeque::new(),
            is_barrier: false,
        })
    }

    /// Goes on until one of them has to wait, and returns for what.
    pub(super) fn advance(
        &mut self,
        backend: &mut Backend,
        id: ConnectionId,
        shared: &mut Shared,
    ) -> Option<Block> {
        while let Some((method, body)) = self.waiting.pop_front() {
            if (self.is_barrier || !method.publishes()) && !backend.is_answered() {
                self.waiting.push_front((method, body));
                return Some(Block::Answer);
            }
            self.is_barrier = !method.publishes();
            self.methods.push_back(method);
            let result = method.carry_out(body.get().as_bytes(), backend, id, shared);
            let progress = result.unwrap_or_else(|why| {
                backend.refuse(None, why, "", id, shared);
                Progress::Done
            });
            if progress == Progress::Unfinished {
                return Some(Block::Credit);
            }
        }
        None
    }

    /// The body of the answer, once all of them are answered.
    pub(super) fn answers(&mut self, backend: &mut Backend) -> Option<Answers> {
        let exchanges = backend.take_answers()?;
        let names = self.methods.drain(..).map(Method::name);
        debug_assert_eq!(exchanges.len(), names.len(), "each command is answered");
        Some(Answers::batch(exchanges.into_iter().zip(names).collect()))
    }
}
