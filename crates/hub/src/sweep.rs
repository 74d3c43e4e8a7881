//! Fan-out on this worker: a publication is delivered to a few subscribers immediately, and to many by a sweep over
//! several turns.
//!
//! A sweep covers a batch: all publications that are queued on a channel when the sweep starts. Each subscriber gets
//! the whole batch before the next subscriber gets any of it, so the publications of a turn leave in one write per
//! connection.

use crate::channel::Channel;
use crate::payload::OrderedPublication;
use crate::queue::QueuedPublication;
use crate::subscription::NONE;
use crate::{
    ConnectionId, Delivery, Encodings, Engine, Hub, HubMessageClass, IMMEDIATE_MAX, Outlet,
    Payload, Publication, WorkerId,
};

/// Number of deliveries for one channel after which the next channel gets its turn.
const SLICE_DELIVERIES_MAX: usize = 512;

/// Maximum number of empty queues kept for reuse.
const SPARE_QUEUES_MAX: usize = 16;

impl<E: Engine> Hub<E> {
    /// Continues the fan-outs in progress, round robin between channels, with at most `deliveries_max` deliveries, and
    /// retries stalled publications. Returns whether work is left that does not wait for credit, such as deliveries;
    /// the next turn must then begin immediately and call `sweep` again.
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
        // The sweep may have made room in the queues, and no other call would retry the stalled publications.
        let ended_early = self.retry_stalled(outlet);
        has_more_to_tell || ended_early || !self.queued_channels.is_empty()
    }

    /// Returns whether a [`sweep`](Self::sweep) would make progress now.
    pub fn needs_sweep(&self) -> bool {
        !self.queued_channels.is_empty() || self.join_leave_queue.may_progress()
    }

    /// On the subscriber's worker: handles a publication from a home on another worker.
    ///
    /// The publication is queued even if the queue's limits are reached. It keeps its credit until its sweep ends, so
    /// the credits of the lane limit the number of such publications.
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
            // The last subscriber has left, but the home has not processed its unsubscription yet.
            None => outlet.return_credit(from, HubMessageClass::Deliver),
        }
    }

    /// Returns whether a publication could be delivered immediately or be queued.
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

    /// On the subscriber's worker: delivers a publication to the live subscribers, immediately or by a sweep.
    pub(crate) fn fan_out(
        &mut self,
        index: u32,
        mut ordered: OrderedPublication<'_>,
        from: Option<WorkerId>,
        outlet: &mut impl Outlet,
    ) {
        let channel = &mut self.channels[index];
        // A publication with a position must not be dropped, even if the namespace has gained the option to drop
        // publications.
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

    /// Removes the batch from the channel's queue after its sweep. Returns whether more publications are queued.
    fn end_sweep(&mut self, index: u32, outlet: &mut impl Outlet) -> bool {
        let channel = &mut self.channels[index];
        let queue = channel
            .queue
            .as_mut()
            .expect("a channel with a publication in delivery must have a queue");
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

/// Returns whether a publication to the channel can be delivered immediately: the channel has few subscribers, and no
/// earlier publication is queued.
fn is_immediate(channel: &Channel) -> bool {
    channel.queue.is_none() && channel.subscribers.len() <= IMMEDIATE_MAX
}

/// Makes at most `deliveries_max` deliveries of the channel's batch, and starts a batch if none is in progress. Returns
/// the number of deliveries made and whether the batch is finished.
fn sweep_slice(
    channel: &mut Channel,
    session: impl Fn(u32) -> ConnectionId,
    deliveries_max: usize,
    outlet: &mut impl Outlet,
) -> (usize, bool) {
    let queue = channel
        .queue
        .as_mut()
        .expect("a channel with a publication in delivery must have a queue");
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
                // Publications that were ordered before this subscriber arrived are not for it.
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
