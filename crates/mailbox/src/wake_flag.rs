//! The sleep flag of a receiver: no message is missed, and wakes are rare.
//!
//! A sender first stores its message, then sets `notified`, then checks `sleeping`. The receiver first sets `sleeping`,
//! then checks `notified`. All four operations are sequentially consistent, so at least one side sees the other: either the
//! receiver stays awake or it is woken. (With acquire and release alone both could miss; this is the store-buffer
//! case.)

use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use crate::Wake;
use crate::sync::AtomicBool;

/// The sleep flag of a receiver, set by all senders.
#[derive(Default)]
pub(crate) struct WakeFlag {
    notified: AtomicBool,
    sleeping: AtomicBool,
    wake: OnceLock<Box<dyn Wake>>,
}

impl WakeFlag {
    /// Sets the wake of the receiver; later calls have no effect.
    pub(crate) fn attach(&self, wake: Box<dyn Wake>) {
        let _ = self.wake.set(wake);
    }

    /// Any thread: notifies the receiver that there is something to check.
    #[inline]
    pub(crate) fn notify(&self) {
        self.notified.store(true, Ordering::SeqCst);
        // The load before the swap keeps the cache line of a busy receiver shared among the senders.
        if self.sleeping.load(Ordering::SeqCst) && self.sleeping.swap(false, Ordering::SeqCst) {
            // A receiver sleeps only after `attach`.
            if let Some(wake) = self.wake.get() {
                wake.wake();
            }
        }
    }

    /// Receiver: returns whether it was notified since the last call. If so, all lanes must be checked.
    #[inline]
    pub(crate) fn take_notified(&self) -> bool {
        self.notified.load(Ordering::Relaxed) && self.notified.swap(false, Ordering::SeqCst)
    }

    /// Receiver: announces that it is about to wait. Returns `false` if it must not, because it was notified.
    #[inline]
    pub(crate) fn sleep(&self) -> bool {
        debug_assert!(
            self.wake.get().is_some(),
            "a sleeping worker must have a waker"
        );
        self.sleeping.store(true, Ordering::SeqCst);
        if self.notified.load(Ordering::SeqCst) {
            self.sleeping.store(false, Ordering::Relaxed);
            return false;
        }
        true
    }

    /// Receiver: ends the wait, for whatever reason.
    #[inline]
    pub(crate) fn awake(&self) {
        if self.sleeping.load(Ordering::Relaxed) {
            self.sleeping.store(false, Ordering::Relaxed);
        }
    }
}
