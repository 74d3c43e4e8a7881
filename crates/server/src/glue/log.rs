//! A history log that records batches and reports them durable when the simulated world says so.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use veche_archive::{Durable, Record as Entry, Refused};
use veche_sim::glue::Output;

use super::Record;
use crate::history::batch_of;
use crate::worker::Log;

/// The last batch that the world declared durable.
pub(super) type Told = Arc<AtomicU64>;

/// A history log of one worker.
pub(super) struct Recorded {
    pub(super) record: Record,
    pub(super) told: Told,
    /// The last submitted batch, and the last one that was reported durable to the worker.
    pub(super) batch: u64,
    pub(super) known: u64,
}

impl Log for Recorded {
    fn append(&mut self, records: Vec<Entry>) -> Result<u64, Refused> {
        self.batch += 1;
        let batch = batch_of(self.batch, records);
        self.record.lock().push(Output::Batch(batch));
        Ok(self.batch)
    }

    fn durable(&mut self) -> Option<Durable> {
        let batch = self.told.load(Relaxed);
        let is_news = batch > self.known;
        self.known = batch;
        is_news.then_some(Durable { batch })
    }

    fn is_failing(&self) -> bool {
        false
    }

    fn is_closed(&self) -> bool {
        false
    }
}
