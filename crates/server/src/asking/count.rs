//! A number that any thread adds to.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// See the module's text: questions are rare beside messages.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Relaxed);
    }

    pub(crate) fn sub(&self, count: u64) {
        self.0.fetch_sub(count, Relaxed);
    }

    pub(crate) fn read(&self) -> u64 {
        self.0.load(Relaxed)
    }
}
