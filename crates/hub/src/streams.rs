//! The streams of this worker, and the budget that each counts to.

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

/// The cost of a stream without publications: its place, its turn, and its channel's entry with its share of the table of
/// names.
const STREAM_BYTES: usize =
    size_of::<Option<Place>>() + size_of::<u32>() + size_of::<Option<Channel>>() + 48;

#[derive(Debug)]
struct Place {
    stream: Stream,
    channel: u32,
    /// What waits for the log: all of it, and how many of them are publications that will be kept.
    pending: u32,
    ahead: u32,
    /// What it costs without publications.
    base_bytes: u16,
    /// The log has heard of it.
    is_known: bool,
    /// It is among the [`Changes`].
    is_changed: bool,
    /// Its number in `turns`.
    turn: u32,
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
    places: Vec<Option<Place>>,
    free: Vec<u32>,
    /// Budgets and publishers' shares, for streams with publications.
    accounts: Accounts,
    /// Bytes of the others.
    silent: usize,
    /// What answers still refer to of what streams have dropped.
    lent: Lent,
    epochs: Epochs,
    /// The places in use, in the order of the expiry pass. Free places are never returned, so a pass over `places`
    /// would visit many of them in vain.
    turns: Vec<u32>,
    /// The pass has visited the turns before it in this round.
    cursor: usize,
    /// Publications that had to go before their time, so far.
    evicted: u64,
    /// Bytes of publications that came since [`take_grown`](Self::take_grown).
    grown: usize,
    /// What a log is to be told of streams, if there is one.
    pub(crate) changes: Option<Box<Changes>>,
}

/// A stream that nobody needs was let go of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gone {
    pub(crate) channel: u32,
    /// The log has to hear of it.
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

    /// Bytes of streams without publications.
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

    /// Begins a stream.
    pub(crate) fn open(&mut self, channel: u32, name_bytes: usize, now_ms: u64) -> u32 {
        let stream = Stream::new(self.epochs.make(), now_ms);
        let index = self.place_new(channel, name_bytes, stream);
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

    /// To change what has nothing to do with bytes.
    pub(crate) fn get_mut(&mut self, index: u32) -> &mut Stream {
        &mut self.place_mut(index).stream
    }

    /// Keeps a publication of that time, within the limits of its channel.
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

    /// A publication of so many bytes came to a stream that held so many before.
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
        // What was dropped meanwhile has no vote.
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

    /// Has a stream give something up.
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

    /// A stream that held so many bytes has fewer now.
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

    /// A stream with publications, which held so many bytes before, counts to this account now.
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

    /// The log has to hear of a stream: that it began, or what it let go of.
    fn note_change(&mut self, index: u32) {
        if self.changes.is_none() || self.place(index).is_changed {
            return;
        }
        self.place_mut(index).is_changed = true;
        if let Some(changes) = &mut self.changes {
            changes.streams.push(index);
        }
    }

    /// The next one that has changed: whether the log knew it before, from now on it does.
    pub(crate) fn told(&mut self, index: u32) -> Option<(u32, bool)> {
        let place = self.places.get_mut(index as usize)?.as_mut()?;
        // Else it came to a place of one that had changed too, and was told of by that.
        std::mem::take(&mut place.is_changed)
            .then(|| (place.channel, std::mem::replace(&mut place.is_known, true)))
    }

    /// How much of a channel waits for the log.
    pub(crate) fn pending(&self, index: u32) -> u32 {
        self.place(index).pending
    }

    /// One more of a channel waits for the log; the position that it will have, if it will be kept.
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

    /// One of a channel waits no longer.
    pub(crate) fn waited(&mut self, index: u32) {
        self.place_mut(index).pending -= 1;
    }

    /// One that waited is kept now.
    pub(crate) fn fed(&mut self, index: u32) {
        self.place_mut(index).ahead -= 1;
    }

    /// The offset that the next publication gets, if some that will be kept wait.
    pub(crate) fn below_pending(&self, index: u32) -> Option<u64> {
        let place = self.place(index);
        let next = place.stream.position().offset + u64::from(place.ahead) + 1;
        (place.ahead > 0).then_some(next)
    }

    /// The stream as its limits leave it now.
    pub(crate) fn trimmed(&mut self, index: u32, history: &History, now_ms: u64) -> &Stream {
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

    /// Returns the bytes of publications that were added since the last call.
    pub(crate) fn take_grown(&mut self) -> usize {
        std::mem::take(&mut self.grown)
    }

    /// Looks at up to so many streams, round and round: lets go of publications whose time is over, and of streams that
    /// nobody needs any more; where there `is_too_much`, of every one without publications to which nobody is subscribed.
    /// Calls `gone` for those. What is in another budget than that of its channel moves there.
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

    /// Counts a stream to the budget of its channel, which may be another one now.
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

    /// Forgets a stream.
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

    /// Removes a turn. The turns before the cursor remain those visited in this round.
    fn end_turn(&mut self, mut turn: usize) {
        if turn < self.cursor {
            self.cursor -= 1;
            self.move_turn(self.cursor, turn);
            turn = self.cursor;
        }
        let last = self.turns.len() - 1;
        // Where it is the last one, the stream that was moved from there has its new number already.
        if turn != last {
            self.move_turn(last, turn);
        }
        self.turns.pop();
    }

    /// Moves a turn to another number.
    fn move_turn(&mut self, from: usize, to: usize) {
        let index = self.turns[from];
        self.turns[to] = index;
        // The place of the closing stream is free already.
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
    /// What it takes of a budget.
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
