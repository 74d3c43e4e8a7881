//! Notification of watchers. Each watcher has a queue, which receives each change once and in order.
//!
//! Changes are queued while the table's lock is held, which defines their order. While a watcher's queue is full, further
//! changes are only counted; the watcher later gets an entry with their number.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use super::Table;
use super::sync::AtomicU64;
use crate::queue::{PushResult, Queue, QueueItem, QueueOptions, Waiter};
use crate::value::Value;

/// Maximum capacity of a watcher's queue.
pub const CHANGES_MAX: usize = 1_000_000;
/// Default capacity of a watcher's queue.
pub const CHANGES_DEFAULT: usize = 1000;

/// The type of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WatchEvent {
    Insert,
    Update,
    Delete,
    Expire,
    Evict,
    Clear,
    Load,
}

impl WatchEvent {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Insert => "insert",
            Self::Update => "update",
            Self::Delete => "delete",
            Self::Expire => "expire",
            Self::Evict => "evict",
            Self::Clear => "clear",
            Self::Load => "load",
        }
    }
}

/// A watcher of a table; dropping it ends the watch.
#[derive(Debug)]
pub struct Watcher {
    queue: Arc<Queue>,
    missed: AtomicU64,
}

impl Watcher {
    /// Returns the queue, which contains changes as JSON and on which callers can wait.
    #[must_use]
    pub fn queue(&self) -> &Arc<Queue> {
        &self.queue
    }

    /// Returns the next change. If there is none, registers `waiter`, which is notified of the next change.
    #[must_use]
    pub fn next(&self, waiter: Option<Waiter>) -> Option<QueueItem> {
        // The number of missed changes is reported after the queued changes.
        if let Some(item) = self.queue.pop(None) {
            return Some(item);
        }
        match self.missed.swap(0, Ordering::AcqRel) {
            0 => self.queue.pop(waiter),
            count => Some(missed(count)),
        }
    }

    /// Returns whether there are unreported missed changes although the queue is empty, so that nothing would wake the owner.
    #[cfg(all(test, feature = "model"))]
    pub(super) fn sleeps_with_missed(&self) -> bool {
        self.queue.is_empty() && self.missed.load(Ordering::Acquire) > 0
    }

    fn push(&self, text: &Arc<[u8]>) {
        let count = self.missed.swap(0, Ordering::AcqRel);
        let is_reported = count == 0 || self.queue.push(missed(count), None) == PushResult::Pushed;
        let item = QueueItem {
            value: Value::Bytes(Arc::clone(text)),
            is_json: true,
        };
        match is_reported && self.queue.push(item, None) == PushResult::Pushed {
            true => {}
            false => {
                let count = if is_reported { 0 } else { count };
                self.missed.fetch_add(count + 1, Ordering::AcqRel);
                // The owner may have emptied the queue since the push failed, and may now wait for
                // an entry. The count of missed changes alone does not wake the owner, so it is
                // pushed as an entry.
                if self.queue.is_empty() {
                    match self.missed.swap(0, Ordering::AcqRel) {
                        0 => {}
                        // The empty queue has room, because no other thread pushes.
                        count => drop(self.queue.push(missed(count), None)),
                    }
                }
            }
        }
    }
}

fn missed(count: u64) -> QueueItem {
    let text = format!("{{\"kind\":\"missed\",\"count\":{count}}}");
    QueueItem {
        value: Value::Bytes(text.into_bytes().into()),
        is_json: true,
    }
}

/// The watchers of a table.
#[derive(Debug, Default)]
pub(super) struct Watchers {
    list: Vec<Weak<Watcher>>,
    /// Changes held back until a batch is complete; `None` outside of batches.
    held: Option<Vec<Arc<[u8]>>>,
}

impl Table {
    /// Starts watching the table; at most `capacity` changes are queued.
    #[must_use]
    pub fn watch(&self, capacity: usize) -> Arc<Watcher> {
        let options = QueueOptions {
            capacity,
            ..QueueOptions::default()
        };
        let changes = Arc::new(Watcher {
            queue: Arc::new(Queue::new(options)),
            missed: AtomicU64::new(0),
        });
        // The table's lock is held, so that a new watcher never sees only a part of a batch.
        let _state = self.state.read();
        let mut watchers = self.watchers.lock();
        watchers.list.retain(|watcher| watcher.strong_count() > 0);
        watchers.list.push(Arc::downgrade(&changes));
        self.has_watchers.store(true, Ordering::Release);
        changes
    }

    /// Notifies the watchers, if there are any.
    pub(super) fn notify_watchers(&self, write: impl FnOnce(&mut Vec<u8>)) {
        if !self.has_watchers.load(Ordering::Acquire) {
            return;
        }
        let mut watchers = self.watchers.lock();
        watchers.list.retain(|watcher| watcher.strong_count() > 0);
        if watchers.list.is_empty() {
            self.has_watchers.store(false, Ordering::Release);
            return;
        }
        let mut text = Vec::new();
        write(&mut text);
        let text: Arc<[u8]> = text.into();
        match &mut watchers.held {
            Some(held) => held.push(text),
            None => watchers.push(&text),
        }
    }

    /// Holds further changes back, at the start of a batch.
    pub(super) fn hold_changes(&self) {
        self.watchers.lock().held = Some(Vec::new());
    }

    /// Delivers the changes that were held back if the batch took effect; otherwise drops these changes.
    pub(super) fn release_changes(&self, has_happened: bool) {
        let mut watchers = self.watchers.lock();
        let held = watchers.held.take().unwrap_or_default();
        if has_happened {
            held.iter().for_each(|text| watchers.push(text));
        }
    }
}

impl Watchers {
    fn push(&self, text: &Arc<[u8]>) {
        let alive = self.list.iter().filter_map(Weak::upgrade);
        alive.for_each(|watcher| watcher.push(text));
    }
}
