//! Queues for the feed of an engine that may lose, repeat and reorder items. The queues put the items in order and
//! close gaps.
//!
//! A channel has a queue while its items wait for a read or for room in a lane. The queue is sorted by offset; an item
//! is delivered when its predecessor is the item delivered last.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::channel::Home;
use crate::engine::{FeedItem, HistoryRead, HistorySegment, ReadStart};
use crate::payload::OrderedPublication;
use crate::subscription::NONE;
use crate::{Engine, Hub, HubMessage, Outlet, Position};

/// Maximum number of items in one queue. Beyond it the item with the highest offset is dropped; the successor of that
/// item then reveals the gap.
const QUEUED_MAX: usize = 4096;

/// The feed queues by the index of the channel's entry.
pub(crate) type FeedQueues = BTreeMap<u32, FeedQueue>;

#[derive(Debug, Default)]
pub(crate) struct FeedQueue {
    items: BTreeMap<u64, Box<FeedItem>>,
    /// The read in progress that closes a gap, and the position after which it reads.
    reading: Option<(HistoryRead, Position)>,
    /// The offset after which the last successful read began. If the item after this offset is still missing, the store
    /// does not have it.
    healed: Option<u64>,
}

impl FeedQueue {
    /// Returns whether a read that closes a gap is in progress.
    pub(crate) fn is_healing(&self) -> bool {
        self.reading.is_some()
    }

    fn push(&mut self, offset: u64, item: Box<FeedItem>) {
        self.items.insert(offset, item);
        if self.items.len() > QUEUED_MAX {
            self.items.pop_last();
        }
    }
}

impl<E: Engine> Hub<E> {
    /// At the channel's home: receives an item that another node has published, or an item of this node whose publisher
    /// already has its reply.
    pub(crate) fn receive_item(&mut self, item: Box<FeedItem>, outlet: &mut impl Outlet) {
        let Some(index) = self.entry_to_feed(&item.channel) else {
            return;
        };
        let Some(position) = item.publication.position else {
            self.feed(index, item.publication.into(), outlet);
            return self.channels.release(index);
        };
        let slot = self.open_stream(index);
        let last = self.engine.position(slot);
        if position.epoch != last.epoch || position.offset <= last.offset {
            // The item was already delivered, or is of another epoch. The end of an epoch is reported separately.
            return;
        }
        let line = self.feed_queues.entry(index).or_default();
        line.push(position.offset, item);
        self.advance_feed_queue(index, outlet);
    }

    /// At the channel's home: returns the entry of an item's channel, and creates the entry if the item is needed only
    /// for wildcard subscribers. Returns `None` if there are no subscribers at all.
    fn entry_to_feed(&mut self, channel: &Arc<str>) -> Option<u32> {
        let found = self.find(channel);
        if found.is_some() || self.wildcard_entry(channel).is_none() {
            return found;
        }
        let hash = self.channels.hash(channel);
        Some(self.channels.insert(hash, Arc::clone(channel), Home::LOCAL))
    }

    /// At the channel's home: handles the result of a read, which was requested to close a gap or for pending
    /// subscriptions.
    pub(crate) fn receive_segment(
        &mut self,
        channel: &str,
        read: HistoryRead,
        chain: Option<Box<HistorySegment>>,
        outlet: &mut impl Outlet,
    ) {
        let Some(index) = self.find(channel) else {
            return;
        };
        let chain = chain.as_deref();
        let reading = self.feed_queues.get(&index).and_then(|line| line.reading);
        match reading {
            Some((healing, since)) if healing == read => {
                self.fill_gap(index, since, chain, outlet);
                self.start_join_read(index);
            }
            _ => self.complete_joins(index, read, chain, outlet),
        }
    }

    /// At the channel's home: requests the items after the last delivered one, to close a gap. Does nothing if such a
    /// read is already in progress.
    pub(crate) fn request_gap(&mut self, index: u32, slot: u32) {
        let last = self.engine.position(slot);
        let line = self.feed_queues.entry(index).or_default();
        if line.reading.is_none() {
            let read = self.reads.next(ReadStart::Since(last.offset), true);
            line.reading = Some((read, last));
            self.engine.read_since(slot, read);
        }
    }

