//! A number that any thread adds to.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// See the module's text: questions are rare beside messages.
#[derive(Debug, Default)]
pub struct SharedCounter(AtomicU64);

impl SharedCounter {
    /// Adds to it.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Relaxed);
    }

    /// Takes away from it.
    pub fn sub(&self, count: u64) {
        self.0.fetch_sub(count, Relaxed);
    }

    /// Returns the sum so far.
    #[must_use]
    pub fn read(&self) -> u64 {
        self.0.load(Relaxed)
    }
}
