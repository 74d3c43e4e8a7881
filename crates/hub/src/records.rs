//! The publications of a stream. They are stored so that replies can share them.
//!
//! The latest publications are stored individually, older ones in blocks of [`BLOCK_RECORDS`]. A [`StreamExcerpt`]
//! refers to whole blocks, so a reply with thousands of publications costs a few hundred references, however many clients
//! request it. When the first publication of a block is dropped, the block is split up into individual
//! publications.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::{FeedEvent, Payload, Position, Publication, PublicationInfo};

/// Number of publications in a block.
pub(crate) const BLOCK_RECORDS: usize = 64;

/// The memory in bytes that a publication takes in addition to its payload and metadata: the record, and the reference
/// count of the payload.
pub(crate) const RECORD_BYTES: usize = size_of::<StreamRecord>() + 40;

/// A stored publication. Its offset is not stored: offsets have no gaps, so the offset follows from the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StreamRecord {
    pub(crate) payload: Payload,
    pub(crate) at_ms: u64,
    pub(crate) info: Option<Arc<PublicationInfo>>,
}

impl StreamRecord {
    pub(crate) fn bytes(&self) -> usize {
        let info = self.info.as_ref().map_or(0, |info| info.bytes());
        RECORD_BYTES + self.payload.bytes.len() + info
    }

    /// Returns the publication at this position, which shares the memory of the record's payload.
    pub(crate) fn publication(&self, position: Position) -> Publication {
        Publication {
            payload: self.payload.clone(),
            position: Some(position),
            at_ms: self.at_ms,
            event: FeedEvent::Published,
            info: self.info.clone(),
        }
    }
}

/// The size in bytes of the blocks that streams have dropped but history replies still refer to.
#[derive(Clone, Debug, Default)]
pub(crate) struct LentBytes(Arc<AtomicUsize>);

impl LentBytes {
    pub(crate) fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// A block of [`BLOCK_RECORDS`] consecutive publications.
#[derive(Debug)]
struct Block {
    records: Vec<StreamRecord>,
    /// Counts the block's bytes from the time at which the stream drops the block until no reply refers to it.
    lent: LentBytes,
    is_dropped: AtomicBool,
}

impl Block {
    fn bytes(&self) -> usize {
        self.records.iter().map(StreamRecord::bytes).sum()
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if *self.is_dropped.get_mut() {
            self.lent.0.fetch_sub(self.bytes(), Ordering::Relaxed);
        }
    }
}

/// The stored publications of a stream, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Records {
    /// The publications before the latest ones, if there are many.
    older: Option<Box<Older>>,
    latest: VecDeque<StreamRecord>,
}

#[derive(Debug, Default)]
struct Older {
    /// The rest of the oldest block, which was split up.
    first: VecDeque<StreamRecord>,
    blocks: VecDeque<Arc<Block>>,
}

impl Records {
    pub(crate) fn len(&self) -> usize {
        let older = self.older.as_ref();
        older.map_or(0, |older| {
            older.first.len() + older.blocks.len() * BLOCK_RECORDS
        }) + self.latest.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        // Publications in `older` are always dropped first, so if `latest` is empty, `older` is empty too.
        self.latest.is_empty()
    }

    pub(crate) fn front(&self) -> Option<&StreamRecord> {
        match &self.older {
            None => self.latest.front(),
            Some(older) => older.first.front().or_else(|| {
                let block = older.blocks.front()?;
                block.records.first()
            }),
        }
    }

    pub(crate) fn back(&self) -> Option<&StreamRecord> {
        self.latest.back()
    }

    pub(crate) fn push(&mut self, record: StreamRecord, lent: &LentBytes) {
        if self.latest.len() == 2 * BLOCK_RECORDS {
            let records = self.latest.drain(..BLOCK_RECORDS).collect();
            let block = Block {
                records,
                lent: lent.clone(),
                is_dropped: AtomicBool::new(false),
            };
            let older = self.older.get_or_insert_default();
            older.blocks.push_back(Arc::new(block));
        }
        // The capacity grows by at most half, because budgets do not count spare capacity.
        if self.latest.len() == self.latest.capacity() {
            let more = (self.latest.len() / 2).max(1);
            self.latest
                .reserve_exact(more.min(2 * BLOCK_RECORDS - self.latest.len()));
        }
        self.latest.push_back(record);
    }

    pub(crate) fn pop_front(&mut self) -> Option<StreamRecord> {
        let Some(older) = &mut self.older else {
            let record = self.latest.pop_front();
            if self.latest.len() < self.latest.capacity() / 4 || self.latest.is_empty() {
                self.latest.shrink_to(2 * self.latest.len());
            }
            return record;
        };
        if older.first.is_empty()
            && let Some(block) = older.blocks.pop_front()
        {
            older.first = into_records(block);
        }
        let record = older.first.pop_front();
        if older.first.is_empty() && older.blocks.is_empty() {
            self.older = None;
        }
        record
    }

