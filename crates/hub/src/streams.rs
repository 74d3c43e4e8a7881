//! The streams of this worker, and the budgets toward which they count.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::accounts::Accounts;
use crate::channel::Channel;
use crate::epoch_generator::EpochGenerator;
use crate::log_record::StreamChanges;
use crate::records::LentBytes;
use crate::small_list::reserve_one;
use crate::stream::Stream;
use crate::weight_classes::{ClassLink, Linked, NO_MEMBER};
use crate::{HistoryOptions, Payload, Position, PublicationInfo};

/// The memory in bytes that a stream without publications takes: its slot, its entry in the scan order, and the entry
/// of its channel with a share of the name table.
const STREAM_BYTES: usize =
    size_of::<Option<StreamSlot>>() + size_of::<u32>() + size_of::<Option<Channel>>() + 48;

#[derive(Debug)]
struct StreamSlot {
    stream: Stream,
    channel: u32,
    /// The number of requests that wait for the log, and how many of these are publications that will be stored.
    pending: u32,
    pending_stored: u32,
    /// The memory in bytes that the stream takes without publications.
    base_bytes: u16,
    /// Whether the log has a record of the stream.
    is_known: bool,
    /// Whether the stream is among the [`StreamChanges`] for the next batch.
    is_changed: bool,
    /// The index of the stream in `scan_order`.
    scan_index: u32,
    /// The account toward which the stream counts while it has publications. It belongs to the publisher of most of the
    /// stream's bytes, as determined by Boyer and Moore's majority vote. `lead` is the counter of that vote, in bytes.
    owner: u32,
    lead: usize,
    /// The total size of the stream's publications in bytes.
    bytes: usize,
    link: ClassLink,
}

// The base bytes include the channel name, which has up to 255 bytes.
const _: () = assert!(STREAM_BYTES + 255 <= u16::MAX as usize);

/// All streams of this worker.
#[derive(Debug)]
pub(crate) struct Streams {
    slots: Vec<Option<StreamSlot>>,
    free: Vec<u32>,
    /// The budgets and the publishers' accounts. Streams with publications count toward both.
    accounts: Accounts,
    /// The total size of streams without publications in bytes.
    empty_bytes: usize,
    /// The size of publications that streams have dropped but history replies still refer to.
    lent: LentBytes,
    epochs: EpochGenerator,
    /// The slots in use, in the order of the expiry scan. `slots` never shrinks, so a scan over it could visit many free
    /// slots.
    scan_order: Vec<u32>,
    /// The index in `scan_order` at which the scan continues. Entries before it were visited in this round.
    cursor: usize,
    /// The number of publications evicted so far.
    evicted: u64,
    /// The total size in bytes of publications added since the last call of
    /// [`take_added_bytes`](Self::take_added_bytes).
    added_bytes: usize,
    /// The changes to be recorded in the log; `None` without a log.
    pub(crate) changes: Option<Box<StreamChanges>>,
}

/// A stream that was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClosedStream {
    pub(crate) channel: u32,
    /// Whether the log has a record of the stream, so that its end must be recorded.
    pub(crate) is_known: bool,
}

