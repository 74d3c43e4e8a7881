//! Fan-out on this worker: immediate for a few subscribers, by resumable sweeps for many.
//!
//! A sweep covers a batch: all publications queued on a channel when it starts. Each subscriber gets the whole batch
//! before the next one gets any, so the publications of a turn leave in one write per connection.

use crate::channel::Channel;
use crate::payload::OrderedPublication;
use crate::queue::QueuedPublication;
use crate::subscription::NONE;
use crate::{
    ConnectionId, Delivery, Encodings, Engine, Hub, HubMessageClass, IMMEDIATE_MAX, Outlet,
    Payload, Publication, WorkerId,
};

/// Number of deliveries after which another channel gets its turn.
const SLICE_DELIVERIES_MAX: usize = 512;

/// Maximum number of empty queues kept for reuse.
const SPARE_QUEUES_MAX: usize = 16;

impl<E: Engine> Hub<E> {
    /// Continues the fan-outs in progress, round robin between channels, for at most `deliveries_max` deliveries, and
    /// retries stalled publications. Returns whether deliveries are left: then call it again in the next turn, without
    /// waiting. Publications that are still stalled wait for credit and need no early turn.
    pub fn sweep(&mut self, deliveries_max: usize, outlet: &mut impl Outlet) -> bool {
        let has_more_to_tell = self.send_join_leaves(outlet);
        let mut left = deliveries_max;
        while left > 0
            && let Some(index) = self.queued_channels.pop_front()
        {
            let slice = left.min(SLICE_DELIVERIES_MAX);
            let (used, is_over) = sweep_slice(
                &mut self.channels[index],
                |slot| self.subscriptions.session(slot),
                slice,
                outlet,
            );
            left -= used;
            if !is_over || self.end_sweep(index, outlet) {
                self.queued_channels.push_back(index);
            }
        }
        // Queues have room again, and nothing else would trigger a retry.
        let ended_early = self.retry_stalled(outlet);
        has_more_to_tell || ended_early || !self.queued_channels.is_empty()
    }

    /// Returns whether the next [`sweep`](Self::sweep) has work that needs nothing but the call.
    pub fn needs_sweep(&self) -> bool {
        !self.queued_channels.is_empty() || self.join_leave_queue.may_progress()
    }

    /// Local: handles a publication from a home on another worker.
    ///
    /// It is queued regardless of the queue's limits: it keeps its credit until its sweep ends, so the credits of that
    /// lane are its limit.
    pub(crate) fn receive_deliver(
        &mut self,
        from: WorkerId,
        channel: &str,
        publication: Publication,
        previous: Option<Payload>,
        outlet: &mut impl Outlet,
    ) {
        let ordered = OrderedPublication {
            previous,
            ..publication.into()
        };
        match self.find(channel) {
            Some(index) => self.fan_out(index, ordered, Some(from), outlet),
            // The last subscriber has left; the home doesn't know yet.
            None => outlet.return_credit(from, HubMessageClass::Deliver),
        }
    }

    /// Returns whether a publication could be delivered immediately or queued.
    pub(crate) fn has_queue_room(&self, channel: &Channel) -> bool {
        match &channel.queue {
            None if is_immediate(channel) => true,
            None => self.queued_bytes < self.options.queue_bytes_max,
            Some(queue) => {
                self.queued_bytes < self.options.queue_bytes_max
                    && queue.waiting.len() < self.options.channel_queue_publications_max
            }
        }
    }

