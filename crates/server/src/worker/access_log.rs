//! Collects the access log entries of a turn and passes them to the log's writer together.

use veche_frontends::access_log_buffer::AccessLogEntry;

use super::{WorkerApps, WorkerState};
use crate::access_log::AccessLogWriter;

/// The access log of this worker: its writer and its buffers.
#[derive(Default)]
pub(super) struct AccessLogBatch {
    writer: Option<AccessLogWriter>,
    /// The entries of one turn. This buffer and `lines` are reused in each turn.
    done: Vec<AccessLogEntry>,
    lines: Vec<u8>,
}

impl<A: WorkerApps> WorkerState<A> {
    /// Applies the current configuration of the access log.
    pub(super) fn begin_access_log(&mut self) {
        self.access_log.writer = self.common.access.writer();
        let choice = self.access_log.writer.as_ref().map(|writer| writer.choice);
        // The seed need not be secret; it should only differ between workers.
        let seed = self.index() as u64 ^ self.worker.shared().now.wall_ms;
        let access_log = &mut self.worker.shared_mut().requests.outboxes.access_log;
        access_log.set_filter(choice, seed);
    }

    pub(super) fn write_access_log(&mut self) {
        let AccessLogBatch {
            writer,
            done,
            lines,
        } = &mut self.access_log;
        let outboxes = &mut self.worker.shared_mut().requests.outboxes;
        outboxes.access_log.take_entries(done);
        if done.is_empty() {
            return;
        }
        match writer {
            Some(writer) => writer.write(done, lines),
            // The log was switched off in the meantime.
            None => done.clear(),
        }
    }
}
