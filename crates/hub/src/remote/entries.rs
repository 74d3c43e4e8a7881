//! The channels of a home whose engine is outside this process.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;

use crate::engine::FeedItem;
use crate::history_segment::{HistorySegment, ReadStart};
use crate::{Epoch, Payload, Position};

/// Maximum number of items of a channel that wait until its position is known or its verification is answered. Further
/// items are dropped and later noticed as a gap.
const HELD_MAX: usize = 1024;

/// The progress of a channel's feed, and the state of its comparisons with the store.
#[derive(Debug)]
pub(super) struct ChannelEntry {
    pub(super) name: Arc<str>,
    /// The hub's number of the channel; `None` if it has no slot.
    pub(super) channel: Option<u32>,
    pub(super) feed: FeedState,
    /// Whether the hub follows the channel itself, not only through a wildcard channel.
    pub(super) is_followed: bool,
    /// Whether the store may have lost data or been replaced since the last comparison with it. If so, items are held
    /// until the channel is compared with the store again (*verified*).
    pub(super) is_unsure: bool,
    /// Whether the verification of the unsure channel was ordered and is not answered yet.
    pub(super) is_verifying: bool,
    /// Whether a verification got no answer before the connection was lost, so that the channel is verified on the next
    /// connection even if the store is the same.
    pub(super) was_unsure: bool,
    /// Whether a comparison other than a verification got no answer from the store, so that it has to be repeated.
    pub(super) needs_comparison: bool,
    /// Whether the feed of the live channel was interrupted and does not continue yet.
    pub(super) is_interrupted: bool,
    /// Whether an item of an unknown epoch has arrived, and the answer of the store about the
    /// channel's epoch is pending.
    pub(super) is_in_doubt: bool,
    /// Whether an item or answer about the channel has arrived since the last periodic check.
    pub(super) is_fresh: bool,
    /// The number of requests about the channel that are not completed.
    pub(super) waiting: u32,
    pub(super) epoch: Epoch,
    /// The epoch before the current one. Its late items are ignored.
    pub(super) ended: Epoch,
    /// How often the epoch has ended, or may have ended unnoticed. Wraps around.
    pub(super) epochs_ended: u32,
    /// The offset of the last item that the hub has delivered to subscribers, or after which the feed continues.
    pub(super) last: u64,
    /// The highest offset among the items passed to the hub.
    pub(super) seen: u64,
    /// The highest offset known from the feed and from answers, and the id of its publication, which is 0 if unknown.
    pub(super) known: (u64, u64),
    #[expect(
        clippy::box_collection,
        reason = "this is nearly always empty, and a box takes only one word per channel"
    )]
    pub(super) held: Option<Box<Vec<(FeedItem, u64)>>>,
    /// The history read that is ordered together with the position, when the feed of the channel begins.
    pub(super) first_read: Option<Box<FirstRead>>,
    /// The payload delivered last, if the channel uses deltas.
    pub(super) previous: Option<Box<Payload>>,
}

/// The history read for the subscriber for whose subscription the feed of a channel begins.
#[derive(Debug)]
pub(super) struct FirstRead {
    pub(super) start: ReadStart,
    /// The result; `None` until the channel's position is known, or if the read has failed.
    pub(super) segment: Option<Box<HistorySegment>>,
}

/// The state of a channel's feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FeedState {
    /// The channel's feed is not subscribed.
    Off,
    /// The subscription to the channel's feed was requested from the store in this tick, and is not confirmed yet.
    Begun(u32),
    /// The channel is subscribed. Its position was requested in this tick and is not known yet.
    Placing(u32),
    /// The position is known, and items are delivered as they arrive.
    Live,
}

impl ChannelEntry {
    fn new(name: &Arc<str>) -> Self {
        Self {
            name: Arc::clone(name),
            channel: None,
            feed: FeedState::Off,
            is_followed: false,
            is_unsure: false,
            is_verifying: false,
            was_unsure: false,
            needs_comparison: false,
            is_interrupted: false,
            is_in_doubt: false,
            is_fresh: false,
            waiting: 0,
            epoch: Epoch::UNKNOWN,
            ended: Epoch::UNKNOWN,
            epochs_ended: 0,
            last: 0,
            seen: 0,
            known: (0, 0),
            held: None,
            first_read: None,
            previous: None,
        }
    }

    pub(super) fn position(&self) -> Position {
        Position {
            epoch: self.epoch,
            offset: self.last,
        }
    }

