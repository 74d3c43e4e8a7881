//! The streams of this worker, their budget of bytes, and which of them were idle longest.

use std::sync::Arc;

use crate::channel::{Channel, reserve_one};
use crate::position::Epochs;
use crate::stream::Stream;
use crate::{History, Info, Payload, Position};

/// No stream.
const NO_STREAM: u32 = u32::MAX;

/// What a stream costs without publications: its place, and its channel's entry with its share of the table of names.
const STREAM_BYTES: usize = size_of::<Option<Place>>() + size_of::<Option<Channel>>() + 48;

#[derive(Debug)]
struct Place {
    stream: Stream,
    channel: u32,
    /// What it costs without publications.
    base_bytes: u32,
    /// Neighbours in the order of their last publications, among those that have some.
    older: u32,
    newer: u32,
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Streams {
    places: Vec<Option<Place>>,
    free: Vec<u32>,
    oldest: u32,
    newest: u32,
    bytes: usize,
    epochs: Epochs,
    /// Where the look for what is over has come to.
    cursor: usize,
    /// Publications that had to go before their time, so far.
    evicted: u64,
}

/// A stream that nobody needs was let go of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gone {
    pub(crate) channel: u32,
}

impl Streams {
    pub(crate) fn new(epochs: Epochs) -> Self {
        Self {
            places: Vec::new(),
            free: Vec::new(),
            oldest: NO_STREAM,
            newest: NO_STREAM,
            bytes: 0,
            epochs,
            cursor: 0,
            evicted: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Begins a stream.
    pub(crate) fn open(&mut self, channel: u32, name_bytes: usize, now_ms: u64) -> u32 {
        let base_bytes = STREAM_BYTES + name_bytes;
        let place = Place {
            stream: Stream::new(self.epochs.make(), now_ms),
            channel,
            base_bytes: base_bytes as u32,
            older: NO_STREAM,
            newer: NO_STREAM,
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

    /// Keeps a publication, within the limits of its channel.
    pub(crate) fn append(
        &mut self,
        index: u32,
        kept: (Payload, Option<Arc<Info>>),
        history: &History,
        now_ms: u64,
    ) -> Position {
        let stream = self.get_mut(index);
        let had_records = stream.has_records();
        let (position, more) = stream.append(kept, now_ms);
        self.bytes += more;
        if !had_records {
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
        let stream = self.get_mut(index);
        let had_records = stream.has_records();
        let less = give(stream);
        let has_records = stream.has_records();
        self.bytes -= less;
        if had_records && !has_records {
            self.unlink(index);
        }
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

    /// The stream that was published to longest ago gives up its oldest publications, as many as it takes to come down
    /// to so many bytes; where nobody is subscribed, it goes whole if that is not enough. One at a time: what it gives
    /// may be too little.
    pub(crate) fn evict(&mut self, bytes_max: usize, is_used: impl Fn(u32) -> bool) -> Eviction {
        let index = self.oldest;
        if index == NO_STREAM {
            return Eviction::Nothing;
        }
        while self.bytes > bytes_max && self.get(index).has_records() {
            self.shrink(index, Stream::drop_oldest);
            self.evicted += 1;
        }
        if self.bytes > bytes_max && !is_used(self.place(index).channel) {
            return Eviction::Stream(self.close(index));
        }
        Eviction::Publications
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
        for _ in 0..count.min(self.places.len()) {
            self.cursor = (self.cursor + 1) % self.places.len();
            let index = self.cursor as u32;
            let Some(place) = &self.places[self.cursor] else {
                continue;
            };
            let channel = place.channel;
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
        self.bytes -= place.base_bytes as usize;
        self.free.push(index);
        Gone {
            channel: place.channel,
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
        self.places[index as usize]
            .as_mut()
            .expect("channels hold the index only while the stream is there")
    }
}

/// What was given up for the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Eviction {
    /// There is nothing.
    Nothing,
    /// Some publications.
    Publications,
    /// A stream.
    Stream(Gone),
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
        streams.append(index, (payload, None), &HISTORY, now_ms);
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
        assert_eq!(streams.evict(full - 1, |_| true), Eviction::Publications);
        let left = |streams: &Streams| {
            let count = |index| {
                let page = streams.get(index).page(&crate::Query {
                    limit: 99,
                    ..crate::Query::default()
                });
                page.expect("of it").publications.len()
            };
            [0, 1, 2].map(count)
        };
        assert_eq!(left(&streams), [3, 1, 2]);
        assert_eq!(
            streams.evict(full - 2_500, |_| true),
            Eviction::Publications
        );
        assert_eq!(left(&streams), [3, 0, 2]);
        // One that is used keeps its position, and the next one gives.
        assert_eq!(
            streams.evict(full - 2_500, |_| true),
            Eviction::Publications
        );
        assert_eq!(left(&streams), [3, 0, 1]);
        assert_eq!(streams.get(1).position().offset, 2);
        let gone = Eviction::Stream(Gone { channel: 2 });
        assert_eq!(streams.evict(0, |_| false), gone);
        assert_eq!(streams.len(), 2);
        assert_eq!(streams.evicted(), 4);
        assert_eq!(streams.open(7, 8, 0), 2, "places are reused");
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
        assert_eq!(streams.evict(3_000, |_| true), Eviction::Publications);
        assert!(streams.bytes() <= 3_000);
        assert_eq!(streams.evict(0, |_| true), Eviction::Publications);
        assert_eq!(streams.evict(0, |_| true), Eviction::Nothing);
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
}
