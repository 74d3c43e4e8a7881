//! A counter shared by all threads.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A shared counter. A single atomic suffices, since calls are rare compared with messages.
#[derive(Debug, Default)]
pub struct AtomicCounter(AtomicU64);

impl AtomicCounter {
    /// Adds to the counter.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Relaxed);
    }

    /// Subtracts from the counter.
    pub fn sub(&self, count: u64) {
        self.0.fetch_sub(count, Relaxed);
    }

    /// Returns the current value.
    #[must_use]
    pub fn read(&self) -> u64 {
        self.0.load(Relaxed)
    }
}
