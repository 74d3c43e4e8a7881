//! Names and sizes of the outboxes' queues, for tests that check that nothing is left when the worker is idle.

use super::Outboxes;

impl Outboxes {
    /// Returns the names and sizes of the queues that are not empty. All are empty once the worker has finished its
    /// work and the clients have read everything.
    pub fn queue_lengths(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let live = || self.boxes.iter().filter(|one| one.generation != u32::MAX);
        let buffered = live().map(|one| one.buffer.len()).sum::<usize>();
        let unsent: u64 = live().map(|one| u64::from(one.unsent)).sum();
        let corked = live().filter(|one| one.corked).count();
        let full = live().filter(|one| one.full).count();
        let (backlogs, unwatched) = self.backlogs.sizes();
        [
            ("touched outboxes", self.touched.len() as u64),
            ("overflowed outboxes", self.overflowed.len() as u64),
            ("outboxes fallen behind", self.fallen_behind.len() as u64),
            ("filled outboxes", self.filled.len() as u64),
            ("drained outboxes", self.drained.len() as u64),
            ("corked outboxes", corked as u64),
            ("full outboxes", full as u64),
            ("buffered bytes", buffered as u64),
            ("unsent bytes", unsent),
            ("backlogs", backlogs as u64),
            ("backlogs to check", unwatched as u64),
            ("early pushes", self.push_state.sessions_with_early() as u64),
        ]
        .into_iter()
        .filter(|(_, count)| *count > 0)
    }

    /// Returns the names of the kinds of state that sessions hold, each with the number of its entries.
    /// Kinds without entries are left out, so the result is empty once all sessions have ended.
    pub fn session_state_counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let (backlogs, _) = self.backlogs.sizes();
        [
            ("backlogs", backlogs as u64),
            ("early pushes", self.push_state.sessions_with_early() as u64),
            (
                "cursors and subscription options",
                self.push_state.sessions_with_state() as u64,
            ),
        ]
        .into_iter()
        .filter(|(_, count)| *count > 0)
    }
}
