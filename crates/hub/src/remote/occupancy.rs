//! The channels of this home that have subscribers, as recorded in the store. When a channel gets its first subscriber
//! in the whole cluster, or loses the last one, exactly one node reports the event.
//!
//! The changes of a channel are recorded one at a time. A change that can't be recorded waits for a connection, however
//! long.

use std::sync::Arc;

use veche_nodes::engine::channel as wire;

use super::{RemoteEngine, Task};
use crate::engine::{EngineReport, OccupancyReport};

impl RemoteEngine {
    pub(super) fn note_occupancy(&mut self, channel: &Arc<str>, is_occupied: bool) {
        let occupancy = wire::Occupancy {
            ticket: 0,
            channel: Arc::clone(channel),
            is_occupied,
            is_repeated: false,
        };
        self.unrecorded.push_back(Box::new(occupancy));
        if self.unrecorded.len() == 1 {
            self.record();
        }
    }

    /// Sends each waiting change, unless an earlier change of the same channel was sent and is not answered yet.
    pub(super) fn record(&mut self) {
        for occupancy in std::mem::take(&mut self.unrecorded) {
            match self.recording.insert(Arc::clone(&occupancy.channel)) {
                true => self.order(Task::Occupancy(occupancy)),
                false => self.unrecorded.push_back(occupancy),
            }
        }
    }

    /// Queues a change of a channel's occupancy again, because the store may not have recorded it.
    pub(super) fn requeue_unrecorded(&mut self, occupancy: Box<wire::Occupancy>) {
        self.recording.remove(&occupancy.channel);
        // The change must precede later ones of its channel.
        self.unrecorded.push_front(occupancy);
    }

    pub(super) fn occupancy(&mut self, ticket: u64, outcome: Option<(bool, u64)>) {
        let Some((_, Task::Occupancy(occupancy))) = self.waiting.take(ticket) else {
            return;
        };
        let Some((is_changed, at_ms)) = outcome else {
            return self.requeue_unrecorded(occupancy);
        };
        self.recording.remove(&occupancy.channel);
        self.reports
            .push_back(EngineReport::Occupancy(OccupancyReport {
                channel: occupancy.channel,
                is_occupied: occupancy.is_occupied,
                is_changed,
                at_ms,
                is_of_expired_lease: false,
            }));
    }

    /// Reports a channel as vacated, because its last subscribers were on a node whose lease has ended.
    pub(super) fn vacated_elsewhere(&mut self, channel: Arc<str>, at_ms: u64) {
        self.reports
            .push_back(EngineReport::Occupancy(OccupancyReport {
                channel,
                is_occupied: false,
                is_changed: true,
                at_ms,
                is_of_expired_lease: true,
            }));
    }
}
