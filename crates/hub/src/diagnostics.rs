//! Lists work in progress, and resources held for sessions, by name. Tests check that both lists
//! are empty when there is no work and no session.

use crate::{Engine, Hub};

impl<E: Engine> Hub<E> {
    /// Iterates over the queues, counters and reservations that are not empty, with their sizes. There are none once no
    /// message is in flight, nothing waits for credit or for the log, and all sweeps are done. Takes time proportional
    /// to the number of channels.
    pub fn pending_work(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let gauges = self.engine.gauges();
        let [without_credit, full_homes] = self.log_backpressure.sizes();
        let channels = || self.channels.iter();
        let with_queue = channels().filter(|one| one.queue.is_some()).count();
        let waiting: u64 = channels().map(|one| u64::from(one.waiting)).sum();
        let joins = self
            .joins
            .keys()
            .map(|index| u64::from(self.pending_joins(*index)));
        let unslotted = self.unslotted.values().map(|count| u64::from(*count));
        let occupied = channels().filter(|one| one.home.is_local() && one.total_subscribers() > 0);
        let gone = channels().map(|one| one.subscribers.as_slice().len() - one.local_subscribers());
        [
            ("queued publications", self.queued as u64),
            ("queued bytes", self.queued_bytes as u64),
            ("channels in turn", self.queued_channels.len() as u64),
            ("channels with a queue", with_queue as u64),
            ("waiting on channels", waiting),
            ("cancelled entries", gone.sum::<usize>() as u64),
            ("stalled publications", self.stalled.len() as u64),
            ("reserved lanes", self.stalled.reserved_count() as u64),
            (
                "publications waiting to be written to disk",
                gauges.waiting as u64,
            ),
            (
                "publications queued behind writes to disk",
                self.reports() as u64,
            ),
            (
                "bytes waiting to be written to disk",
                gauges.waiting_bytes as u64,
            ),
            ("subscriptions waiting for the engine", joins.sum()),
            ("requests to the engine without a slot", unslotted.sum()),
            ("publications stalled without a credit", without_credit),
            ("homes with a full log", full_homes),
            ("announcements", self.join_leave_queue.queued() as u64),
            (
                "channels counted wrong",
                (occupied.count() as u64).abs_diff(self.occupied.into()),
            ),
        ]
        .into_iter()
        .filter(|(_, count)| *count > 0)
    }

    /// Iterates over the kinds of resources that sessions hold, with their amounts. Kinds with the amount 0 are
    /// omitted. There are none once all sessions have ended and all leave delays have passed.
    pub fn session_resources(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let [members, all_members, leaving] = self.presence.sizes();
        [
            ("subscriptions", self.subscriptions.len().into()),
            ("channels with subscribers", self.occupied.into()),
            ("users", self.users.into()),
            ("members", members as u64),
            ("channels with members", all_members as u64),
            ("users within their leave delay", leaving as u64),
        ]
        .into_iter()
        .filter(|(_, count)| *count > 0)
    }
}