    /// Returns whether the channel is unsure and its verification still has to be ordered.
    pub(super) fn is_unverified(&self) -> bool {
        self.is_unsure && !self.is_verifying
    }

    pub(super) fn has_position(&self) -> bool {
        self.epoch != Epoch::UNKNOWN
    }

    /// Sets the position of the channel, usually in a new epoch. `id` is the id of the publication at that position; 0
    /// if unknown.
    pub(super) fn set_position(&mut self, position: Position, id: u64) {
        if self.has_position() && self.epoch != position.epoch {
            self.ended = self.epoch;
            self.forget_epoch();
        }
        self.epoch = position.epoch;
        (self.last, self.seen) = (position.offset, position.offset);
        self.known = (position.offset, id);
        self.previous = None;
    }

    /// Records that the epoch has ended, or may have ended. Positions that were recorded earlier for publications that
    /// still wait are unknown from now on.
    pub(super) fn forget_epoch(&mut self) {
        self.epochs_ended = self.epochs_ended.wrapping_add(1);
    }

    /// Records that the store has a publication at this offset of the current epoch.
    pub(super) fn note_known(&mut self, offset: u64, id: u64) {
        if offset > self.known.0 {
            self.known = (offset, id);
        } else {
            self.note_id(offset, id);
        }
    }

    /// Sets the id of the latest known publication if it has this offset and its id is unknown.
    pub(super) fn note_id(&mut self, offset: u64, id: u64) {
        if self.known == (offset, 0) {
            self.known = (offset, id);
        }
    }

    /// Returns the position and the id of the latest known publication; `None` if no position is known.
    pub(super) fn latest(&self) -> Option<(Position, u64)> {
        let (offset, id) = self.known;
        let epoch = self.epoch;
        self.has_position()
            .then_some((Position { epoch, offset }, id))
    }

    /// Removes the first read. Returns its segment if the segment reaches back to `start`, ends at the channel's
    /// current position, and the channel is not unsure.
    pub(super) fn take_first_read(&mut self, start: ReadStart) -> Option<Box<HistorySegment>> {
        let first_read = self.first_read.take()?;
        let position = self.position();
        let segment = first_read
            .segment
            .filter(|segment| segment.top == position)?;
        (first_read.start <= start && !self.is_unsure).then_some(segment)
    }

    /// Keeps an item of the feed for later, with the id of its publication. Drops the item if too many are kept.
    pub(super) fn hold(&mut self, item: FeedItem, id: u64) {
        let held = self.held.get_or_insert_default();
        if held.len() < HELD_MAX {
            held.push((item, id));
        }
    }
}

/// All channels, by name and by number. If the hub has a slot for a channel, the slot's index is the number.
#[derive(Debug, Default)]
pub(super) struct ChannelEntries {
    list: Vec<Option<Box<ChannelEntry>>>,
    free: Vec<u32>,
    by_name: HashMap<Arc<str>, u32, RandomState>,
}

impl ChannelEntries {
    pub(super) fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Returns one more than the highest number of a channel.
    pub(super) fn end(&self) -> u32 {
        self.list.len() as u32
    }

    pub(super) fn find(&self, name: &str) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    pub(super) fn find_or_insert(&mut self, name: &Arc<str>) -> u32 {
        if let Some(place) = self.find(name) {
            return place;
        }
        let entry = Some(Box::new(ChannelEntry::new(name)));
        let place = match self.free.pop() {
            Some(place) => {
                self.list[place as usize] = entry;
                place
            }
            None => {
                self.list.push(entry);
                self.list.len() as u32 - 1
            }
        };
        self.by_name.insert(Arc::clone(name), place);
        place
    }

    pub(super) fn get(&self, place: u32) -> Option<&ChannelEntry> {
        self.list.get(place as usize)?.as_deref()
    }

    pub(super) fn get_mut(&mut self, place: u32) -> Option<&mut ChannelEntry> {
        self.list.get_mut(place as usize)?.as_deref_mut()
    }

    pub(super) fn find_mut(&mut self, name: &str) -> Option<&mut ChannelEntry> {
        let place = self.find(name)?;
        self.get_mut(place)
    }

    /// Removes a channel that has no slot and is not followed.
    pub(super) fn release(&mut self, place: u32) {
        let is_idle = |entry: &&ChannelEntry| entry.channel.is_none() && !entry.is_followed;
        if self.get(place).filter(is_idle).is_none() {
            return;
        }
        if let Some(entry) = self.list[place as usize].take() {
            self.by_name.remove(&entry.name);
            self.free.push(place);
        }
    }
}