    /// At the channel's home: handles the result of a read that was requested to close a gap. Queues the items that
    /// were read. If they do not continue after the last delivered item without a gap, skips the gap.
    fn fill_gap(
        &mut self,
        index: u32,
        since: Position,
        chain: Option<&HistorySegment>,
        outlet: &mut impl Outlet,
    ) {
        let Some(line) = self.feed_queues.get_mut(&index) else {
            return;
        };
        line.reading = None;
        let chain = chain.filter(|chain| chain.top.epoch == since.epoch);
        match chain.and_then(|chain| chain.after(since.offset)) {
            Some(missing) => {
                line.healed = Some(since.offset);
                for (before, publication) in missing {
                    let Some(position) = publication.position else {
                        continue;
                    };
                    let item = FeedItem {
                        channel: Arc::clone(&self.channels[index].name),
                        publication: publication.clone(),
                        predecessor: before,
                    };
                    line.items.insert(position.offset, Box::new(item));
                }
                self.advance_feed_queue(index, outlet);
            }
            None => self.skip_gap(index, None, outlet),
        }
    }

    /// At the channel's home: delivers all queued items that need not wait for a read or for room in a lane.
    pub(crate) fn advance_feed_queues(&mut self, outlet: &mut impl Outlet) {
        let mut next = 0;
        while let Some((&index, _)) = self.feed_queues.range(next..).next() {
            self.advance_feed_queue(index, outlet);
            next = index + 1;
        }
    }

    /// At the channel's home: delivers items of a queue until one has to wait for a read or for room in a lane.
    fn advance_feed_queue(&mut self, index: u32, outlet: &mut impl Outlet) {
        let Some(slot) = self.channels[index].home.stream() else {
            return;
        };
        while let Some(line) = self.feed_queues.get_mut(&index) {
            if line.reading.is_some() {
                return;
            }
            let last = self.engine.position(slot);
            let Some(entry) = line.items.first_entry() else {
                self.feed_queues.remove(&index);
                return;
            };
            if *entry.key() <= last.offset {
                entry.remove();
                continue;
            }
            if entry.get().predecessor != last.offset {
                if line.healed.is_some_and(|healed| healed == last.offset) {
                    let before = Position {
                        offset: entry.get().predecessor,
                        ..last
                    };
                    return self.skip_gap(index, Some(before), outlet);
                }
                return self.request_gap(index, slot);
            }
            if let Some(blocked) = self.blocked_by_room(index, outlet) {
                return self.reserve(index, blocked);
            }
            let Some((_, item)) = self
                .feed_queues
                .get_mut(&index)
                .and_then(|line| line.items.pop_first())
            else {
                return;
            };
            let previous = self.before_delivery(index, &item.publication, None);
            let ordered = OrderedPublication {
                previous,
                ..item.publication.into()
            };
            self.feed(index, ordered, outlet);
            self.join_leave_queue.mark_unblocked();
        }
    }

    /// At the channel's home: abandons missing publications and notifies subscribers. The feed continues after
    /// `position`; with `None`, it continues with the first queued item.
    pub(crate) fn skip_gap(
        &mut self,
        index: u32,
        position: Option<Position>,
        outlet: &mut impl Outlet,
    ) {
        let slot = self.channels[index].home.stream();
        match (slot, position, self.feed_queues.get_mut(&index)) {
            (Some(slot), Some(position), Some(_)) => self.engine.resume(slot, position),
            (Some(slot), None, Some(line)) => {
                // The feed continues with the first item after the gap.
                if let Some(first) = line.items.values().next() {
                    let last = self.engine.position(slot);
                    let offset = first.predecessor;
                    self.engine.resume(slot, Position { offset, ..last });
                }
            }
            _ => {}
        }
        let wildcard = self.wildcard_entry(&self.channels[index].name);
        // Marks the channel's entry as in use. Otherwise it would be removed when its subscriptions end below, but it
        // is needed afterwards.
        self.channels[index].waiting += 1;
        for index in wildcard.into_iter().chain([index]) {
            let channel = &self.channels[index];
            for share in channel.remote_subscribers.as_slice() {
                let channel = Arc::clone(&channel.name);
                outlet.send_message(share.worker, HubMessage::Lost { channel });
            }
            let name = Arc::clone(&channel.name);
            self.notify_lost(&name, outlet);
        }
        self.advance_feed_queue(index, outlet);
        self.channels[index].waiting -= 1;
        self.channels.release(index);
    }

    /// On the subscriber's worker: ends the subscriptions of a channel and notifies their sessions that publications
    /// are lost. The subscriptions must end at once: otherwise a client could get later items before it learns of the
    /// gap, and would then recover from a position after the gap.
    pub(crate) fn notify_lost(&mut self, channel: &Arc<str>, outlet: &mut impl Outlet) {
        let Some(index) = self.find(channel) else {
            return;
        };
        let slots = self.channels[index].subscribers.as_slice().to_vec();
        for slot in slots.into_iter().filter(|slot| *slot != NONE) {
            outlet.publications_lost(self.subscriptions.session(slot), channel);
            self.remove(slot, outlet);
        }
    }
}
