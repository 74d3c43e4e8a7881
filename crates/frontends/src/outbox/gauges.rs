//! What outboxes have under way, by name: for tests of what must be empty once all is quiet.

use super::Outboxes;

impl Outboxes {
    /// Queues that are not empty, each with how much is in it. There is none once the worker has done what they ask for
    /// and clients have read what they are sent.
    pub fn queue_lengths(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let live = || self.boxes.iter().filter(|one| one.generation != u32::MAX);
        let buffered = live().map(|one| one.buffer.len()).sum::<usize>();
        let unsent: u64 = live().map(|one| u64::from(one.unsent)).sum();
        let (backlogs, unwatched) = self.backlogs.sizes();
        [
            ("touched outboxes", self.touched.len() as u64),
            ("overflowed outboxes", self.overflowed.len() as u64),
            ("filled outboxes", self.filled.len() as u64),
            ("drained outboxes", self.drained.len() as u64),
            ("buffered bytes", buffered as u64),
            ("unsent bytes", unsent),
            ("backlogs", backlogs as u64),
            ("backlogs to be looked at", unwatched as u64),
            ("early pushes", self.push_state.sessions_with_early() as u64),
        ]
        .into_iter()
        .filter(|(_, count)| *count > 0)
    }

    /// What there is because of sessions, not counting zeros: nothing once all of them have ended.
    pub fn session_state_counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let (backlogs, _) = self.backlogs.sizes();
        [
            ("backlogs", backlogs as u64),
            ("early pushes", self.push_state.sessions_with_early() as u64),
            (
                "marks and wishes",
                self.push_state.sessions_with_state() as u64,
            ),
        ]
        .into_iter()
        .filter(|(_, count)| *count > 0)
    }
}
