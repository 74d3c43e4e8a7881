//! The streams of this worker, and the budget that each counts to.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::accounts::Accounts;
use crate::channel::{Channel, reserve_one};
use crate::epoch_generator::EpochGenerator;
use crate::log::StreamChanges;
use crate::records::LentBytes;
use crate::stream::Stream;
use crate::weight_classes::{Link, Linked, NO_MEMBER};
use crate::{HistoryOptions, Payload, Position, PublicationInfo};

/// The cost of a stream without publications: its place, its turn, and its channel's entry with its share of the table of
/// names.
const STREAM_BYTES: usize =
    size_of::<Option<StreamSlot>>() + size_of::<u32>() + size_of::<Option<Channel>>() + 48;

#[derive(Debug)]
struct StreamSlot {
    stream: Stream,
    channel: u32,
    /// What waits for the log: all of it, and how many of them are publications that will be kept.
    pending: u32,
    pending_stored: u32,
    /// What it costs without publications.
    base_bytes: u16,
    /// The log has heard of it.
    is_known: bool,
    /// It is among the [`StreamChanges`].
    is_changed: bool,
    /// Its number in `scan_order`.
    scan_index: u32,
    /// The account that it counts to while it has publications: of the publisher of most of its bytes, by Boyer and
    /// Moore's majority vote. `lead` is the count of that vote, in bytes.
    owner: u32,
    lead: usize,
    /// What its publications take.
    bytes: usize,
    link: Link,
}

// A name has up to 255 bytes.
const _: () = assert!(STREAM_BYTES + 255 <= u16::MAX as usize);

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Streams {
    slots: Vec<Option<StreamSlot>>,
    free: Vec<u32>,
    /// Budgets and publishers' shares, for streams with publications.
    accounts: Accounts,
    /// Bytes of the others.
    empty_bytes: usize,
    /// What answers still refer to of what streams have dropped.
    lent: LentBytes,
    epochs: EpochGenerator,
    /// The places in use, in the order of the expiry pass. Free places are never returned, so a pass over `slots`
    /// would visit many of them in vain.
    scan_order: Vec<u32>,
    /// The pass has visited the turns before it in this round.
    cursor: usize,
    /// Publications that had to go before their time, so far.
    evicted: u64,
    /// Bytes of publications that came since [`take_added_bytes`](Self::take_grown).
    added_bytes: usize,
    /// What a log is to be told of streams, if there is one.
    pub(crate) changes: Option<Box<StreamChanges>>,
}