    /// Local: delivers a publication to the live subscribers, immediately or by a sweep.
    pub(crate) fn fan_out(
        &mut self,
        index: u32,
        mut ordered: OrderedPublication<'_>,
        from: Option<WorkerId>,
        outlet: &mut impl Outlet,
    ) {
        let channel = &mut self.channels[index];
        // A publication with a position must not be lost, even if the namespace has changed meanwhile.
        let slow_miss =
            ordered.position.is_none() && self.namespaces.drops_when_slow(&channel.name);
        if is_immediate(channel) {
            self.scratch.clear();
            let subscribers = channel.subscribers.as_slice();
            let mut delivery = Delivery {
                channel: &channel.name,
                payload: ordered.payload.borrow(),
                position: ordered.position,
                at_ms: ordered.at_ms,
                event: ordered.event,
                info: ordered.info.as_deref(),
                previous: ordered.previous.as_ref().map(Payload::borrow),
                encodings: &mut self.scratch,
                receivers: subscribers.len() as u32,
                drop_when_slow: slow_miss,
            };
            for slot in subscribers {
                outlet.deliver(self.subscriptions.session(*slot), &mut delivery);
            }
            if let Some(from) = from {
                outlet.return_credit(from, HubMessageClass::Deliver);
            }
            return;
        }

        let publication = ordered.to_publication();
        self.queued += 1;
        self.queued_bytes += publication.payload.bytes.len();
        let receivers = channel.local_subscribers() as u32;
        let audience = channel.subscribers.len() as u32;
        let queue = channel.queue.get_or_insert_with(|| {
            self.queued_channels.push_back(index);
            self.spare_queues.pop().unwrap_or_default()
        });
        queue.waiting.push_back(QueuedPublication {
            publication,
            previous: ordered.previous,
            encodings: Encodings::default(),
            subscribers_below: audience,
            receivers,
            drop_when_slow: slow_miss,
            from,
        });
    }

    /// Removes the swept batch from the channel's queue. Returns whether more is queued.
    fn end_sweep(&mut self, index: u32, outlet: &mut impl Outlet) -> bool {
        let channel = &mut self.channels[index];
        let queue = channel.queue.as_mut().expect("busy channels have a queue");
        for queued in queue.waiting.drain(..queue.batch) {
            self.queued -= 1;
            self.queued_bytes -= queued.publication.payload.bytes.len();
            if let Some(from) = queued.from {
                outlet.return_credit(from, HubMessageClass::Deliver);
            }
        }
        queue.batch = 0;
        self.join_leave_queue.mark_unblocked();

        let is_empty = queue.waiting.is_empty();
        let is_sparse = queue.tombstones * 2 >= channel.subscribers.len();
        if queue.tombstones > 0 && (is_empty || is_sparse) {
            queue.compact(&mut channel.subscribers);
            for (place, slot) in channel.subscribers.as_slice().iter().enumerate() {
                self.subscriptions.set_place(*slot, place as u32);
            }
        }
        if !is_empty {
            return true;
        }
        if let Some(queue) = channel.queue.take()
            && self.spare_queues.len() < SPARE_QUEUES_MAX
        {
            self.spare_queues.push(queue);
        }
        self.channels.release(index);
        false
    }
}

/// Returns whether there are few subscribers and no earlier publication is queued.
fn is_immediate(channel: &Channel) -> bool {
    channel.queue.is_none() && channel.subscribers.len() <= IMMEDIATE_MAX
}

/// Delivers at most `deliveries_max` of the channel's batch, starting a batch if none is in progress. Returns the
/// number of deliveries and whether the batch is finished.
fn sweep_slice(
    channel: &mut Channel,
    session: impl Fn(u32) -> ConnectionId,
    deliveries_max: usize,
    outlet: &mut impl Outlet,
) -> (usize, bool) {
    let queue = channel.queue.as_mut().expect("busy channels have a queue");
    if queue.batch == 0 {
        queue.begin();
    }
    let batch = queue.batch;
    let end = queue.waiting[batch - 1].subscribers_below;
    let mut used = 0;
    while queue.cursor < end {
        let slot = channel.subscribers.as_slice()[queue.cursor as usize];
        if slot != NONE {
            let session = session(slot);
            while queue.next < batch {
                let queued = &mut queue.waiting[queue.next];
                // Earlier publications were ordered before this subscriber arrived.
                if queue.cursor < queued.subscribers_below {
                    if used == deliveries_max {
                        return (used, false);
                    }
                    used += 1;
                    let mut delivery = Delivery {
                        channel: &channel.name,
                        payload: queued.publication.payload.borrow(),
                        position: queued.publication.position,
                        at_ms: queued.publication.at_ms,
                        event: queued.publication.event,
                        info: queued.publication.info.as_deref(),
                        previous: queued.previous.as_ref().map(Payload::borrow),
                        encodings: &mut queued.encodings,
                        receivers: queued.receivers,
                        drop_when_slow: queued.drop_when_slow,
                    };
                    outlet.deliver(session, &mut delivery);
                }
                queue.next += 1;
            }
        }
        queue.cursor += 1;
        queue.next = 0;
    }
    (used, true)
}
