//! A history log that records batches and reports them durable when the simulated world decides.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use veche_archive::{AppendError, ArchiveRecord as Entry, DurableBatch};
use veche_sim::worker_driver::WorkerOutput;

use super::OutputRecord;
use crate::history::batch_of;
use crate::worker::HistoryLog;

/// The number of the last batch that the simulated world declared durable.
pub(super) type DurableMark = Arc<AtomicU64>;

/// A history log of one worker.
pub(super) struct RecordedLog {
    pub(super) record: OutputRecord,
    pub(super) reported: DurableMark,
    /// The number of the last submitted batch.
    pub(super) batch: u64,
    /// The number of the last batch that was reported durable to the worker.
    pub(super) known: u64,
}

impl HistoryLog for RecordedLog {
    fn append(&mut self, records: Vec<Entry>) -> Result<u64, AppendError> {
        self.batch += 1;
        let batch = batch_of(self.batch, records);
        self.record.lock().push(WorkerOutput::Batch(batch));
        Ok(self.batch)
    }

    fn durable(&mut self) -> Option<DurableBatch> {
        let batch = self.reported.load(Relaxed);
        let is_news = batch > self.known;
        self.known = batch;
        is_news.then_some(DurableBatch { batch })
    }

    fn is_failing(&self) -> bool {
        false
    }

    fn is_closed(&self) -> bool {
        false
    }
}
