//! Requests that wait for the log: their order and their completion. `log.rs` explains why they wait.

use std::collections::VecDeque;

use crate::engine::{FeedItem, RequestContext};
use crate::{LogRecord, Publication};

/// Maximum number of requests that wait for the log; [`PENDING_BYTES_MAX`] limits their payload bytes. The request that
/// reaches a limit is still accepted; after it, the log counts as full and the home pauses publishers.
const PENDING_MAX: usize = 8192;
const PENDING_BYTES_MAX: usize = 8 << 20;

/// A home's queue for the log: the publications of the next batch, and the requests that wait for batches.
#[derive(Debug, Default)]
pub(crate) struct PublicationLog {
    /// The records for the next batch: publications, and removals of earlier ones.
    pub(crate) published: Vec<LogRecord>,
    /// Whether a request waits for the next batch, so that the batch must be taken even if it is empty.
    pub(crate) is_awaited: bool,
    /// The number of the latest batch passed to the log.
    pub(crate) taken: u64,
    durable: u64,
    /// The requests that wait for a batch, in order.
    pending: VecDeque<Pending>,
    /// The requests whose batch is durable and that were not reported yet, in order.
    ready: VecDeque<Pending>,
    /// The number of requests in `pending` and `ready`, plus those whose report has not been handled yet.
    count: usize,
    /// The payload bytes of the requests that `count` counts.
    bytes: usize,
}

/// A request that waits until its batch is durable.
#[derive(Debug)]
pub(crate) struct Pending {
    batch: u64,
    pub(crate) task: PendingReport,
    pub(crate) request_context: RequestContext,
}

/// The report that the engine makes once the batch is durable.
#[derive(Debug)]
pub(crate) enum PendingReport {
    Item(Box<FeedItem>),
    Skipped,
    Fence,
    Removed,
}

impl PublicationLog {
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Returns the payload bytes of all waiting requests.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn ready(&self) -> usize {
        self.ready.len()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.count >= PENDING_MAX || self.bytes >= PENDING_BYTES_MAX
    }

    pub(crate) fn push(&mut self, task: PendingReport, request_context: RequestContext) {
        let is_awaited = match &task {
            PendingReport::Item(item) => {
                self.bytes += item.publication.payload.bytes.len();
                item.publication.position.is_some()
            }
            PendingReport::Removed => true,
            PendingReport::Skipped | PendingReport::Fence => false,
        };
        self.count += 1;
        self.is_awaited |= is_awaited;
        let last = self.pending.back().map(|last| last.batch);
        let batch = is_awaited.then_some(self.taken + 1).or(last);
        let (queue, batch) = match batch {
            Some(batch) => (&mut self.pending, batch),
            // No earlier request waits for a batch, so this one can be reported at once.
            None => (&mut self.ready, self.durable),
        };
        queue.push_back(Pending {
            batch,
            task,
            request_context,
        });
    }

    /// Called when a batch and all earlier ones are durable: their requests can be reported.
    pub(crate) fn batch_durable(&mut self, batch: u64) {
        debug_assert!(
            batch <= self.taken,
            "a batch can't be durable before it was taken"
        );
        self.durable = self.durable.max(batch);
        let count = self
            .pending
            .partition_point(|one| one.batch <= self.durable);
        self.ready.extend(self.pending.drain(..count));
    }

    pub(crate) fn pop(&mut self) -> Option<Pending> {
        self.ready.pop_front()
    }

    /// Called before an item is delivered. Its payload bytes are no longer counted as waiting.
    pub(crate) fn before_delivery(&mut self, publication: &Publication) {
        self.bytes -= publication.payload.bytes.len();
    }

    /// Called after a report was handled. Its request is no longer counted as waiting.
    pub(crate) fn report_handled(&mut self) {
        self.count -= 1;
    }
}
