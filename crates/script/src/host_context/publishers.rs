//! Coroutines that wait until they can publish: too much that scripts have published to their channel waits to be taken.

use std::cell::{Cell, RefCell};

use super::{HostContext, WakeReason};
use veche_runtime::Token;

/// Coroutines that go on in one turn: those behind them may have to wait on.
const WOKEN_MAX: usize = 256;

/// Fewer are not worth a look for those that wait no longer.
const PUBLISHERS_MIN: usize = 1024;

/// All of them, in the order in which they came.
#[derive(Default)]
pub(crate) struct PublishWaiters {
    waiting: RefCell<Vec<(String, Token)>>,
    /// The openings that all of them know of.
    seen: Cell<u64>,
}

impl PublishWaiters {
    pub(super) fn clear(&self) {
        self.waiting.take();
    }
}

impl HostContext {
    /// Whether too much waits to be published to a channel.
    pub(crate) fn refuses(&self, channel: &str) -> bool {
        let refused = self.world.refused.get();
        refused.is_some_and(|refused| refused.is_refused(channel))
    }

    /// A wait until publications to a channel are taken again.
    pub(crate) fn wait_to_publish(&self, channel: String) -> Token {
        let token = self.token();
        self.publishers.waiting.borrow_mut().push((channel, token));
        token
    }

    /// Lets those go on whose channels are taken again, and forgets those that wait no longer.
    pub(crate) fn wake_publishers(&self, tasks: usize, is_waiting: impl Fn(Token) -> bool) {
        let mut waiting = self.publishers.waiting.borrow_mut();
        let Some(refused) = self.world.refused.get().filter(|_| !waiting.is_empty()) else {
            return;
        };
        if waiting.len() > PUBLISHERS_MIN + 2 * tasks {
            waiting.retain(|(_, token)| is_waiting(*token));
        }
        let openings = refused.reopenings();
        if self.publishers.seen.get() == openings {
            return;
        }
        let mut woken = 0;
        waiting.retain(|(channel, token)| {
            let goes_on = woken < WOKEN_MAX && !refused.is_refused(channel);
            if goes_on && is_waiting(*token) {
                woken += 1;
                self.wake(*token, WakeReason::Up);
            }
            !goes_on
        });
        if woken < WOKEN_MAX {
            self.publishers.seen.set(openings);
        }
    }
}
