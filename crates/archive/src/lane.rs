//! The queue between one worker and the archive's thread: accepts batches and reports which are
//! durable. Neither side waits for the other.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::Thread;

use parking_lot::Mutex;

use crate::archive::SharedState;
use crate::record::ArchiveRecord;

/// The archive's interface for one worker.
#[derive(Debug)]
pub struct Writer {
    lane: Arc<WriterLane>,
    shared: Arc<SharedState>,
    /// The archive's thread, to be woken.
    thread: Thread,
    /// The number of the last batch submitted.
    batch: u64,
    /// The number of the last batch reported as durable.
    reported: u64,
}

/// A progress report of the archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DurableBatch {
    /// This batch and all earlier ones are on disk, as defined by [`FsyncPolicy`](crate::FsyncPolicy).
    pub batch: u64,
}

/// Why a batch was not accepted; contains its records.
#[derive(Debug)]
pub enum AppendError {
    /// The queue is full. The worker is woken when there is room.
    Full(Vec<ArchiveRecord>),
    /// The archive is closed, or its thread has ended.
    Closed(Vec<ArchiveRecord>),
}

impl Writer {
    pub(crate) fn new(lane: Arc<WriterLane>, shared: Arc<SharedState>, thread: Thread) -> Self {
        Self {
            lane,
            shared,
            thread,
            batch: 0,
            reported: 0,
        }
    }

    /// Submits a batch of records, which become durable atomically. Returns the number of the batch; batches are numbered
    /// consecutively from 1.
    ///
    /// # Errors
    /// [`AppendError`] returns the records. To keep the order, refused batches must be submitted again before later
    /// ones.
    pub fn append(&mut self, records: Vec<ArchiveRecord>) -> Result<u64, AppendError> {
        let bytes = records.iter().map(ArchiveRecord::bytes).sum();
        self.lane.push(self.batch + 1, records, bytes)?;
        self.batch += 1;
        self.thread.unpark();
        Ok(self.batch)
    }

    /// Returns whether a batch of this size, as computed by [`ArchiveRecord::bytes`], would be
    /// accepted now.
    #[must_use]
    pub fn has_room(&self, bytes: usize) -> bool {
        self.lane.has_room(bytes)
    }

    /// Returns whether nothing is accepted any more: the archive is closed, or its thread has panicked. A panic wakes
    /// the worker.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.lane.is_closed.load(Ordering::Acquire)
    }

    /// Returns whether the last attempt to write failed. The archive retries, and wakes the worker when the write succeeds.
    #[must_use]
    pub fn is_failing(&self) -> bool {
        self.shared.counters.is_failing.load(Ordering::Relaxed)
    }

    /// Returns the latest batch on disk; `None` if no batch was written since the last call.
    pub fn take_durable(&mut self) -> Option<DurableBatch> {
        let batch = self.lane.durable.load(Ordering::Acquire);
        let is_news = batch > self.reported;
        self.reported = batch;
        is_news.then_some(DurableBatch { batch })
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.lane.is_abandoned.store(true, Ordering::Release);
    }
}

/// The state shared by a writer and the archive's thread.
pub(crate) struct WriterLane {
    queue: Mutex<Queue>,
    /// Bytes queued or being committed.
    bytes: AtomicUsize,
    bytes_max: usize,
    durable: AtomicU64,
    is_abandoned: AtomicBool,
    /// A copy of [`Queue::is_closed`] for reading without the lock.
    is_closed: AtomicBool,
    wake: Box<dyn Fn() + Send + Sync>,
}

#[derive(Debug, Default)]
struct Queue {
    batches: VecDeque<RecordBatch>,
    is_closed: bool,
}

/// Records that were submitted together and become durable together.
#[derive(Debug)]
pub(crate) struct RecordBatch {
    pub(crate) number: u64,
    pub(crate) records: Vec<ArchiveRecord>,
    pub(crate) bytes: usize,
}

impl WriterLane {
    pub(crate) fn new(bytes_max: usize, wake: Box<dyn Fn() + Send + Sync>) -> Self {
        Self {
            queue: Mutex::default(),
            bytes: AtomicUsize::new(0),
            bytes_max,
            durable: AtomicU64::new(0),
            is_abandoned: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            wake,
        }
    }

    fn has_room(&self, bytes: usize) -> bool {
        let queued = self.bytes.load(Ordering::Acquire);
        queued == 0 || queued.saturating_add(bytes) <= self.bytes_max
    }

    fn push(
        &self,
        number: u64,
        records: Vec<ArchiveRecord>,
        bytes: usize,
    ) -> Result<(), AppendError> {
        if !self.has_room(bytes) {
            return Err(AppendError::Full(records));
        }
        let mut queue = self.queue.lock();
        if queue.is_closed {
            return Err(AppendError::Closed(records));
        }
        self.bytes.fetch_add(bytes, Ordering::AcqRel);
        queue.batches.push_back(RecordBatch {
            number,
            records,
            bytes,
        });
        Ok(())
    }

    pub(crate) fn pop(&self) -> Option<RecordBatch> {
        self.queue.lock().batches.pop_front()
    }

    /// Records that this batch and earlier ones are on disk, so that their `bytes` no longer count as waiting.
    pub(crate) fn committed(&self, batch: u64, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::AcqRel);
        self.durable.store(batch, Ordering::Release);
        (self.wake)();
    }

    pub(crate) fn wake(&self) {
        (self.wake)();
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Acquire)
    }

    /// Stops accepting batches. Returns the number of batches that are still queued.
    pub(crate) fn close(&self) -> u64 {
        let mut queue = self.queue.lock();
        queue.is_closed = true;
        self.is_closed.store(true, Ordering::Release);
        queue.batches.len() as u64
    }

    /// Returns whether the writer was dropped and the archive's thread has taken all of its batches.
    pub(crate) fn is_over(&self) -> bool {
        self.is_abandoned.load(Ordering::Acquire) && self.queue.lock().batches.is_empty()
    }
}

impl fmt::Debug for WriterLane {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("WriterLane")
            .field("bytes", &self.bytes)
            .field("durable", &self.durable)
            .finish_non_exhaustive()
    }
}