    /// Iterates over the records at these indices, oldest first.
    pub(crate) fn range(
        &self,
        places: Range<usize>,
    ) -> impl DoubleEndedIterator<Item = &StreamRecord> {
        let older = self.older.as_deref();
        let first_len = older.map_or(0, |older| older.first.len());
        let blocks_len = older.map_or(0, |older| older.blocks.len() * BLOCK_RECORDS);
        let part = |from: usize, len: usize| {
            let [begin, end] = [places.start, places.end].map(|at| at.clamp(from, from + len));
            (begin - from, end - from)
        };
        let (begin, end) = part(0, first_len);
        let first = older
            .into_iter()
            .flat_map(move |older| older.first.range(begin..end));
        let (begin, end) = part(first_len, blocks_len);
        let blocks = older.into_iter().flat_map(move |older| {
            let numbers = begin / BLOCK_RECORDS..end.div_ceil(BLOCK_RECORDS);
            let blocks = older.blocks.range(numbers.clone()).zip(numbers);
            blocks.flat_map(move |(block, number)| {
                let at = number * BLOCK_RECORDS;
                block.records[begin.saturating_sub(at)..BLOCK_RECORDS.min(end - at)].iter()
            })
        });
        // The size of this iterator is known if it covers only the latest publications, so that a recovery is collected
        // without reallocation.
        let (begin, end) = part(first_len + blocks_len, self.latest.len());
        first.chain(blocks).chain(self.latest.range(begin..end))
    }

    /// Returns an owned excerpt of the records at these indices. The excerpt shares whole blocks with the stream.
    pub(crate) fn share(&self, places: Range<usize>) -> StreamExcerpt {
        let begin = self.older.as_ref().map_or(0, |older| older.first.len());
        let blocks = self.older.as_ref().map_or(0, |older| older.blocks.len());
        let whole_from = places.start.saturating_sub(begin).div_ceil(BLOCK_RECORDS);
        let whole_to = (places.end.saturating_sub(begin) / BLOCK_RECORDS).min(blocks);
        let copy = |places: Range<usize>| self.range(places).cloned().collect();
        if whole_from >= whole_to {
            return StreamExcerpt {
                first: copy(places),
                ..StreamExcerpt::default()
            };
        }
        let older = self.older.iter().flat_map(|older| &older.blocks);
        let whole = older.skip(whole_from).take(whole_to - whole_from);
        StreamExcerpt {
            first: copy(places.start..begin + whole_from * BLOCK_RECORDS),
            blocks: whole.cloned().collect(),
            last: copy(begin + whole_to * BLOCK_RECORDS..places.end),
        }
    }
}

/// Returns the records of a block. They are cloned if a reply still holds the block.
fn into_records(block: Arc<Block>) -> VecDeque<StreamRecord> {
    match Arc::try_unwrap(block) {
        Ok(mut block) => std::mem::take(&mut block.records).into(),
        Err(block) => {
            // When the last reference to the block is dropped, which may be at the end of this function, its bytes are
            // subtracted again.
            block.lent.0.fetch_add(block.bytes(), Ordering::Relaxed);
            block.is_dropped.store(true, Ordering::Relaxed);
            block.records.iter().cloned().collect()
        }
    }
}

/// An immutable part of a stream's publications, which later changes of the stream do not affect.
#[derive(Clone, Debug, Default)]
pub(crate) struct StreamExcerpt {
    first: Box<[StreamRecord]>,
    blocks: Box<[Arc<Block>]>,
    last: Box<[StreamRecord]>,
}

impl StreamExcerpt {
    pub(crate) fn len(&self) -> usize {
        self.first.len() + self.blocks.len() * BLOCK_RECORDS + self.last.len()
    }

    pub(crate) fn get(&self, place: usize) -> Option<&StreamRecord> {
        find(
            place,
            self.first.len(),
            self.blocks.len(),
            |part| match part {
                Part::First(place) => self.first.get(place),
                Part::Block(block, place) => self.blocks.get(block)?.records.get(place),
                Part::Last(place) => self.last.get(place),
            },
        )
    }
}

impl PartialEq for StreamExcerpt {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len()
            && (0..self.len()).all(|place| self.get(place) == other.get(place))
    }
}

impl Eq for StreamExcerpt {}

/// Where a record of an excerpt is: before the blocks, in a block at an index, or after the blocks.
enum Part {
    First(usize),
    Block(usize, usize),
    Last(usize),
}

