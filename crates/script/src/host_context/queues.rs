//! Stores which coroutines of one application on this worker wait for queues.
//!
//! A thread that ends such a wait signals the wait's number to a [`Notifier`]. In its next turn, the VM takes the
//! signals and resumes the coroutines.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use veche_store::{Notifier, Queue, WaitSide, Waiter};

use veche_runtime::Token;

/// The coroutines of one application on this worker that wait for queues.
#[derive(Debug, Default)]
pub(crate) struct QueueWaits {
    notifier: Arc<Notifier>,
    waits: RefCell<HashMap<Token, Wait>>,
    /// Signalled waits that the VM has not handled yet.
    rung: RefCell<Vec<Token>>,
}

#[derive(Debug)]
struct Wait {
    queue: Arc<Queue>,
    side: WaitSide,
    /// Whether the wait was signalled and its coroutine has not been resumed yet.
    is_rung: bool,
}

impl QueueWaits {
    /// Sets the function that wakes the worker; see [`Notifier::set_wake`].
    pub(crate) fn set_wake(&self, wake: impl Fn() + Send + Sync + 'static) {
        self.notifier.set_wake(wake);
    }

    /// Returns the handle to signal a wait with.
    pub(crate) fn waiter(&self, token: Token) -> Waiter {
        Waiter {
            number: token.0,
            notifier: Arc::clone(&self.notifier),
        }
    }

    /// Registers a waiting coroutine.
    pub(crate) fn begin(&self, token: Token, queue: Arc<Queue>, side: WaitSide) {
        let is_rung = false;
        let wait = Wait {
            queue,
            side,
            is_rung,
        };
        self.waits.borrow_mut().insert(token, wait);
    }

    /// Ends a wait. `comes` is whether the coroutine will take the value; otherwise the next waiter
    /// is signalled.
    pub(crate) fn end(&self, token: Token, comes: bool) {
        let wait = self.waits.borrow_mut().remove(&token);
        if let Some(wait) = wait
            && !(comes && wait.is_rung)
        {
            wait.queue.cancel_wait(wait.side, token.0, &self.notifier);
        }
    }

    /// Ends the waits of the calling VM; its coroutines will not be resumed.
    pub(crate) fn end_all(&self, is_waiting: impl Fn(Token) -> bool) {
        let tokens: Vec<Token> = self.waits.borrow().keys().copied().collect();
        for token in tokens.into_iter().filter(|token| is_waiting(*token)) {
            self.end(token, false);
        }
    }

    /// Returns whether a wait was signalled.
    pub(crate) fn has_signals(&self) -> bool {
        self.notifier.has_notified()
    }

    /// Takes the signalled waits that belong to the calling VM, according to `is_waiting`.
    pub(crate) fn take_signals(&self, is_waiting: impl Fn(Token) -> bool) -> Vec<Token> {
        let mut rung = self.rung.borrow_mut();
        if self.notifier.has_notified() {
            rung.extend(self.notifier.take().into_iter().map(Token));
        }
        if rung.is_empty() {
            return Vec::new();
        }
        let mut waits = self.waits.borrow_mut();
        let mut here = Vec::new();
        rung.retain(|token| match waits.get_mut(token) {
            // A waiter that left in the meantime has passed the signal on.
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
