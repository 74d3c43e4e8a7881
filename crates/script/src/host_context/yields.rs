//! Coroutines that yield (`veche.sleep(0)`): they are resumed in the next turn, after all other runnable coroutines.

use std::collections::VecDeque;

use veche_runtime::Token;

/// The yielded coroutines, in the order in which they are resumed.
#[derive(Debug, Default)]
pub(crate) struct YieldedCoroutines {
    /// Coroutines that yielded in earlier turns, so they can be resumed.
    ready: VecDeque<Token>,
    /// Coroutines that yielded in the current turn, with their tie-breakers.
    behind: Vec<(u64, Token)>,
}

impl YieldedCoroutines {
    pub(crate) fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.behind.is_empty()
    }

    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Adds a coroutine. `tie` orders the coroutines of the same turn.
    pub(crate) fn push(&mut self, tie: u64, token: Token) {
        self.behind.push((tie, token));
    }

    /// Takes the next coroutine of an earlier turn.
    pub(crate) fn take(&mut self) -> Option<Token> {
        self.ready.pop_front()
    }

    /// Ends the turn. The coroutines that yielded in this turn can be resumed in the next turn.
    pub(crate) fn end_turn(&mut self) {
        if !self.behind.is_empty() {
            self.behind.sort_by_key(|(tie, _)| *tie);
            let tokens = self.behind.drain(..).map(|(_, token)| token);
            self.ready.extend(tokens);
        }
    }
}
