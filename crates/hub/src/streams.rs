//! The streams of this worker and the budgets to which they count.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::accounts::Accounts;
use crate::channel::Channel;
use crate::few::reserve_one;
use crate::log_record::Changes;
use crate::position::Epochs;
use crate::ranks::{Link, Linked, NOTHING};
use crate::records::Lent;
use crate::stream::Stream;
use crate::{History, Info, Payload, Position};

/// Memory of a stream without publications: its slot, its scan index, and its channel's entry with its share of the
/// name table.
const STREAM_BYTES: usize =
    size_of::<Option<Place>>() + size_of::<u32>() + size_of::<Option<Channel>>() + 48;

#[derive(Debug)]
struct Place {
    stream: Stream,
    channel: u32,
    /// Requests that wait for the log, and how many of them are publications that will be stored.
    pending: u32,
    ahead: u32,
    /// Memory without publications.
    base_bytes: u16,
    /// Whether the log knows the stream.
    is_known: bool,
    /// Whether it is among the [`Changes`].
    is_changed: bool,
    /// Its index in `turns`.
    turn: u32,
    /// The account to which it counts while it has publications: that of the publisher of most of its bytes, determined
    /// by Boyer and Moore's majority vote. `lead` is the count of that vote, in bytes.
    owner: u32,
    lead: usize,
    /// Bytes of its publications.
    bytes: usize,
    link: Link,
}

// A name has up to 255 bytes.
const _: () = assert!(STREAM_BYTES + 255 <= u16::MAX as usize);

/// All streams of this worker.
#[derive(Debug)]
pub(crate) struct Streams {
    places: Vec<Option<Place>>,
    free: Vec<u32>,
    /// Budgets and publishers' accounts, for streams with publications.
    accounts: Accounts,
    /// Bytes of streams without publications.
    silent: usize,
    /// Bytes that streams have dropped but replies still hold.
    lent: Lent,
    epochs: Epochs,
    /// Slots in use in the order of the expiry scan. Free slots are never returned, so a scan over all slots would
    /// visit many of them in vain.
    turns: Vec<u32>,
    /// The scan has visited the indices before this one in the current round.
    cursor: usize,
    /// Publications evicted so far.
    evicted: u64,
    /// Bytes of publications added since [`take_grown`](Self::take_grown).
    grown: usize,
    /// Changes to be recorded in the log, if there is one.
    pub(crate) changes: Option<Box<Changes>>,
}

/// A stream that was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gone {
    pub(crate) channel: u32,
    /// The log has to record it.
    pub(crate) is_known: bool,
}

