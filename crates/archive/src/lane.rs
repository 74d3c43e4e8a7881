//! A worker's end: batches go in, and the news how far they are durable comes out. Neither side waits for the other.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::Thread;

use parking_lot::Mutex;

use crate::archive::SharedState;
use crate::record::Record;

/// One worker's way into the archive.
#[derive(Debug)]
pub struct Writer {
    lane: Arc<Lane>,
    shared: Arc<SharedState>,
    /// Whom to wake: the archive's thread.
    thread: Thread,
    /// The last that was handed over.
    batch: u64,
    /// The last that was told to be durable.
    reported: u64,
}

/// News from the archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DurableBatch {
    /// This batch and all before it are on disk, as [`Fsync`](crate::Fsync) says.
    pub batch: u64,
}

/// A batch that was not taken, and why.
#[derive(Debug)]
pub enum AppendError {
    /// Too much waits already. The worker is woken when there is room.
    Full(Vec<Record>),
    /// The archive is closed, or its thread has ended.
    Closed(Vec<Record>),
}

impl Writer {
    pub(crate) fn new(lane: Arc<Lane>, shared: Arc<SharedState>, thread: Thread) -> Self {
        Self {
            lane,
            shared,
            thread,
            batch: 0,
            reported: 0,
        }
    }

    /// Hands over a turn's records, which become durable together or not at all. Says their number: the first batch is
    /// 1, each next one more.
    ///
    /// # Errors
    /// [`AppendError`] gives the records back. What is said by several batches stays in order if those that are refused
    /// are handed over again before later ones.
    pub fn append(&mut self, records: Vec<Record>) -> Result<u64, AppendError> {
        let bytes = records.iter().map(Record::bytes).sum();
        self.lane.push(self.batch + 1, records, bytes)?;
        self.batch += 1;
        self.thread.unpark();
        Ok(self.batch)
    }

    /// Whether a batch of so many bytes, by [`Record::bytes`], would be taken now.
    #[must_use]
    pub fn has_room(&self, bytes: usize) -> bool {
        self.lane.has_room(bytes)
    }

    /// Whether nothing is taken any more: the archive is closed, or its thread has ended by a fault, which wakes the
    /// worker.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.lane.is_closed.load(Ordering::Acquire)
    }

    /// Whether the last attempt to write failed. It is tried again, and the worker is woken when it has worked.
    #[must_use]
    pub fn is_failing(&self) -> bool {
        self.shared.counters.is_failing.load(Ordering::Relaxed)
    }

    /// News since this was last asked.
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

/// What a writer and the archive's thread share.
pub(crate) struct Lane {
    queue: Mutex<Queue>,
    /// Of what is queued or in a commit.
    bytes: AtomicUsize,
    bytes_max: usize,
    durable: AtomicU64,
    is_abandoned: AtomicBool,
    /// What [`Queue::is_closed`] says, for whoever only looks.
    is_closed: AtomicBool,
    wake: Box<dyn Fn() + Send + Sync>,
}

#[derive(Debug, Default)]
struct Queue {
    batches: VecDeque<Batch>,
    is_closed: bool,
}

/// What was handed over at once.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) number: u64,
    pub(crate) records: Vec<Record>,
    pub(crate) bytes: usize,
}

impl Lane {
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

    fn push(&self, number: u64, records: Vec<Record>, bytes: usize) -> Result<(), AppendError> {
        if !self.has_room(bytes) {
            return Err(AppendError::Full(records));
        }
        let mut queue = self.queue.lock();
        if queue.is_closed {
            return Err(AppendError::Closed(records));
        }
        self.bytes.fetch_add(bytes, Ordering::AcqRel);
        queue.batches.push_back(Batch {
            number,
            records,
            bytes,
        });
        Ok(())
    }

    pub(crate) fn pop(&self) -> Option<Batch> {
        self.queue.lock().batches.pop_front()
    }

    /// That batch and those before it are on disk; so many bytes wait no longer.
    pub(crate) fn committed(&self, batch: u64, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::AcqRel);
        self.durable.store(batch, Ordering::Release);
        (self.wake)();
    }

    /// There is something to see.
    pub(crate) fn wake(&self) {
        (self.wake)();
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Acquire)
    }

    /// Nothing is taken from now on. How many batches are queued.
    pub(crate) fn close(&self) -> u64 {
        let mut queue = self.queue.lock();
        queue.is_closed = true;
        self.is_closed.store(true, Ordering::Release);
        queue.batches.len() as u64
    }

    /// Nobody writes here any more, and nothing is left.
    pub(crate) fn is_over(&self) -> bool {
        self.is_abandoned.load(Ordering::Acquire) && self.queue.lock().batches.is_empty()
    }
}

impl fmt::Debug for Lane {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Lane")
            .field("bytes", &self.bytes)
            .field("durable", &self.durable)
            .finish_non_exhaustive()
    }
}
