//! What waits for the log: how it gets its place, and how it goes on. Why, and in which order, says `log.rs`.

use std::collections::VecDeque;

use crate::engine::{Item, Receipt};
use crate::{Append, Publication};

/// So much may wait for the log: publications, and bytes of their payloads. The one that reaches it is still taken.
const PENDING_MAX: usize = 8192;
const PENDING_BYTES_MAX: usize = 8 << 20;

/// As home: what the next batch has of publications, and what waits for batches.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// For the next batch: publications, and removals of those before them.
    pub(crate) published: Vec<Append>,
    /// Somebody waits for the next batch, whatever is in it.
    pub(crate) is_awaited: bool,
    /// The last batch that was handed over.
    pub(crate) taken: u64,
    durable: u64,
    /// What waits for a batch, in order.
    pending: VecDeque<Pending>,
    /// What is durable and was not reported yet, in order.
    ready: VecDeque<Pending>,
    /// What waits in either, or was reported and waits for room.
    count: usize,
    /// The payloads of these.
    bytes: usize,
}

/// Something that waits for a batch to be durable.
#[derive(Debug)]
pub(crate) struct Pending {
    batch: u64,
    pub(crate) task: Task,
    pub(crate) receipt: Receipt,
}

/// The report that follows once it is durable.
#[derive(Debug)]
pub(crate) enum Task {
    Item(Box<Item>),
    Skipped,
    Fence,
    Removed,
}

impl Log {
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Bytes of what waits, in whichever way.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn ready(&self) -> usize {
        self.ready.len()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.count >= PENDING_MAX || self.bytes >= PENDING_BYTES_MAX
    }

    pub(crate) fn push(&mut self, task: Task, receipt: Receipt) {
        let is_awaited = match &task {
            Task::Item(item) => {
                self.bytes += item.publication.payload.bytes.len();
                item.publication.position.is_some()
            }
            Task::Removed => true,
            Task::Skipped | Task::Fence => false,
        };
        self.count += 1;
        self.is_awaited |= is_awaited;
        let last = self.pending.back().map(|last| last.batch);
        let batch = is_awaited.then_some(self.taken + 1).or(last);
        let (queue, batch) = match batch {
            Some(batch) => (&mut self.pending, batch),
            // All that it is behind of is durable.
            None => (&mut self.ready, self.durable),
        };
        queue.push_back(Pending {
            batch,
            task,
            receipt,
        });
    }

    /// This batch and all before it are durable.
    pub(crate) fn durable(&mut self, batch: u64) {
        debug_assert!(batch <= self.taken, "it was never handed over");
        self.durable = self.durable.max(batch);
        let count = self
            .pending
            .partition_point(|one| one.batch <= self.durable);
        self.ready.extend(self.pending.drain(..count));
    }

    pub(crate) fn pop(&mut self) -> Option<Pending> {
        self.ready.pop_front()
    }

    /// An item is fed.
    pub(crate) fn fed(&mut self, publication: &Publication) {
        self.bytes -= publication.payload.bytes.len();
    }

    /// Something that was reported is carried out.
    pub(crate) fn settled(&mut self) {
        self.count -= 1;
    }
}