impl Streams {
    pub(crate) fn new(epochs: Epochs) -> Self {
        Self {
            places: Vec::new(),
            free: Vec::new(),
            accounts: Accounts::new(),
            silent: 0,
            lent: Lent::default(),
            epochs,
            turns: Vec::new(),
            cursor: 0,
            evicted: 0,
            grown: 0,
            changes: None,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.turns.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.accounts.bytes() + self.silent
    }

    /// Returns the bytes of streams without publications.
    pub(crate) fn silent(&self) -> usize {
        self.silent
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

    pub(crate) fn lent(&self) -> &Lent {
        &self.lent
    }

    pub(crate) fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Starts a stream.
    pub(crate) fn open(&mut self, channel: u32, name_bytes: usize, now_ms: u64) -> u32 {
        let stream = Stream::new(self.epochs.make(), now_ms);
        let index = self.place_new(channel, name_bytes, stream);
        if let Some(changes) = &mut self.changes {
            changes.is_urgent = true;
        }
        self.note_change(index);
        index
    }

    /// Restores a stream from the log.
    pub(crate) fn restore(
        &mut self,
        channel: u32,
        name_bytes: usize,
        (stream, bytes): (Stream, usize),
        history: &History,
        now_ms: u64,
    ) -> u32 {
        let index = self.place_new(channel, name_bytes, stream);
        let place = place_of(&mut self.places, index);
        place.is_known = true;
        place.bytes = bytes;
        self.grown += bytes;
        if place.stream.has_records() {
            let (publisher, lead) = place.stream.majority();
            let owner = self
                .accounts
                .open(self.accounts.pool(history.budget), publisher);
            place.lead = lead;
            self.move_to(index, owner, 0);
        }
        self.trim(index, history, now_ms);
        index
    }

    fn place_new(&mut self, channel: u32, name_bytes: usize, stream: Stream) -> u32 {
        let base_bytes = STREAM_BYTES + name_bytes;
        let place = Place {
            stream,
            channel,
            pending: 0,
            ahead: 0,
            base_bytes: base_bytes as u16,
            is_known: false,
            is_changed: false,
            turn: self.turns.len() as u32,
            owner: NOTHING,
            lead: 0,
            bytes: 0,
            link: Link::NONE,
        };
        let index = match self.free.pop() {
            Some(index) => {
                self.places[index as usize] = Some(place);
                index
            }
            None => {
                reserve_one(&mut self.places);
                self.places.push(Some(place));
                self.places.len() as u32 - 1
            }
        };
        reserve_one(&mut self.turns);
        self.turns.push(index);
        self.silent += base_bytes;
        index
    }

    pub(crate) fn get(&self, index: u32) -> &Stream {
        &self.place(index).stream
    }

    /// Returns a stream for changes that don't affect its size.
    pub(crate) fn get_mut(&mut self, index: u32) -> &mut Stream {
        &mut self.place_mut(index).stream
    }

    /// Stores a publication with the given time, within the limits of its channel.
    pub(crate) fn append(
        &mut self,
        index: u32,
        kept: (Payload, Option<Arc<Info>>),
        at_ms: u64,
        history: &History,
        now_ms: u64,
    ) -> Position {
        let place = place_of(&mut self.places, index);
        let held = place.held();
        let (position, more) = place.stream.append(kept, &self.lent, at_ms);
        let less = place.stream.trim(history, now_ms);
        place.bytes = place.bytes + more - less;
        self.grown += more;
        if less > 0 {
            self.note_change(index);
        }
        self.vote(index, more, held, history);
        position
    }

    /// Updates the owner after a publication of `more` bytes came to a stream that held `held` bytes.
    fn vote(&mut self, index: u32, more: usize, held: usize, history: &History) {
        let place = place_of(&mut self.places, index);
        let owner = place.owner;
        if !place.stream.has_records() {
            return self.settle(index, held);
        }
        let publisher = place.stream.latest_publisher();
        let is_led = owner != NOTHING && self.accounts.is_of(owner, publisher);
        let lead = match is_led {
            true => place.lead + more,
            false => place.lead.abs_diff(more),
        };
        let has_lost = !is_led && more > place.lead;
        // Dropped publications lose their vote.
        let lead = lead.min(place.bytes);
        if owner == NOTHING || has_lost {
            let pool = match owner {
                NOTHING => self.accounts.pool(history.budget),
                owner => self.accounts.pool_of(owner),
            };
            let heir = self.accounts.open(pool, publisher);
            place.lead = lead;
            return self.move_to(index, heir, held);
        }
        place.lead = lead;
        let change = (held, place.held());
        let streams = &mut self.places[..];
        self.accounts.resize(owner, streams, index, change, true);
    }

    fn trim(&mut self, index: u32, history: &History, now_ms: u64) {
        self.shrink(index, |stream| stream.trim(history, now_ms));
    }

    /// Drops publications of a stream with `give`, which returns the bytes freed.
    fn shrink(&mut self, index: u32, give: impl FnOnce(&mut Stream) -> usize) {
        let place = self.place_mut(index);
        let held = place.held();
        let less = give(&mut place.stream);
        if less > 0 {
            place.bytes -= less;
            self.note_change(index);
            self.settle(index, held);
        }
    }

    /// Updates the accounts after a stream that held `held` bytes has shrunk.
    fn settle(&mut self, index: u32, held: usize) {
        let place = place_of(&mut self.places, index);
        let (owner, base_bytes) = (place.owner, usize::from(place.base_bytes));
        if owner == NOTHING {
            return;
        }
        if place.stream.has_records() {
            let change = (held, place.held());
            let streams = &mut self.places[..];
            return self.accounts.resize(owner, streams, index, change, false);
        }
        place.owner = NOTHING;
        place.lead = 0;
        self.silent += base_bytes;
        self.accounts
            .release(owner, &mut self.places[..], index, held);
    }

    /// Moves a stream with publications, which held `held` bytes before, to another account.
    fn move_to(&mut self, index: u32, owner: u32, held: usize) {
        let place = place_of(&mut self.places, index);
        let former = std::mem::replace(&mut place.owner, owner);
        let (bytes, base_bytes) = (place.held(), usize::from(place.base_bytes));
        let streams = &mut self.places[..];
        match former {
            NOTHING => self.silent -= base_bytes,
            former => self.accounts.release(former, streams, index, held),
        }
        self.accounts.hold(owner, streams, index, bytes);
    }

    /// Marks a stream as started or trimmed for the log.
    fn note_change(&mut self, index: u32) {
        if self.changes.is_none() || self.place(index).is_changed {
            return;
        }
        self.place_mut(index).is_changed = true;
        if let Some(changes) = &mut self.changes {
            changes.streams.push(index);
        }
    }

    /// Returns a changed stream's channel and whether the log knew it; from now on it does.
    pub(crate) fn told(&mut self, index: u32) -> Option<(u32, bool)> {
        let place = self.places.get_mut(index as usize)?.as_mut()?;
        // Otherwise the slot was reused for another changed stream, which was reported already.
        std::mem::take(&mut place.is_changed)
            .then(|| (place.channel, std::mem::replace(&mut place.is_known, true)))
    }

    /// Returns how many requests of a channel wait for the log.
    pub(crate) fn pending(&self, index: u32) -> u32 {
        self.place(index).pending
    }

    /// Adds a request that waits for the log; returns its future position if it will be stored.
    pub(crate) fn wait(&mut self, index: u32, is_kept: bool) -> Option<Position> {
        let place = self.place_mut(index);
        place.pending += 1;
        if !is_kept {
            return None;
        }
        place.ahead += 1;
        let mut position = place.stream.position();
        position.offset += u64::from(place.ahead);
        Some(position)
    }

    /// A request no longer waits.
    pub(crate) fn waited(&mut self, index: u32) {
        self.place_mut(index).pending -= 1;
    }

    /// A publication that waited is now stored.
    pub(crate) fn fed(&mut self, index: u32) {
        self.place_mut(index).ahead -= 1;
    }

    /// Returns the offset of the next publication if some that will be stored are waiting.
    pub(crate) fn below_pending(&self, index: u32) -> Option<u64> {
        let place = self.place(index);
        let next = place.stream.position().offset + u64::from(place.ahead) + 1;
        (place.ahead > 0).then_some(next)
    }

    /// Returns the stream after applying its limits.
    pub(crate) fn trimmed(&mut self, index: u32, history: &History, now_ms: u64) -> &Stream {
        self.trim(index, history, now_ms);
        self.get(index)
    }

    /// Drops the publications of a channel.
    pub(crate) fn clear(&mut self, index: u32) {
        self.shrink(index, Stream::clear);
    }

    /// Evicts at most `most` of the oldest publications of the largest stream of the heaviest account of an exceeded
    /// budget; stops once the budget is met or another stream is next. Returns the number of evictions: 0 if no budget
    /// is exceeded.
    pub(crate) fn evict(&mut self, most: usize) -> usize {
        let Some((owner, index)) = self.accounts.next_to_give() else {
            return 0;
        };
        for count in 1..=most {
            self.shrink(index, Stream::drop_oldest);
            self.evicted += 1;
            if !self.accounts.has_to_give(owner, index) {
                return count;
            }
        }
        most
    }

    /// Returns the bytes of publications added since the last call.
    pub(crate) fn take_grown(&mut self) -> usize {
        std::mem::take(&mut self.grown)
    }

    /// Scans up to `count` streams, round robin: drops expired publications and streams that are no longer needed; if
    /// `is_too_much`, all streams without publications and subscribers. Calls `gone` for each closed stream. Moves
    /// streams to the budget of their channel.
    pub(crate) fn look(
        &mut self,
        count: usize,
        now_ms: u64,
        is_too_much: bool,
        history: impl Fn(u32) -> Option<History>,
        is_used: impl Fn(u32) -> bool,
        mut gone: impl FnMut(Gone),
    ) {
        for _ in 0..count.min(self.turns.len()) {
            if self.cursor >= self.turns.len() {
                self.cursor = 0;
            }
            let index = self.turns[self.cursor];
            self.cursor += 1;
            let channel = self.place(index).channel;
            let history = history(channel);
            match &history {
                Some(history) => {
                    self.trim(index, history, now_ms);
                    self.move_home(index, history);
                }
                None => self.clear(index),
            }
            let stream = self.get(index);
            let is_over = match is_too_much {
                true => !stream.has_records(),
                false => stream.is_forgettable(history.as_ref(), now_ms),
            };
            if is_over && !is_used(channel) {
                gone(self.close(index));
            }
        }
    }

    /// Moves a stream to the budget of its channel, which may have changed.
    fn move_home(&mut self, index: u32, history: &History) {
        let place = self.place(index);
        let (owner, held) = (place.owner, place.held());
        if owner == NOTHING {
            return;
        }
        let pool = self.accounts.pool(history.budget);
        if self.accounts.pool_of(owner) != pool {
            let heir = self.accounts.in_pool(owner, pool);
            self.move_to(index, heir, held);
        }
    }

    /// Closes a stream.
    pub(crate) fn close(&mut self, index: u32) -> Gone {
        self.clear(index);
        let Some(place) = self.places[index as usize].take() else {
            unreachable!("indices are held by channels only while the stream is there");
        };
        self.silent -= usize::from(place.base_bytes);
        self.free.push(index);
        self.end_turn(place.turn as usize);
        debug_assert_eq!(place.pending, 0, "what waits for the log holds its stream");
        Gone {
            channel: place.channel,
            is_known: place.is_known,
        }
    }

    /// Removes an index from the scan. The indices before the cursor remain those visited in this round.
    fn end_turn(&mut self, mut turn: usize) {
        if turn < self.cursor {
            self.cursor -= 1;
            self.move_turn(self.cursor, turn);
            turn = self.cursor;
        }
        let last = self.turns.len() - 1;
        // If it is the last one, the stream moved from there has its new index already.
        if turn != last {
            self.move_turn(last, turn);
        }
        self.turns.pop();
    }

    /// Moves a scan index.
    fn move_turn(&mut self, from: usize, to: usize) {
        let index = self.turns[from];
        self.turns[to] = index;
        // The slot of the closing stream is free already.
        if let Some(place) = &mut self.places[index as usize] {
            place.turn = to as u32;
        }
    }

    fn place(&self, index: u32) -> &Place {
        self.places[index as usize]
            .as_ref()
            .expect("channels hold the index only while the stream is there")
    }

    fn place_mut(&mut self, index: u32) -> &mut Place {
        place_of(&mut self.places, index)
    }
}

impl Place {
    /// Returns the bytes that count to a budget.
    fn held(&self) -> usize {
        match self.owner {
            NOTHING => 0,
            _ => self.bytes + usize::from(self.base_bytes),
        }
    }
}

impl Linked for [Option<Place>] {
    fn link(&mut self, member: u32) -> &mut Link {
        &mut place_of(self, member).link
    }
}

fn place_of(places: &mut [Option<Place>], index: u32) -> &mut Place {
    places[index as usize]
        .as_mut()
        .expect("channels hold the index only while the stream is there")
}
