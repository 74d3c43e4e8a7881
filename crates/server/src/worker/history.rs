//! Between the hub and the archive: a turn's batch goes there, and the hub hears how far it is durable.

use tracing::error;
use veche_archive::{AppendError, Record};

use super::host::HistoryLog;
use super::{WorkerApps, WorkerState};
use crate::history::records_of;

/// A worker's way into the archive.
pub(super) struct HistoryWriter {
    writer: Box<dyn HistoryLog>,
    /// A batch that did not fit; it goes before all others.
    held: Option<Vec<Record>>,
}

impl HistoryWriter {
    pub(super) fn new(writer: Box<dyn HistoryLog>) -> Self {
        Self { writer, held: None }
    }

    /// Nothing becomes durable now; the archive says when that is over.
    pub(super) fn is_failing(&self) -> bool {
        self.writer.is_failing()
    }
}

impl<A: WorkerApps> WorkerState<A> {
    /// What has become durable goes on.
    pub(super) fn take_durable_history(&mut self) {
        let Some(ledger) = &mut self.ledger else {
            return;
        };
        // Looked at first: what was durable before the end is heard of.
        let is_closed = ledger.writer.is_closed();
        self.worker.set_log_failing(ledger.is_failing());
        if let Some(durable) = ledger.writer.durable() {
            self.worker.handle_durable(durable.batch);
        }
        if is_closed && !self.common.history.is_closing() {
            self.archive_has_ended();
        }
    }

    /// Hands over what the turn has brought. While the archive takes nothing, the hub keeps what comes, as far as it
    /// has room: the archive wakes us when there is some.
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
            // Whoever waits goes with the process.
            Err(AppendError::Closed(_)) if self.common.history.is_closing() => self.ledger = None,
            Err(AppendError::Closed(_)) => self.archive_has_ended(),
        }
    }

    /// Its thread has ended by a fault of ours: a process that begins anew has one again.
    fn archive_has_ended(&self) -> ! {
        error!(worker = self.index(), "the archive of history has ended");
        eprintln!(
            "veche: worker {}: the archive of history has ended",
            self.index()
        );
        std::thread::sleep(std::time::Duration::from_millis(200));
        std::process::abort();
    }
}
