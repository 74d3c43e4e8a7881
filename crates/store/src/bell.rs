//! How whoever waits hears from another thread: a bell of its own that others ring with a number.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

/// Wakes a thread.
type Wake = Box<dyn Fn() + Send + Sync>;

/// One waiter's bell. It is rung with the numbers of what was waited for, and looked at by its owner alone.
#[derive(Default)]
pub struct Bell {
    rung: Mutex<Vec<u64>>,
    /// Whether there are any, for those who only look.
    has_rung: AtomicBool,
    wake: OnceLock<Wake>,
}

impl std::fmt::Debug for Bell {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Bell({:?})", self.rung.lock())
    }
}

impl Bell {
    /// What wakes the owner's thread. Without it the owner has to look by itself; the first counts.
    pub fn set_wake(&self, wake: impl Fn() + Send + Sync + 'static) {
        let _ = self.wake.set(Box::new(wake));
    }

    /// Rings; the first ring since the owner has looked wakes it.
    pub fn ring(&self, number: u64) {
        let mut rung = self.rung.lock();
        rung.push(number);
        self.has_rung.store(true, Ordering::Release);
        let is_first = rung.len() == 1;
        drop(rung);
        if is_first && let Some(wake) = self.wake.get() {
            wake();
        }
    }

    /// Whether there is something to take.
    #[must_use]
    pub fn has_rung(&self) -> bool {
        self.has_rung.load(Ordering::Acquire)
    }

    /// The numbers it was rung with since the last time, in order.
    #[must_use]
    pub fn take(&self) -> Vec<u64> {
        let mut rung = self.rung.lock();
        self.has_rung.store(false, Ordering::Release);
        std::mem::take(&mut rung)
    }
}
