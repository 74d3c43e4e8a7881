//! The wait of the node's thread.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use veche_mailbox::Wake;

/// Wakes the waiting thread. If it does not wait at that time, its next wait ends at once.
#[derive(Debug, Default)]
pub(super) struct Bell {
    is_rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    pub(super) fn ring(&self) {
        *self.is_rung.lock() = true;
        self.changed.notify_one();
    }

    /// Waits for a ring, at most for this time.
    pub(super) fn wait(&self, within: Duration) {
        let mut is_rung = self.is_rung.lock();
        if !*is_rung {
            self.changed.wait_for(&mut is_rung, within);
        }
        *is_rung = false;
    }
}

/// The mailbox's handle on a bell.
#[derive(Debug)]
pub(super) struct MailBell(pub(super) std::sync::Arc<Bell>);

impl Wake for MailBell {
    fn wake(&self) {
        self.0.ring();
    }
}
