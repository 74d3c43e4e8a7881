//! Lets the node's thread wait, and wakes it.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use veche_mailbox::Wake;

/// Wakes the waiting thread. If the thread is not waiting, its next wait ends at once.
#[derive(Debug, Default)]
pub(super) struct ThreadWaker {
    is_set: Mutex<bool>,
    changed: Condvar,
}

impl ThreadWaker {
    pub(super) fn notify(&self) {
        *self.is_set.lock() = true;
        self.changed.notify_one();
    }

    /// Waits for a notification, at most for `within`.
    pub(super) fn wait(&self, within: Duration) {
        let mut is_set = self.is_set.lock();
        if !*is_set {
            self.changed.wait_for(&mut is_set, within);
        }
        *is_set = false;
    }
}

/// The mailbox's handle on a waker.
#[derive(Debug)]
pub(super) struct MailboxWaker(pub(super) std::sync::Arc<ThreadWaker>);

impl Wake for MailboxWaker {
    fn wake(&self) {
        self.0.notify();
    }
}
