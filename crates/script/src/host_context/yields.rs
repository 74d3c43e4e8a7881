//! Coroutines that let others run (`veche.sleep(0)`): they go on in the next turn, behind all others that can.

use std::collections::VecDeque;

use veche_runtime::Token;

/// All of them, in order.
#[derive(Debug, Default)]
pub(crate) struct YieldedCoroutines {
    /// Those of earlier turns.
    ready: VecDeque<Token>,
    /// Those of the current turn, each with its place among them.
    behind: Vec<(u64, Token)>,
}

impl YieldedCoroutines {
    pub(crate) fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.behind.is_empty()
    }

    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Adds one. `tie` is its place among those of the same turn.
    pub(crate) fn push(&mut self, tie: u64, token: Token) {
        self.behind.push((tie, token));
    }

    /// Takes the next one of an earlier turn.
    pub(crate) fn take(&mut self) -> Option<Token> {
        self.ready.pop_front()
    }

    /// The turn is over: those of it can go on in the next one.
    pub(crate) fn end_turn(&mut self) {
        if !self.behind.is_empty() {
            self.behind.sort_by_key(|(tie, _)| *tie);
            let tokens = self.behind.drain(..).map(|(_, token)| token);
            self.ready.extend(tokens);
        }
    }
}
