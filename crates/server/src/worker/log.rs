//! Logs the events that connections have recorded.

use tracing::{info, warn};
use veche_frontends::{LogNote, NoteLevel};

use super::{LOG, WorkerApps, WorkerState};

impl<A: WorkerApps> WorkerState<A> {
    /// Logs the events recorded by connections.
    pub(super) fn log(&mut self) {
        for LogNote {
            session,
            level,
            text: what,
        } in std::mem::take(&mut self.worker.shared_mut().log_notes)
        {
            let peer = self.worker.connection(session);
            let peer = peer.map(|connection| connection.peer);
            let peer = peer.map_or_else(String::new, |peer| peer.to_string());
            match level {
                NoteLevel::Info => info!(target: LOG, worker = self.index(), %peer, "{what}"),
                NoteLevel::Warn => warn!(target: LOG, worker = self.index(), %peer, "{what}"),
            }
        }
        while let Some((dropped, last)) = self.worker.shared_mut().take_dropped_log_notes() {
            warn!(
                target: LOG,
                worker = self.index(),
                dropped, "{dropped} more lines of this kind were not logged; the last one: {last}"
            );
        }
    }
}
