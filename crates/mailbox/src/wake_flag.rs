//! The sleep flag of a receiver, which ensures that no message is missed and that a receiver is woken only if it
//! sleeps.
//!
//! A sender first stores its message, then sets `notified`, then checks `sleeping`. The receiver
//! first sets `sleeping`, then checks `notified`. All four operations are sequentially consistent,
//! so at least one side sees the other's store: either the receiver stays awake or it is woken.
//! (With acquire and release alone, both loads could miss the other side's store, as in the
//! store-buffering litmus test.)

use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use crate::Wake;
use crate::sync::AtomicBool;

/// The sleep flag of a receiver, which all its senders share.
#[derive(Default)]
pub(crate) struct WakeFlag {
    notified: AtomicBool,
    sleeping: AtomicBool,
    wake: OnceLock<Box<dyn Wake>>,
}

impl WakeFlag {
    /// Sets the function that wakes the receiver. Later calls have no effect.
    pub(crate) fn attach(&self, wake: Box<dyn Wake>) {
        let _ = self.wake.set(wake);
    }

    /// Notifies the receiver that it must check its lanes. Called by any thread.
    #[inline]
    pub(crate) fn notify(&self) {
        self.notified.store(true, Ordering::SeqCst);
        // The load before the swap avoids writes while the receiver is busy, so that all senders
        // can share the cache line.
        if self.sleeping.load(Ordering::SeqCst) && self.sleeping.swap(false, Ordering::SeqCst) {
            // `self.wake` is set, because a receiver sleeps only after `attach`.
            if let Some(wake) = self.wake.get() {
                wake.wake();
            }
        }
    }

    /// Called by the receiver: returns whether it was notified since the last call. If so, it must check all lanes.
    #[inline]
    pub(crate) fn take_notified(&self) -> bool {
        self.notified.load(Ordering::Relaxed) && self.notified.swap(false, Ordering::SeqCst)
    }

    /// Called by the receiver: announces that it is about to wait. Returns `false` if it must not wait, because it was
    /// notified.
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

    /// Called by the receiver: marks its wait as ended, for whatever reason.
    #[inline]
    pub(crate) fn awake(&self) {
        if self.sleeping.load(Ordering::Relaxed) {
            self.sleeping.store(false, Ordering::Relaxed);
        }
    }
}
