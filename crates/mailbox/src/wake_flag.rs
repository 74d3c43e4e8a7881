//! The sleeping flag: mail is never missed, and a wake is rarely paid for.
//!
//! The one who rings first leaves its work where the sleeper will look, then
//! sets `notified`, then looks at `sleeping`. The sleeper first sets `sleeping`,
//! then looks at `notified`. All four are sequentially consistent, so at least one
//! of the two sees the other: either the sleeper stays awake or it is woken.
//! (With acquire and release alone both could miss: that is the store-buffer
//! case.)

use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use crate::Wake;
use crate::sync::AtomicBool;

/// One per receiver, rung by all.
#[derive(Default)]
pub(crate) struct WakeFlag {
    notified: AtomicBool,
    sleeping: AtomicBool,
    wake: OnceLock<Box<dyn Wake>>,
}

impl WakeFlag {
    /// Sets what wakes the receiver; later calls change nothing.
    pub(crate) fn attach(&self, wake: Box<dyn Wake>) {
        let _ = self.wake.set(wake);
    }

    /// Any thread: there is something to look at.
    #[inline]
    pub(crate) fn notify(&self) {
        self.notified.store(true, Ordering::SeqCst);
        // The load keeps a busy receiver's cache line shared among the ringers.
        if self.sleeping.load(Ordering::SeqCst) && self.sleeping.swap(false, Ordering::SeqCst) {
            // A receiver sleeps only after `attach`.
            if let Some(wake) = self.wake.get() {
                wake.wake();
            }
        }
    }

    /// Receiver: was it rung since the last call? If so, look everywhere.
    #[inline]
    pub(crate) fn take_notified(&self) -> bool {
        self.notified.load(Ordering::Relaxed) && self.notified.swap(false, Ordering::SeqCst)
    }

    /// Receiver: about to wait. False: do not, it was rung.
    #[inline]
    pub(crate) fn sleep(&self) -> bool {
        debug_assert!(
            self.wake.get().is_some(),
            "who sleeps must have a wake attached"
        );
        self.sleeping.store(true, Ordering::SeqCst);
        if self.notified.load(Ordering::SeqCst) {
            self.sleeping.store(false, Ordering::Relaxed);
            return false;
        }
        true
    }

    /// Receiver: the wait is over, for whatever reason.
    #[inline]
    pub(crate) fn awake(&self) {
        if self.sleeping.load(Ordering::Relaxed) {
            self.sleeping.store(false, Ordering::Relaxed);
        }
    }
}
