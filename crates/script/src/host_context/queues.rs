//! Waits at queues, which other threads end: what this worker's VMs of one application wait for there.
//!
//! A [`Notifier`] is rung by number; whoever looks at it here lets the coroutine go on, in whichever VM it waits.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use veche_store::{Notifier, Queue, WaitSide, Waiter};

use veche_runtime::Token;

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct QueueWaits {
    bell: Arc<Notifier>,
    waits: RefCell<HashMap<Token, Wait>>,
    /// Rung for, and not taken by their VM yet.
    rung: RefCell<Vec<Token>>,
}

#[derive(Debug)]
struct Wait {
    queue: Arc<Queue>,
    side: WaitSide,
    /// It was rung for and has not gone on yet.
    is_rung: bool,
}

impl QueueWaits {
    /// See [`Notifier::set_wake`].
    pub(crate) fn set_wake(&self, wake: impl Fn() + Send + Sync + 'static) {
        self.bell.set_wake(wake);
    }

    /// Who is to be rung for at a queue with that token.
    pub(crate) fn waiter(&self, token: Token) -> Waiter {
        Waiter {
            number: token.0,
            notifier: Arc::clone(&self.bell),
        }
    }

    /// A coroutine waits with that token.
    pub(crate) fn begin(&self, token: Token, queue: Arc<Queue>, side: WaitSide) {
        let is_rung = false;
        let wait = Wait {
            queue,
            side,
            is_rung,
        };
        self.waits.borrow_mut().insert(token, wait);
    }

    /// It waits no longer; whether it `comes` for what it has waited for. Otherwise somebody else may.
    pub(crate) fn end(&self, token: Token, comes: bool) {
        let wait = self.waits.borrow_mut().remove(&token);
        if let Some(wait) = wait
            && !(comes && wait.is_rung)
        {
            wait.queue.cancel_wait(wait.side, token.0, &self.bell);
        }
    }

    /// Those of whom the VM that asks knows that they wait: they will not go on.
    pub(crate) fn end_all(&self, is_waiting: impl Fn(Token) -> bool) {
        let tokens: Vec<Token> = self.waits.borrow().keys().copied().collect();
        for token in tokens.into_iter().filter(|token| is_waiting(*token)) {
            self.end(token, false);
        }
    }

    /// Whether somebody may go on.
    pub(crate) fn has_signals(&self) -> bool {
        self.bell.has_notified()
    }

    /// Those who may go on and wait where `is_waiting` says so; the others are for another VM.
    pub(crate) fn take_signals(&self, is_waiting: impl Fn(Token) -> bool) -> Vec<Token> {
        let mut rung = self.rung.borrow_mut();
        if self.bell.has_notified() {
            rung.extend(self.bell.take().into_iter().map(Token));
        }
        if rung.is_empty() {
            return Vec::new();
        }
        let mut waits = self.waits.borrow_mut();
        let mut here = Vec::new();
        rung.retain(|token| match waits.get_mut(token) {
            // Who has left meanwhile has passed it on.
            None => false,
            Some(wait) => {
                wait.is_rung = true;
                let is_here = is_waiting(*token);
                here.extend(is_here.then_some(*token));
                !is_here
            }
        });
        here
    }
}
