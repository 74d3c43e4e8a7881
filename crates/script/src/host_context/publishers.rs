//! Coroutines that wait to publish because too many publications to their channel are deferred.

use std::cell::{Cell, RefCell};

use super::{HostContext, WakeReason};
use veche_runtime::Token;

/// The maximum number of coroutines resumed in one turn. Others are resumed in later turns.
const WOKEN_MAX: usize = 256;

/// Cancelled coroutines are removed only if the list has more entries than this.
const PUBLISHERS_MIN: usize = 1024;

/// The waiting coroutines in order of arrival.
#[derive(Default)]
pub(crate) struct PublishWaiters {
    waiting: RefCell<Vec<(String, Token)>>,
    /// The value of the publish gate's counter `reopenings` when all waiters were last checked.
    seen: Cell<u64>,
}

impl PublishWaiters {
    pub(super) fn clear(&self) {
        self.waiting.take();
    }
}

impl HostContext {
    /// Returns whether publications to a channel are refused at the moment.
    pub(crate) fn refuses(&self, channel: &str) -> bool {
        let refused = self.world.refused.get();
        refused.is_some_and(|refused| refused.is_refused(channel))
    }

    /// Starts a wait until publications to a channel are accepted.
    pub(crate) fn wait_to_publish(&self, channel: String) -> Token {
        let token = self.token();
        self.publishers.waiting.borrow_mut().push((channel, token));
        token
    }

    /// Resumes coroutines whose channels accept publications again, and removes cancelled ones.
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
