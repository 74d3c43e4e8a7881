//! Tells threads which of their waits are complete. Each thread that waits has a notifier, to which other threads send
//! the numbers of the completed waits.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

type WakeCallback = Box<dyn Fn() + Send + Sync>;

/// Receives the numbers of completed waits from any thread. Only the thread that owns the notifier reads them.
#[derive(Default)]
pub struct Notifier {
    numbers: Mutex<Vec<u64>>,
    /// Whether `numbers` is not empty, so that this can be checked without the lock.
    has_numbers: AtomicBool,
    wake: OnceLock<WakeCallback>,
}

impl std::fmt::Debug for Notifier {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Notifier({:?})", self.numbers.lock())
    }
}

impl Notifier {
    /// Sets the function that wakes the owner's thread; only the first call has an effect. Without such a function the owner
    /// has to poll.
    pub fn set_wake(&self, wake: impl Fn() + Send + Sync + 'static) {
        let _ = self.wake.set(Box::new(wake));
    }

    /// Queues a number. The first number since the last [`take`](Self::take) wakes the thread that owns the notifier.
    pub fn notify(&self, number: u64) {
        let mut rung = self.numbers.lock();
        rung.push(number);
        self.has_numbers.store(true, Ordering::Release);
        let is_first = rung.len() == 1;
        drop(rung);
        if is_first && let Some(wake) = self.wake.get() {
            wake();
        }
    }

    /// Returns whether [`take`](Self::take) would return at least one number.
    #[must_use]
    pub fn has_notified(&self) -> bool {
        self.has_numbers.load(Ordering::Acquire)
    }

    /// Returns the numbers received since the last call, in order.
    #[must_use]
    pub fn take(&self) -> Vec<u64> {
        let mut rung = self.numbers.lock();
        self.has_numbers.store(false, Ordering::Release);
        std::mem::take(&mut rung)
    }
}
