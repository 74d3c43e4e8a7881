//! How whoever waits hears from another thread: a bell of its own that others ring with a number.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

/// Wakes a thread.
type Wake = Box<dyn Fn() + Send + Sync>;

/// One waiter's bell. It is rung with the numbers of what was waited for, and looked at by its owner alone.
#[derive(Default)]
pub struct Notifier {
    numbers: Mutex<Vec<u64>>,
    /// Whether there are any, for those who only look.
    has_numbers: AtomicBool,
    wake: OnceLock<Wake>,
}

impl std::fmt::Debug for Notifier {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Bell({:?})", self.numbers.lock())
    }
}

impl Notifier {
    /// What wakes the owner's thread. Without it the owner has to look by itself; the first counts.
    pub fn set_wake(&self, wake: impl Fn() + Send + Sync + 'static) {
        let _ = self.wake.set(Box::new(wake));
    }

    /// Rings; the first ring since the owner has looked wakes it.
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

    /// Whether there is something to take.
    #[must_use]
    pub fn has_notified(&self) -> bool {
        self.has_numbers.load(Ordering::Acquire)
    }

    /// The numbers it was rung with since the last time, in order.
    #[must_use]
    pub fn take(&self) -> Vec<u64> {
        let mut rung = self.numbers.lock();
        self.has_numbers.store(false, Ordering::Release);
        std::mem::take(&mut rung)
    }
}