impl Streams {
    pub(crate) fn new(epochs: EpochGenerator) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            accounts: Accounts::new(),
            empty_bytes: 0,
            lent: LentBytes::default(),
            epochs,
            scan_order: Vec::new(),
            cursor: 0,
            evicted: 0,
            added_bytes: 0,
            changes: None,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.scan_order.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.accounts.bytes() + self.empty_bytes
    }

    /// Returns the total size of streams without publications in bytes.
    pub(crate) fn empty_bytes(&self) -> usize {
        self.empty_bytes
    }

    /// Sets the budgets; see [`Accounts::set_budgets`].
    pub(crate) fn set_budgets<'n>(
        &mut self,
        common: usize,
        budgets: impl Iterator<Item = (&'n str, usize)>,
    ) {
        self.accounts.set_budgets(common, budgets);
    }

    /// Iterates over the budgets; see [`Accounts::budgets`].
    pub(crate) fn budgets(&self) -> impl Iterator<Item = (Option<&str>, usize, usize)> {
        self.accounts.budgets()
    }

    pub(crate) fn lent(&self) -> &LentBytes {
        &self.lent
    }

    pub(crate) fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Starts the stream of a channel with a new epoch and returns its index.
    pub(crate) fn open(&mut self, channel: u32, name_bytes: usize, now_ms: u64) -> u32 {
        let stream = Stream::new(self.epochs.next_epoch(), now_ms);
        let index = self.insert(channel, name_bytes, stream);
        if let Some(changes) = &mut self.changes {
            changes.is_urgent = true;
        }
        self.note_change(index);
        index
    }

    /// Adds a stream that was restored from the log.
    pub(crate) fn restore(
        &mut self,
        channel: u32,
        name_bytes: usize,
        (stream, bytes): (Stream, usize),
        history: &HistoryOptions,
        now_ms: u64,
    ) -> u32 {
        let index = self.insert(channel, name_bytes, stream);
        let place = slot_of(&mut self.slots, index);
        place.is_known = true;
        place.bytes = bytes;
        self.added_bytes += bytes;
        if place.stream.has_records() {
            let (publisher, lead) = place.stream.main_publisher();
            let owner = self
                .accounts
                .open(self.accounts.pool(history.budget), publisher);
            place.lead = lead;
            self.move_to(index, owner, 0);
        }
        self.trim(index, history, now_ms);
        index
    }

    fn insert(&mut self, channel: u32, name_bytes: usize, stream: Stream) -> u32 {
        let base_bytes = STREAM_BYTES + name_bytes;
        let place = StreamSlot {
            stream,
            channel,
            pending: 0,
            pending_stored: 0,
            base_bytes: base_bytes as u16,
            is_known: false,
            is_changed: false,
            scan_index: self.scan_order.len() as u32,
            owner: NO_MEMBER,
            lead: 0,
            bytes: 0,
            link: ClassLink::NONE,
        };
        let index = match self.free.pop() {
            Some(index) => {
                self.slots[index as usize] = Some(place);
                index
            }
            None => {
                reserve_one(&mut self.slots);
                self.slots.push(Some(place));
                self.slots.len() as u32 - 1
            }
        };
        reserve_one(&mut self.scan_order);
        self.scan_order.push(index);
        self.empty_bytes += base_bytes;
        index
    }

    pub(crate) fn get(&self, index: u32) -> &Stream {
        &self.slot(index).stream
    }

    /// Returns a stream mutably, for changes that don't affect its size.
    pub(crate) fn get_mut(&mut self, index: u32) -> &mut Stream {
        &mut self.slot_mut(index).stream
    }

    /// Stores a publication with the given time. The oldest publications beyond the limits of the channel are dropped.
    pub(crate) fn append(
        &mut self,
        index: u32,
        kept: (Payload, Option<Arc<PublicationInfo>>),
        at_ms: u64,
        history: &HistoryOptions,
        now_ms: u64,
    ) -> Position {
        let place = slot_of(&mut self.slots, index);
        let held = place.held();
        let (position, more) = place.stream.append(kept, &self.lent, at_ms);
        let less = place.stream.trim(history, now_ms);
        place.bytes = place.bytes + more - less;
        self.added_bytes += more;
        if less > 0 {
            self.note_change(index);
        }
        self.update_owner(index, more, held, history);
        position
    }

    /// Updates the account of a stream after a publication of `more` bytes was added. `held` is the number of bytes
    /// that the stream counted before.
    fn update_owner(&mut self, index: u32, more: usize, held: usize, history: &HistoryOptions) {
        let place = slot_of(&mut self.slots, index);
        let owner = place.owner;
        if !place.stream.has_records() {
            return self.settle(index, held);
        }
        let publisher = place.stream.latest_publisher();
        let is_led = owner != NO_MEMBER && self.accounts.belongs_to(owner, publisher);
        let lead = match is_led {
            true => place.lead + more,
            false => place.lead.abs_diff(more),
        };
        let has_lost = !is_led && more > place.lead;
        // Dropped publications no longer count in the majority vote that determines the owner.
        let lead = lead.min(place.bytes);
        if owner == NO_MEMBER || has_lost {
            let pool = match owner {
                NO_MEMBER => self.accounts.pool(history.budget),
                owner => self.accounts.pool_of(owner),
            };
            let new_owner = self.accounts.open(pool, publisher);
            place.lead = lead;
            return self.move_to(index, new_owner, held);
        }
        place.lead = lead;
        let change = (held, place.held());
        let streams = &mut self.slots[..];
        self.accounts
            .resize_stream(owner, streams, index, change, true);
    }

    fn trim(&mut self, index: u32, history: &HistoryOptions, now_ms: u64) {
        self.shrink(index, |stream| stream.trim(history, now_ms));
    }

    /// Drops publications of a stream by calling `give`, which returns the number of bytes freed.
    fn shrink(&mut self, index: u32, give: impl FnOnce(&mut Stream) -> usize) {
        let place = self.slot_mut(index);
        let held = place.held();
        let less = give(&mut place.stream);
        if less > 0 {
            place.bytes -= less;
            self.note_change(index);
            self.settle(index, held);
        }
    }

    /// Updates the accounts after a stream has shrunk. `held` is the number of bytes that the stream counted before.
    fn settle(&mut self, index: u32, held: usize) {
        let place = slot_of(&mut self.slots, index);
        let (owner, base_bytes) = (place.owner, usize::from(place.base_bytes));
        if owner == NO_MEMBER {
            return;
        }
        if place.stream.has_records() {
            let change = (held, place.held());
            let streams = &mut self.slots[..];
            return self
                .accounts
                .resize_stream(owner, streams, index, change, false);
        }
        place.owner = NO_MEMBER;
        place.lead = 0;
        self.empty_bytes += base_bytes;
        self.accounts
            .remove_stream(owner, &mut self.slots[..], index, held);
    }

    /// Charges the account `owner` for a stream that has publications, instead of the stream's former account. `held` is
    /// the number of bytes that the former account was charged for it.
    fn move_to(&mut self, index: u32, owner: u32, held: usize) {
        let place = slot_of(&mut self.slots, index);
        let former = std::mem::replace(&mut place.owner, owner);
        let (bytes, base_bytes) = (place.held(), usize::from(place.base_bytes));
        let streams = &mut self.slots[..];
        match former {
            NO_MEMBER => self.empty_bytes -= base_bytes,
            former => self.accounts.remove_stream(former, streams, index, held),
        }
        self.accounts.add_stream(owner, streams, index, bytes);
    }

    /// Marks a stream as changed (started or trimmed), so that the next batch for the log records it.
    fn note_change(&mut self, index: u32) {
        if self.changes.is_none() || self.slot(index).is_changed {
            return;
        }
        self.slot_mut(index).is_changed = true;
        if let Some(changes) = &mut self.changes {
            changes.streams.push(index);
        }
    }

    /// Returns the channel of a changed stream, and whether the log already had a record of the stream; `None` if the
    /// stream was closed or an earlier call has returned it. The caller must record the stream, which is marked as
    /// known to the log.
    pub(crate) fn take_change(&mut self, index: u32) -> Option<(u32, bool)> {
        let place = self.slots.get_mut(index as usize)?.as_mut()?;
        // If the flag is not set, an earlier call for the same slot has already returned its stream: the slot was
        // listed twice, because it was reused for another changed stream.
        std::mem::take(&mut place.is_changed)
            .then(|| (place.channel, std::mem::replace(&mut place.is_known, true)))
    }

    /// Returns the number of requests of a stream that wait for the log.
    pub(crate) fn pending(&self, index: u32) -> u32 {
        self.slot(index).pending
    }

    /// Counts a request that waits for the log. If the request is a publication that will be stored (`is_kept`),
    /// returns the position that the publication will get, otherwise `None`.
    pub(crate) fn add_pending(&mut self, index: u32, is_kept: bool) -> Option<Position> {
        let place = self.slot_mut(index);
        place.pending += 1;
        if !is_kept {
            return None;
        }
        place.pending_stored += 1;
        let mut position = place.stream.position();
        position.offset += u64::from(place.pending_stored);
        Some(position)
    }

    /// Decrements the number of waiting requests.
    pub(crate) fn remove_pending(&mut self, index: u32) {
        self.slot_mut(index).pending -= 1;
    }

    /// Decrements the number of waiting publications, because one is stored now.
    pub(crate) fn pending_was_stored(&mut self, index: u32) {
        self.slot_mut(index).pending_stored -= 1;
    }

    /// If publications that will be stored are waiting, returns the offset that the publication after them will get,
    /// otherwise `None`.
    pub(crate) fn next_offset_if_pending(&self, index: u32) -> Option<u64> {
        let place = self.slot(index);
        let next = place.stream.position().offset + u64::from(place.pending_stored) + 1;
        (place.pending_stored > 0).then_some(next)
    }

    /// Drops publications beyond the limits of the channel, and returns the stream.
    pub(crate) fn trimmed(&mut self, index: u32, history: &HistoryOptions, now_ms: u64) -> &Stream {
        self.trim(index, history, now_ms);
        self.get(index)
    }

    /// Drops all publications of a stream.
    pub(crate) fn clear(&mut self, index: u32) {
        self.shrink(index, Stream::clear);
    }

    /// If a budget is exceeded, evicts at most `most` of the oldest publications of the largest stream of the budget's
    /// heaviest account. Stops when the budget is met or another stream is the next to evict from. Returns the number
    /// of evictions; 0 if no budget is exceeded.
    pub(crate) fn evict(&mut self, most: usize) -> usize {
        let Some((owner, index)) = self.accounts.next_to_evict() else {
            return 0;
        };
        for count in 1..=most {
            self.shrink(index, Stream::drop_oldest);
            self.evicted += 1;
            if !self.accounts.must_evict(owner, index) {
                return count;
            }
        }
        most
    }

    /// Returns the total size in bytes of publications added since the last call.
    pub(crate) fn take_added_bytes(&mut self) -> usize {
        std::mem::take(&mut self.added_bytes)
    }

    /// Scans up to `count` streams, round robin. Drops expired publications, moves streams to the budget of their
    /// channel, and closes streams that are no longer needed. If there are too many streams without publications
    /// (`is_too_much`), also closes those of them that have no subscribers. Calls `gone` for each closed stream.
    pub(crate) fn scan(
        &mut self,
        count: usize,
        now_ms: u64,
        is_too_much: bool,
        history: impl Fn(u32) -> Option<HistoryOptions>,
        is_used: impl Fn(u32) -> bool,
        mut gone: impl FnMut(ClosedStream),
    ) {
        for _ in 0..count.min(self.scan_order.len()) {
            if self.cursor >= self.scan_order.len() {
                self.cursor = 0;
            }
            let index = self.scan_order[self.cursor];
            self.cursor += 1;
            let channel = self.slot(index).channel;
            let history = history(channel);
            match &history {
                Some(history) => {
                    self.trim(index, history, now_ms);
                    self.update_budget(index, history);
                }
                None => self.clear(index),
            }
            let stream = self.get(index);
            let is_over = match is_too_much {
                true => !stream.has_records(),
                false => stream.is_expired(history.as_ref(), now_ms),
            };
            if is_over && !is_used(channel) {
                gone(self.close(index));
            }
        }
    }

    /// Moves a stream to the budget of its channel, which may have changed.
    fn update_budget(&mut self, index: u32, history: &HistoryOptions) {
        let place = self.slot(index);
        let (owner, held) = (place.owner, place.held());
        if owner == NO_MEMBER {
            return;
        }
        let pool = self.accounts.pool(history.budget);
        if self.accounts.pool_of(owner) != pool {
            let new_owner = self.accounts.account_in_pool(owner, pool);
            self.move_to(index, new_owner, held);
        }
    }

    /// Closes a stream that its channel no longer needs. Its index becomes free.
    pub(crate) fn close(&mut self, index: u32) -> ClosedStream {
        self.clear(index);
        let Some(place) = self.slots[index as usize].take() else {
            unreachable!("a stream must exist while a channel refers to its index");
        };
        self.empty_bytes -= usize::from(place.base_bytes);
        self.free.push(index);
        self.remove_from_scan(place.scan_index as usize);
        debug_assert_eq!(
            place.pending, 0,
            "a stream must not be closed while its publications wait to be written to disk"
        );
        ClosedStream {
            channel: place.channel,
            is_known: place.is_known,
        }
    }

    /// Removes an entry of the scan order. The entries before the cursor remain those visited in this round.
    fn remove_from_scan(&mut self, mut turn: usize) {
        if turn < self.cursor {
            self.cursor -= 1;
            self.move_in_scan(self.cursor, turn);
            turn = self.cursor;
        }
        let last = self.scan_order.len() - 1;
        // If the entry is the last one, no other entry has to be moved to its place.
        if turn != last {
            self.move_in_scan(last, turn);
        }
        self.scan_order.pop();
    }

    /// Moves an entry of the scan order to another index.
    fn move_in_scan(&mut self, from: usize, to: usize) {
        let index = self.scan_order[from];
        self.scan_order[to] = index;
        // The slot of the stream that is being closed is already empty.
        if let Some(place) = &mut self.slots[index as usize] {
            place.scan_index = to as u32;
        }
    }

    fn slot(&self, index: u32) -> &StreamSlot {
        self.slots[index as usize]
            .as_ref()
            .expect("a stream must exist while a channel refers to its index")
    }

    fn slot_mut(&mut self, index: u32) -> &mut StreamSlot {
        slot_of(&mut self.slots, index)
    }
}

impl StreamSlot {
    /// Returns the number of bytes that the stream counts toward a budget; 0 without publications.
    fn held(&self) -> usize {
        match self.owner {
            NO_MEMBER => 0,
            _ => self.bytes + usize::from(self.base_bytes),
        }
    }
}

impl Linked for [Option<StreamSlot>] {
    fn link(&mut self, member: u32) -> &mut ClassLink {
        &mut slot_of(self, member).link
    }
}

fn slot_of(places: &mut [Option<StreamSlot>], index: u32) -> &mut StreamSlot {
    places[index as usize]
        .as_mut()
        .expect("a stream must exist while a channel refers to its index")
}
