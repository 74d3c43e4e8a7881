//! Transfers a turn's history batches from the hub to the archive, and reports durable batches to the hub.

use tracing::error;
use veche_archive::{AppendError, ArchiveRecord};

use super::host::HistoryLog;
use super::{WorkerApps, WorkerState};
use crate::history::records_of;

/// A worker's access to the archive.
pub(super) struct HistoryWriter {
    writer: Box<dyn HistoryLog>,
    /// A batch that the archive has not accepted yet; it has to be submitted before all others.
    held: Option<Vec<ArchiveRecord>>,
}

impl HistoryWriter {
    pub(super) fn new(writer: Box<dyn HistoryLog>) -> Self {
        Self { writer, held: None }
    }

    /// Returns whether writes to the archive are failing.
    pub(super) fn is_failing(&self) -> bool {
        self.writer.is_failing()
    }
}

impl<A: WorkerApps> WorkerState<A> {
    /// Reports newly durable history to the hub.
    pub(super) fn take_durable_history(&mut self) {
        let Some(ledger) = &mut self.ledger else {
            return;
        };
        // `is_closed` is read before the durable progress, so that no progress made before the archive closed
        // is missed.
        let is_closed = ledger.writer.is_closed();
        self.worker.set_log_failing(ledger.is_failing());
        if let Some(durable) = ledger.writer.durable() {
            self.worker.handle_durable(durable.batch);
        }
        if is_closed && !self.common.history.is_closing() {
            self.archive_has_ended();
        }
    }

    /// Submits the turn's batch. If the archive is full, the batch is kept and submitted again in later turns.
    /// Meanwhile the hub queues further records up to its limit, and then refuses publications.
    pub(super) fn write_history(&mut self) {
        let Some(ledger) = &mut self.ledger else {
            return;
        };
        let records = match ledger.held.take() {
            Some(records) => records,
            None => match self.worker.poll_history() {
                Some(batch) => records_of(batch),
                None => return,
            },
        };
        match ledger.writer.append(records) {
            Ok(_) => {}
            Err(AppendError::Full(records)) => ledger.held = Some(records),
            // The archive closes at the end of the process: requests that wait for it end with the process.
            Err(AppendError::Closed(_)) if self.common.history.is_closing() => self.ledger = None,
            Err(AppendError::Closed(_)) => self.archive_has_ended(),
        }
    }

    /// Ends the process, because the archive's thread has died due to a bug, and only a new process
    /// can recover.
    fn archive_has_ended(&self) -> ! {
        error!(
            worker = self.index(),
            "the thread that writes the history has ended: aborting the process"
        );
        eprintln!(
            "veche: worker {}: the thread that writes the history has ended",
            self.index()
        );
        std::thread::sleep(std::time::Duration::from_millis(200));
        std::process::abort();
    }
}
