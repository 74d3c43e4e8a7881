//! Names and sizes of a worker's pending work, for tests that check that nothing is left when it is idle.

use crate::apps::AppHost;
use crate::worker::Worker;

impl<A: AppHost, T> Worker<A, T> {
    /// Iterates over the queues, counters and reservations of the worker, its hub and its requests that are not empty,
    /// with their sizes. There are none when the worker is idle, all messages were handled, no peer waits for credit
    /// or for the log, and all clients read. The outboxes are left out, since bytes for a peer that does not read stay there
    /// ([`Outboxes::queue_lengths`](veche_frontends::outbox::Outboxes::queue_lengths)).
    pub fn pending_work(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let own = [
            ("transport commands", self.commands.len() as u64),
            ("requests to the outside", self.requests.len() as u64),
            ("mail of the worker itself", self.outgoing.len() as u64),
            ("connections to be resumed", self.resumable.len() as u64),
            ("outboxes being written", self.touched.len() as u64),
            (
                "connections being asked for output",
                self.unsent.len() as u64,
            ),
            ("channel events", self.channel_events.len() as u64),
            ("lost channel events", self.lost_events),
            ("unfinished turns", self.has_writes.into()),
        ];
        let hub = self.shared.hub.pending_work();
        let requests = self.shared.requests.queue_lengths();
        let waiting = self.shared.waiting_counts();
        let own = own.into_iter().filter(|(_, count)| *count > 0);
        hub.chain(requests).chain(waiting).chain(own)
    }
}
