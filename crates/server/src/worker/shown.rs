//! What the operator sees of a worker: gauges for whoever scrapes, notes for the log.

use tracing::{info, warn};
use veche_frontends::{Note, NoteLevel};

use super::{LOG, Rest};

impl Rest {
    /// Shows the hub's gauges to whoever scrapes.
    pub(super) fn show_counts(&self) {
        let counts = self.shared.hub.counts();
        let stats = &self.shared.stats;
        stats.channels.set(u64::from(
            counts.channels - counts.users.min(counts.channels),
        ));
        stats.users.set(u64::from(counts.users));
        stats.subscriptions.set(u64::from(counts.subscriptions));
        stats.fanned_out.set(self.shared.hub.handed_total());
        stats.streams.set(u64::from(counts.streams));
        stats.history_bytes.set(counts.history_bytes);
        stats.history_pending.set(u64::from(counts.pending));
        stats.history_evicted.set(self.shared.hub.evicted_total());
        stats.joins_untold.set(self.shared.hub.untold_total());
    }

    /// Writes down what connections noted.
    pub(super) fn log(&mut self) {
        for Note {
            session,
            level,
            what,
        } in self.shared.notes.drain(..)
        {
            let peer = self.slots.find(session).map(|slot| slot.connection.peer);
            let peer = peer.map_or_else(String::new, |peer| peer.to_string());
            match level {
                NoteLevel::Info => info!(target: LOG, worker = self.me, %peer, "{what}"),
                NoteLevel::Warn => warn!(target: LOG, worker = self.me, %peer, "{what}"),
            }
        }
        while let Some((dropped, last)) = self.shared.take_dropped_notes() {
            warn!(
                target: LOG,
                worker = self.me,
                dropped, "{dropped} more of this kind were not logged: {last}"
            );
        }
    }
}
