//! The access log's part of a turn: completed entries are passed on together.

use veche_frontends::journal::Entry;

use super::{Host, Rest};
use crate::access_log::Scribe;

/// This worker's buffer of the access log.
#[derive(Default)]
pub(super) struct Journal {
    scribe: Option<Scribe>,
    /// Reused buffers.
    done: Vec<Entry>,
    lines: Vec<u8>,
}

impl<A: Host> Rest<A> {
    /// Applies the current configuration of the log.
    pub(super) fn begin_journal(&mut self) {
        self.journal.scribe = self.common.access.scribe();
        let choice = self.journal.scribe.as_ref().map(|scribe| scribe.choice);
        // Sampling needs no secret seed; it should only differ between workers.
        let seed = self.me() as u64 ^ self.worker.shared().now.wall_ms;
        let journal = &mut self.worker.shared_mut().ports.outboxes.journal;
        journal.set_choice(choice, seed);
    }

    pub(super) fn write_journal(&mut self) {
        let Journal {
            scribe,
            done,
            lines,
        } = &mut self.journal;
        let outboxes = &mut self.worker.shared_mut().ports.outboxes;
        outboxes.journal.take_done(done);
        if done.is_empty() {
            return;
        }
        match scribe {
            Some(scribe) => scribe.write(done, lines),
            // The log was switched off in the meantime.
            None => done.clear(),
        }
    }
}