fn find<T>(place: usize, first: usize, blocks: usize, get: impl FnOnce(Part) -> T) -> T {
    get(match place.checked_sub(first) {
        None => Part::First(place),
        Some(place) if place < blocks * BLOCK_RECORDS => {
            Part::Block(place / BLOCK_RECORDS, place % BLOCK_RECORDS)
        }
        Some(place) => Part::Last(place - blocks * BLOCK_RECORDS),
    })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::PayloadKind;

    fn record(number: usize) -> StreamRecord {
        StreamRecord {
            payload: Payload {
                kind: PayloadKind::Text,
                bytes: Bytes::from(number.to_string()),
            },
            at_ms: number as u64,
            info: None,
        }
    }

    fn records(count: usize, lent: &LentBytes) -> Records {
        let mut records = Records::default();
        (0..count).for_each(|number| records.push(record(number), lent));
        records
    }

    fn numbers(excerpt: &StreamExcerpt) -> Vec<usize> {
        let get = |place| excerpt.get(place).expect("within its length").at_ms as usize;
        (0..excerpt.len()).map(get).collect()
    }

    #[test]
    fn every_range_has_its_records_however_many_were_dropped() {
        let lent = LentBytes::default();
        for count in [
            0,
            1,
            BLOCK_RECORDS,
            2 * BLOCK_RECORDS,
            2 * BLOCK_RECORDS + 1,
            5 * BLOCK_RECORDS + 7,
        ] {
            let mut records = records(count, &lent);
            for dropped in 0..=count {
                let left = count - dropped;
                assert_eq!(records.len(), left);
                assert_eq!(records.is_empty(), left == 0);
                assert_eq!(records.front().map(|one| one.at_ms as usize), {
                    (left > 0).then_some(dropped)
                });
                assert_eq!(records.back().map(|one| one.at_ms as usize + 1), {
                    (left > 0).then_some(count)
                });
                for begin in [0, 1, left / 3, left].into_iter().filter(|at| *at <= left) {
                    for end in [begin, begin + left / 2, left] {
                        let end = end.clamp(begin, left);
                        let expected: Vec<_> = (dropped + begin..dropped + end).collect();
                        let range = records.range(begin..end);
                        let range: Vec<_> = range.map(|one| one.at_ms as usize).collect();
                        assert_eq!(range, expected);
                        assert_eq!(numbers(&records.share(begin..end)), expected);
                    }
                }
                records.pop_front();
            }
        }
    }

    #[test]
    fn excerpts_are_equal_if_all_of_their_records_are() {
        let lent = LentBytes::default();
        let count = 5 * BLOCK_RECORDS;
        let excerpt = records(count, &lent).share(0..count);
        assert_eq!(excerpt, records(count + 1, &lent).share(0..count));
        for other in [0..count - 1, 0..count + 1, 1..count + 1, 0..0] {
            let other = records(count + 1, &lent).share(other);
            assert_ne!(excerpt, other);
            assert_ne!(other, excerpt);
        }
    }

    #[test]
    fn dropped_records_leave_little_spare_capacity() {
        let lent = LentBytes::default();
        for count in 1..=5 * BLOCK_RECORDS {
            let mut records = Records::default();
            for number in 0..count {
                records.push(record(number), &lent);
                let (len, room) = (records.latest.len(), records.latest.capacity());
                assert!(
                    records.older.is_some() || 2 * room <= 3 * len + 1,
                    "{room} for {len}"
                );
                assert!(room <= 2 * BLOCK_RECORDS);
            }
            while records.pop_front().is_some() {
                let (len, room) = (records.latest.len(), records.latest.capacity());
                assert!(room <= 4 * len + 3, "{room} for {len} of {count}");
            }
            assert_eq!(records.latest.capacity(), 0);
        }
    }

    #[test]
    fn an_excerpt_refers_to_blocks_and_copies_less_than_one_at_either_end() {
        let lent = LentBytes::default();
        let records = records(20 * BLOCK_RECORDS, &lent);
        let excerpt = records.share(1..20 * BLOCK_RECORDS - 1);
        assert_eq!(excerpt.blocks.len(), 17);
        assert_eq!(excerpt.first.len(), BLOCK_RECORDS - 1);
        assert!(excerpt.last.len() < 2 * BLOCK_RECORDS);
        let older = records.older.as_ref().expect("it is long");
        assert!(Arc::ptr_eq(&excerpt.blocks[0], &older.blocks[1]));
    }

    #[test]
    fn dropped_records_held_by_replies_are_counted() {
        let lent = LentBytes::default();
        let mut records = records(4 * BLOCK_RECORDS, &lent);
        let block: usize = records
            .range(0..BLOCK_RECORDS)
            .map(StreamRecord::bytes)
            .sum();
        let excerpts = [
            records.share(0..4 * BLOCK_RECORDS),
            records.share(0..2 * BLOCK_RECORDS),
        ];
        assert_eq!(lent.bytes(), 0, "the stream has them, too");
        records.pop_front();
        assert_eq!(lent.bytes(), block);
        (1..BLOCK_RECORDS).for_each(|_| drop(records.pop_front()));
        assert_eq!(lent.bytes(), block);
        records.pop_front();
        assert!(lent.bytes() > block);
        let all: Vec<_> = (0..4 * BLOCK_RECORDS).collect();
        assert_eq!(numbers(&excerpts[0]), all, "it stays as it was");
        drop(excerpts);
        assert_eq!(lent.bytes(), 0);
        (0..BLOCK_RECORDS).for_each(|_| drop(records.pop_front()));
        assert_eq!(lent.bytes(), 0, "the bytes are unshared");
    }
}
