//! What the hub has noted for the back end, handed to the process.

use super::Rest;

impl Rest {
    /// To be called once a turn.
    pub(super) fn note_events(&mut self) {
        let mut happenings = std::mem::take(&mut self.happenings);
        let lost = self.shared.hub.take_happenings(&mut happenings);
        if lost > 0 || !happenings.is_empty() {
            self.busy |= self.with_here(|here, _| here.happened(&happenings, lost));
            self.common.events.note(&mut happenings, lost);
        }
        self.happenings = happenings;
    }
}
