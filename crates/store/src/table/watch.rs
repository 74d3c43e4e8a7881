//! What is told to those who watch a table: each change once and in order, in a queue of their own.
//!
//! A change is told while the table's lock is held, which makes the order that of the changes; a queue that is full
//! takes no more, and its owner is told how many he has missed, at the place where they are missing.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use super::Table;
use super::sync::AtomicU64;
use crate::queue::{PushResult, Queue, QueueItem, QueueOptions, Waiter};
use crate::value::Value;

/// Most changes that wait for one who watches.
pub const CHANGES_MAX: usize = 1_000_000;
/// The same unless told.
pub const CHANGES_DEFAULT: usize = 1000;

/// What has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Insert,
    Update,
    Delete,
    Expire,
    Evict,
    Clear,
    Load,
}

impl Event {
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

/// One who watches. Whoever drops it watches no longer.
#[derive(Debug)]
pub struct Watcher {
    queue: Arc<Queue>,
    missed: AtomicU64,
}

impl Watcher {
    /// The queue that changes come by, as JSON; to wait at it.
    #[must_use]
    pub fn queue(&self) -> &Arc<Queue> {
        &self.queue
    }

    /// The next change, or `waiter` waits for it.
    #[must_use]
    pub fn next(&self, waiter: Option<Waiter>) -> Option<QueueItem> {
        // What was missed stands behind what is in the queue.
        if let Some(parcel) = self.queue.pop(None) {
            return Some(parcel);
        }
        match self.missed.swap(0, Ordering::AcqRel) {
            0 => self.queue.pop(waiter),
            count => Some(missed(count)),
        }
    }

    /// Whether something was missed, and nothing is in the queue that would wake its owner to be told.
    #[cfg(all(test, feature = "model"))]
    pub(super) fn sleeps_with_missed(&self) -> bool {
        self.queue.is_empty() && self.missed.load(Ordering::Acquire) > 0
    }

    fn push(&self, text: &Arc<[u8]>) {
        let count = self.missed.swap(0, Ordering::AcqRel);
        let is_told = count == 0 || self.queue.push(missed(count), None) == PushResult::Pushed;
        let parcel = QueueItem {
            value: Value::Bytes(Arc::clone(text)),
            is_json: true,
        };
        match is_told && self.queue.push(parcel, None) == PushResult::Pushed {
            true => {}
            false => {
                let count = if is_told { 0 } else { count };
                self.missed.fetch_add(count + 1, Ordering::AcqRel);
                // Who has emptied the queue meanwhile may sleep at it: a count alone would not wake him.
                if self.queue.is_empty() {
                    match self.missed.swap(0, Ordering::AcqRel) {
                        0 => {}
                        // There is room: nobody else pushes.
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

/// Those who watch a table.
#[derive(Debug, Default)]
pub(super) struct Watchers {
    list: Vec<Weak<Watcher>>,
    /// What is told when all of a batch is done.
    held: Option<Vec<Arc<[u8]>>>,
}

impl Table {
    /// Watches the table from now on; at most so many changes wait.
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
        // No change is half told to one who begins to watch.
        let _state = self.state.read();
        let mut watchers = self.watchers.lock();
        watchers.list.retain(|watcher| watcher.strong_count() > 0);
        watchers.list.push(Arc::downgrade(&changes));
        self.has_watchers.store(true, Ordering::Release);
        changes
    }

    /// Tells those who watch, if there are any.
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

    /// What is told from now on waits.
    pub(super) fn hold_changes(&self) {
        self.watchers.lock().held = Some(Vec::new());
    }

    /// It has happened, or it has not.
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
