//! A queue from one thread to another: items are added one by one, and announced together.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

/// Items for one thread. One call of [`announce`](Self::announce) covers several items, so a burst costs one wake-up.
#[derive(Debug)]
pub(crate) struct Inbox<T> {
    items: Mutex<Vec<T>>,
    /// Whether items were announced and not taken yet. It changes only while `items` is locked.
    is_announced: AtomicBool,
}

impl<T> Inbox<T> {
    pub(crate) fn new() -> Self {
        Self {
            items: Mutex::default(),
            is_announced: AtomicBool::new(false),
        }
    }

    /// Adds an item, which the next announcement covers.
    pub(crate) fn push(&self, item: T) {
        self.items.lock().push(item);
    }

    /// Announces the items added since the reader last took them. Returns whether the reader has to be woken: false if
    /// there are none, or if they were announced before.
    pub(crate) fn announce(&self) -> bool {
        let items = self.items.lock();
        !items.is_empty() && !self.is_announced.swap(true, Ordering::AcqRel)
    }

    /// Returns whether items were announced and not taken yet.
    pub(crate) fn is_announced(&self) -> bool {
        self.is_announced.load(Ordering::Acquire)
    }

    /// Takes all items in exchange for an empty vector.
    pub(crate) fn take(&self, empty: &mut Vec<T>) {
        let mut items = self.items.lock();
        self.is_announced.store(false, Ordering::Release);
        std::mem::swap(&mut *items, empty);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_wakes_the_reader_once() {
        let inbox = Inbox::new();
        assert!(!inbox.announce());
        inbox.push(1);
        inbox.push(2);
        assert!(!inbox.is_announced());
        assert!(inbox.announce());
        inbox.push(3);
        assert!(!inbox.announce());
        let mut taken = Vec::new();
        inbox.take(&mut taken);
        assert_eq!(taken, [1, 2, 3]);
        assert!(!inbox.is_announced());
        assert!(!inbox.announce());
        inbox.push(4);
        assert!(inbox.announce());
    }
}