/// A stream that nobody needs was let go of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClosedStream {
    pub(crate) channel: u32,
    /// The log has to hear of it.
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

    /// Bytes of streams without publications.
    pub(crate) fn empty_bytes(&self) -> usize {
        self.empty_bytes
    }

    /// See [`Accounts::set_budgets`].
    pub(crate) fn set_budgets<'n>(
        &mut self,
        common: usize,
        budgets: impl Iterator<Item = (&'n str, usize)>,
    ) {
        self.accounts.set_budgets(common, budgets);
    }

    /// See [`Accounts::budgets`].
    pub(crate) fn budgets(&self) -> impl Iterator<Item = (Option<&str>, usize, usize)> {
        self.accounts.budgets()
    }

    pub(crate) fn lent(&self) -> &LentBytes {
        &self.lent
    }

    pub(crate) fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Begins a stream.
    pub(crate) fn open(&mut self, channel: u32, name_bytes: usize, now_ms: u64) -> u32 {
        let stream = Stream::new(self.epochs.next_epoch(), now_ms);
        let index = self.insert(channel, name_bytes, stream);
        if let Some(changes) = &mut self.changes {
            changes.is_urgent = true;
        }
        self.note_change(index);
        index
    }

    /// Goes on with a stream that the log knows.
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
            link: Link::NONE,
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

    /// To change what has nothing to do with bytes.
    pub(crate) fn get_mut(&mut self, index: u32) -> &mut Stream {
        &mut self.slot_mut(index).stream
    }

    /// Keeps a publication of that time, within the limits of its channel.
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

    /// A publication of so many bytes came to a stream that held so many before.
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
        // What was dropped meanwhile has no vote.
        let lead = lead.min(place.bytes);
        if owner == NO_MEMBER || has_lost {
            let pool = match owner {
                NO_MEMBER => self.accounts.pool(history.budget),
                owner => self.accounts.pool_of(owner),
            };
            let heir = self.accounts.open(pool, publisher);
            place.lead = lead;
            return self.move_to(index, heir, held);
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

    /// Has a stream give something up.
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

    /// A stream that held so many bytes has fewer now.
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

    /// A stream with publications, which held so many bytes before, counts to this account now.
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

    /// The log has to hear of a stream: that it began, or what it let go of.
    fn note_change(&mut self, index: u32) {
        if self.changes.is_none() || self.slot(index).is_changed {
            return;
        }
        self.slot_mut(index).is_changed = true;
        if let Some(changes) = &mut self.changes {
            changes.streams.push(index);
        }
    }

    /// The next one that has changed: whether the log knew it before, from now on it does.
    pub(crate) fn take_change(&mut self, index: u32) -> Option<(u32, bool)> {
        let place = self.slots.get_mut(index as usize)?.as_mut()?;
        // Else it came to a place of one that had changed too, and was told of by that.
        std::mem::take(&mut place.is_changed)
            .then(|| (place.channel, std::mem::replace(&mut place.is_known, true)))
    }

    /// How much of a channel waits for the log.
    pub(crate) fn pending(&self, index: u32) -> u32 {
        self.slot(index).pending
    }

    /// One more of a channel waits for the log; the position that it will have, if it will be kept.
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

    /// One of a channel waits no longer.
    pub(crate) fn remove_pending(&mut self, index: u32) {
        self.slot_mut(index).pending -= 1;
    }

    /// One that waited is kept now.
    pub(crate) fn pending_was_stored(&mut self, index: u32) {
        self.slot_mut(index).pending_stored -= 1;
    }

    /// The offset that the next publication gets, if some that will be kept wait.
    pub(crate) fn next_offset_if_pending(&self, index: u32) -> Option<u64> {
        let place = self.slot(index);
        let next = place.stream.position().offset + u64::from(place.pending_stored) + 1;
        (place.pending_stored > 0).then_some(next)
    }

    /// The stream as its limits leave it now.
    pub(crate) fn trimmed(&mut self, index: u32, history: &HistoryOptions, now_ms: u64) -> &Stream {
        self.trim(index, history, now_ms);
        self.get(index)
    }

    /// Lets go of a channel's publications.
    pub(crate) fn clear(&mut self, index: u32) {
        self.shrink(index, Stream::clear);
    }

    /// Evicts at most `most` of the oldest publications of the largest stream of the account with the largest share of an
    /// exceeded budget; stops once the budget is met or another stream is next. Returns how many were evicted: 0 if no
    /// budget is exceeded.
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

    /// Returns the bytes of publications that were added since the last call.
    pub(crate) fn take_added_bytes(&mut self) -> usize {
        std::mem::take(&mut self.added_bytes)
    }

    /// Looks at up to so many streams, round and round: lets go of publications whose time is over, and of streams that
    /// nobody needs any more; where there `is_too_much`, of every one without publications to which nobody is subscribed.
    /// Calls `gone` for those. What is in another budget than that of its channel moves there.
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

    /// Counts a stream to the budget of its channel, which may be another one now.
    fn update_budget(&mut self, index: u32, history: &HistoryOptions) {
        let place = self.slot(index);
        let (owner, held) = (place.owner, place.held());
        if owner == NO_MEMBER {
            return;
        }
        let pool = self.accounts.pool(history.budget);
        if self.accounts.pool_of(owner) != pool {
            let heir = self.accounts.account_in_pool(owner, pool);
            self.move_to(index, heir, held);
        }
    }

    /// Forgets a stream.
    pub(crate) fn close(&mut self, index: u32) -> ClosedStream {
        self.clear(index);
        let Some(place) = self.slots[index as usize].take() else {
            unreachable!("indices are held by channels only while the stream is there");
        };
        self.empty_bytes -= usize::from(place.base_bytes);
        self.free.push(index);
        self.remove_from_scan(place.scan_index as usize);
        debug_assert_eq!(place.pending, 0, "what waits for the log holds its stream");
        ClosedStream {
            channel: place.channel,
            is_known: place.is_known,
        }
    }

    /// Removes a turn. The turns before the cursor remain those visited in this round.
    fn remove_from_scan(&mut self, mut turn: usize) {
        if turn < self.cursor {
            self.cursor -= 1;
            self.move_in_scan(self.cursor, turn);
            turn = self.cursor;
        }
        let last = self.scan_order.len() - 1;
        // Where it is the last one, the stream that was moved from there has its new number already.
        if turn != last {
            self.move_in_scan(last, turn);
        }
        self.scan_order.pop();
    }

    /// Moves a turn to another number.
    fn move_in_scan(&mut self, from: usize, to: usize) {
        let index = self.scan_order[from];
        self.scan_order[to] = index;
        // The place of the closing stream is free already.
        if let Some(place) = &mut self.slots[index as usize] {
            place.scan_index = to as u32;
        }
    }

    fn slot(&self, index: u32) -> &StreamSlot {
        self.slots[index as usize]
            .as_ref()
            .expect("channels hold the index only while the stream is there")
    }

    fn slot_mut(&mut self, index: u32) -> &mut StreamSlot {
        slot_of(&mut self.slots, index)
    }
}

impl StreamSlot {
    /// What it takes of a budget.
    fn held(&self) -> usize {
        match self.owner {
            NO_MEMBER => 0,
            _ => self.bytes + usize::from(self.base_bytes),
        }
    }
}

impl Linked for [Option<StreamSlot>] {
    fn link(&mut self, member: u32) -> &mut Link {
        &mut slot_of(self, member).link
    }
}

fn slot_of(places: &mut [Option<StreamSlot>], index: u32) -> &mut StreamSlot {
    places[index as usize]
        .as_mut()
        .expect("channels hold the index only while the stream is there")
}
