//! The streams of this worker, their budget of bytes, and which of them were idle longest.

use std::sync::Arc;

use crate::channel::{Channel, reserve_one};
use crate::log::Changes;
use crate::position::Epochs;
use crate::records::Lent;
use crate::stream::Stream;
use crate::{History, Info, Payload, Position};

/// No stream.
const NO_STREAM: u32 = u32::MAX;

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
    /// Neighbours in the order of their last publications, among those that have some.
    older: u32,
    newer: u32,
    /// Its number in `turns`.
    turn: u32,
}

// A name has up to 255 bytes.
const _: () = assert!(STREAM_BYTES + 255 <= u16::MAX as usize);

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Streams {
    places: Vec<Option<Place>>,
    free: Vec<u32>,
    oldest: u32,
    newest: u32,
    bytes: usize,
    /// The part of streams with publications.
    held: usize,
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
            oldest: NO_STREAM,
            newest: NO_STREAM,
            bytes: 0,
            held: 0,
            lent: Lent::default(),
            epochs,
            turns: Vec::new(),
            cursor: 0,
            evicted: 0,
            changes: None,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.turns.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes of streams with publications, those included.
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// Bytes of streams without publications.
    pub(crate) fn silent(&self) -> usize {
        self.bytes - self.held
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
        let has_records = stream.has_records();
        let index = self.place_new(channel, name_bytes, stream);
        self.place_mut(index).is_known = true;
        self.bytes += bytes;
        if has_records {
            self.held += bytes + usize::from(self.place(index).base_bytes);
            self.link(index);
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
            older: NO_STREAM,
            newer: NO_STREAM,
            turn: self.turns.len() as u32,
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
        self.bytes += base_bytes;
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
        let stream = place_of(&mut self.places, index);
        let had_records = stream.stream.has_records();
        let (position, more) = stream.stream.append(kept, &self.lent, at_ms);
        self.bytes += more;
        self.held += more;
        if !had_records {
            self.held += usize::from(stream.base_bytes);
            self.link(index);
        } else if self.newest != index {
            self.unlink(index);
            self.link(index);
        }
        self.trim(index, history, now_ms);
        position
    }

    fn trim(&mut self, index: u32, history: &History, now_ms: u64) {
        self.shrink(index, |stream| stream.trim(history, now_ms));
    }

    /// Has a stream give something up.
    fn shrink(&mut self, index: u32, give: impl FnOnce(&mut Stream) -> usize) {
        let place = self.place_mut(index);
        let had_records = place.stream.has_records();
        let less = give(&mut place.stream);
        let has_records = place.stream.has_records();
        let base_bytes = usize::from(place.base_bytes);
        self.bytes -= less;
        self.held -= less;
        if had_records && !has_records {
            self.held -= base_bytes;
            self.unlink(index);
        }
        if less > 0 {
            self.note_change(index);
        }
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
    pub(crate) fn waited(&mut self, index: u32, is_kept: bool) {
        let place = self.place_mut(index);
        place.pending -= 1;
        place.ahead -= u32::from(is_kept);
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

    /// The stream that was published to longest ago gives up its oldest publications, as many as it takes for those with
    /// publications to come down to so many bytes. False if there is none. One at a time: what it gives may be too little.
    pub(crate) fn evict(&mut self, bytes_max: usize) -> bool {
        let index = self.oldest;
        if index == NO_STREAM {
            return false;
        }
        while self.held > bytes_max && self.get(index).has_records() {
            self.shrink(index, Stream::drop_oldest);
            self.evicted += 1;
        }
        true
    }

    /// Looks at up to so many streams, round and round: lets go of publications whose time is over, and of streams that
    /// nobody needs any more; where there `is_too_much`, of every one without publications to which nobody is subscribed.
    /// Calls `gone` for those.
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
                Some(history) => self.trim(index, history, now_ms),
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

    /// Forgets a stream.
    pub(crate) fn close(&mut self, index: u32) -> Gone {
        self.clear(index);
        let Some(place) = self.places[index as usize].take() else {
            unreachable!("indices are held by channels only while the stream is there");
        };
        self.bytes -= usize::from(place.base_bytes);
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

    /// Puts it at the newer end.
    fn link(&mut self, index: u32) {
        let newest = self.newest;
        let place = self.place_mut(index);
        place.older = newest;
        place.newer = NO_STREAM;
        match newest {
            NO_STREAM => self.oldest = index,
            _ => self.place_mut(newest).newer = index,
        }
        self.newest = index;
    }

    fn unlink(&mut self, index: u32) {
        let Place { older, newer, .. } = *self.place(index);
        match older {
            NO_STREAM => self.oldest = newer,
            _ => self.place_mut(older).newer = newer,
        }
        match newer {
            NO_STREAM => self.newest = older,
            _ => self.place_mut(newer).older = older,
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

fn place_of(places: &mut [Option<Place>], index: u32) -> &mut Place {
    places[index as usize]
        .as_mut()
        .expect("channels hold the index only while the stream is there")
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::stream::FRESH_MS;
    use crate::{PayloadKind, Recovery};

    const HISTORY: History = History {
        size: 10,
        ttl_ms: 1_000,
        position_ttl_ms: 10_000,
        recovery: Recovery::Missed,
    };

    fn publish(streams: &mut Streams, index: u32, now_ms: u64) {
        let payload = Payload {
            kind: PayloadKind::Text,
            bytes: Bytes::from(vec![b'x'; 1000]),
        };
        streams.append(index, (payload, None), now_ms, &HISTORY, now_ms);
    }

    fn three() -> Streams {
        let mut streams = Streams::new(Epochs::new(1));
        for channel in 0..3 {
            assert_eq!(streams.open(channel, 8, 0), channel);
            publish(&mut streams, channel, 0);
            publish(&mut streams, channel, 0);
        }
        streams
    }

    #[test]
    fn the_idle_give_first() {
        let mut streams = three();
        // 0 is the latest now, and the oldest is 1.
        publish(&mut streams, 0, 0);
        let full = streams.bytes();
        assert!(streams.evict(full - 1));
        let left = |streams: &Streams| {
            let count = |index| {
                let query = crate::Query {
                    limit: 99,
                    ..crate::Query::default()
                };
                let page = streams.get(index).page(&query, 99);
                page.expect("of it").len()
            };
            [0, 1, 2].map(count)
        };
        assert_eq!(left(&streams), [3, 1, 2]);
        assert!(streams.evict(full - 3_000));
        assert_eq!(left(&streams), [3, 0, 2]);
        // It keeps its position, and the next one gives.
        assert!(streams.evict(full - 3_000));
        assert_eq!(left(&streams), [3, 0, 1]);
        assert_eq!(streams.get(1).position().offset, 2);
        assert!(streams.evict(0));
        assert_eq!((streams.len(), streams.evicted()), (3, 4));
        streams.close(2);
        assert_eq!(streams.open(7, 8, 0), 2, "places are reused");
    }

    #[test]
    fn eviction_stops_at_the_byte() {
        let mut streams = three();
        let full = streams.bytes();
        publish(&mut streams, 2, 0);
        let each = streams.bytes() - full;
        // Equal to the budget is within it.
        assert!(streams.evict(full));
        assert_eq!((streams.bytes(), streams.evicted()), (full, 1));
        assert!(streams.evict(full));
        assert_eq!((streams.bytes(), streams.evicted()), (full, 1));
        let less = full - each;
        assert!(streams.evict(less));
        assert_eq!((streams.bytes(), streams.len()), (less, 3));
    }

    #[test]
    fn what_nobody_ever_published_to_costs_nobody_his_history() {
        let mut streams = Streams::new(Epochs::new(1));
        let index = streams.open(0, 8, 0);
        publish(&mut streams, index, 0);
        for channel in 1..100 {
            streams.open(channel, 255, 0);
        }
        let mut gone = 0;
        streams.look(100, 0, true, |_| Some(HISTORY), |_| false, |_| gone += 1);
        assert_eq!(gone, 99);
        assert!(streams.get(index).has_records());
        // Without need they are kept for a while.
        streams.open(1, 255, 0);
        let mut look = |now_ms| {
            let mut gone = 0;
            let ttl = History {
                ttl_ms: u64::MAX,
                position_ttl_ms: u64::MAX,
                ..HISTORY
            };
            streams.look(100, now_ms, false, |_| Some(ttl), |_| false, |_| gone += 1);
            gone
        };
        assert_eq!((look(FRESH_MS - 1), look(FRESH_MS)), (0, 1));
    }

    #[test]
    fn who_alone_is_over_the_budget_gives_its_oldest() {
        let mut streams = Streams::new(Epochs::new(1));
        let index = streams.open(0, 8, 0);
        for _ in 0..5 {
            publish(&mut streams, index, 0);
        }
        assert!(streams.evict(3_000));
        assert!(streams.held() <= 3_000);
        assert!(streams.evict(0));
        assert!(!streams.evict(0));
        assert_eq!((streams.held(), streams.silent()), (0, streams.bytes()));
        assert_eq!(streams.get(index).position().offset, 5);
    }

    #[test]
    fn what_is_over_goes_in_time() {
        let mut streams = three();
        let mut gone = Vec::new();
        let mut look = |streams: &mut Streams, now_ms, used| {
            streams.look(
                3,
                now_ms,
                false,
                |_| Some(HISTORY),
                |_| used,
                |one| gone.push(one.channel),
            );
            std::mem::take(&mut gone)
        };
        assert!(look(&mut streams, 999, false).is_empty());
        assert!(streams.get(0).has_records());
        assert!(look(&mut streams, 1_000, false).is_empty());
        assert!(!streams.get(0).has_records());
        assert!(look(&mut streams, 10_000, true).is_empty());
        let mut last = look(&mut streams, 10_000, false);
        last.sort_unstable();
        assert_eq!(last, [0, 1, 2]);
        assert_eq!((streams.len(), streams.bytes()), (0, 0));
    }

    #[test]
    fn a_stream_that_takes_the_number_of_a_closed_one_closes_too() {
        let mut streams = three();
        // All have been visited in this round.
        streams.look(3, 0, false, |_| Some(HISTORY), |_| true, |_| {});
        for index in 0..3 {
            streams.close(index);
        }
        assert_eq!((streams.len(), streams.turns.len()), (0, 0));
    }

    #[test]
    fn each_round_visits_every_stream_once_while_others_close() {
        for seed in 0..20 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut streams = Streams::new(Epochs::new(1));
            let mut alive: Vec<u32> = (0..200).collect();
            for channel in &alive {
                assert_eq!(streams.open(*channel, 8, 0), *channel);
            }
            let mut seen = std::cell::RefCell::new(std::collections::BTreeSet::new());
            while !alive.iter().all(|channel| seen.get_mut().contains(channel)) {
                let closed = alive.swap_remove(random.usize(..alive.len()));
                streams.close(closed);
                let mut gone = Vec::new();
                streams.look(
                    1,
                    0,
                    false,
                    |channel| {
                        assert!(seen.borrow_mut().insert(channel), "{seed}: twice");
                        // Channels without history lose their stream in the pass.
                        (channel % 7 > 0).then_some(HISTORY)
                    },
                    |_| false,
                    |one| gone.push(one.channel),
                );
                assert!(gone.iter().all(|channel| channel % 7 == 0));
                alive.retain(|channel| !gone.contains(channel));
                assert_eq!(streams.len(), alive.len());
            }
        }
    }
}
