//! Deltas in Fossil's format. They are only created here; clients apply them.
//!
//! A delta is the length of the new data and a line break, then pieces, then a checksum and `;`. A piece is `N@M,`,
//! which copies `N` bytes from offset `M` of the old data, or `N:` followed by that number of bytes. Numbers are in
//! base 64. (<https://fossil-scm.org/home/doc/trunk/www/delta_format.wiki>)
//!
//! Unchanged data are usually at the beginning and the end, and are matched there first. In between, each position is
//! looked up by a rolling hash in a table of the old data's blocks. The cost is linear: a position is compared with at
//! most a few blocks, and matched bytes are skipped.

use std::ops::Range;

/// Maximum size of the old and of the new data, in bytes; larger data get no delta. Workers compute deltas between
/// other work, and a delta between random data of this size takes some milliseconds.
pub const DELTA_BYTES_MAX: usize = 128 << 10;

/// Block size for lookups, in bytes: shorter matches are hardly worth a copy.
const BLOCK: usize = 16;

/// Maximum number of blocks of the old data with which each position of the new data is compared.
const CANDIDATES_MAX: usize = 8;

/// Marks a table entry that refers to no block.
const NONE: u32 = u32::MAX;

const DIGITS: &[u8; 64] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz~";

/// Returns the delta from `old` to `new`, if it is smaller than `new` and neither is larger than [`DELTA_BYTES_MAX`].
/// If `new` is UTF-8, so is the delta, for any `old`.
#[must_use]
pub fn fossil_delta(old: &[u8], new: &[u8]) -> Option<Vec<u8>> {
    if old.len().max(new.len()) > DELTA_BYTES_MAX {
        return None;
    }
    let mut delta = DeltaWriter::new(new);
    let is_same = |(a, b): &(&u8, &u8)| a == b;
    let begin = old.iter().zip(new).take_while(is_same).count();
    let (old_rest, new_rest) = (&old[begin..], &new[begin..]);
    let rest = old_rest.iter().rev().zip(new_rest.iter().rev());
    let end = rest.take_while(is_same).count();
    let between = begin..new.len() - end;
    delta.copy(0..begin, 0);
    if between.len() >= BLOCK && old.len() >= BLOCK {
        delta.copy_from_anywhere(old, between.clone());
    }
    delta.copy(between.end..new.len(), old.len() - end);
    delta.end()
}

/// A delta in progress.
struct DeltaWriter<'a> {
    new: &'a [u8],
    /// Whether the new data is UTF-8; the delta then never splits a character.
    is_text: bool,
    out: Vec<u8>,
    /// The offset in the new data up to which the delta is written.
    written: usize,
}

impl<'a> DeltaWriter<'a> {
    fn new(new: &'a [u8]) -> Self {
        let mut out = Vec::with_capacity(64);
        put_number(&mut out, new.len() as u32);
        out.push(b'\n');
        Self {
            new,
            is_text: simdutf8::basic::from_utf8(new).is_ok(),
            out,
            written: 0,
        }
    }

    /// Adds an instruction that copies the bytes `places` of the new data from offset `source` of the old data. Adds
    /// nothing if it would be shorter to insert these bytes.
    fn copy(&mut self, mut places: Range<usize>, mut source: usize) {
        if self.is_text {
            while places.start < places.end && self.is_within(places.start) {
                places.start += 1;
                source += 1;
            }
            while places.start < places.end && self.is_within(places.end) {
                places.end -= 1;
            }
        }
        let count = places.len();
        if count <= digits(count) + digits(source) + 2 {
            return;
        }
        self.insert_up_to(places.start);
        put_number(&mut self.out, count as u32);
        self.out.push(b'@');
        put_number(&mut self.out, source as u32);
        self.out.push(b',');
        self.written = places.end;
    }

    /// Returns whether a cut at this offset would split a character.
    fn is_within(&self, place: usize) -> bool {
        self.new.get(place).is_some_and(|byte| byte & 0xc0 == 0x80)
    }

    fn insert_up_to(&mut self, place: usize) {
        let bytes = &self.new[self.written..place];
        if !bytes.is_empty() {
            put_number(&mut self.out, bytes.len() as u32);
            self.out.push(b':');
            self.out.extend_from_slice(bytes);
        }
        self.written = place;
    }

    /// Writes, as copies, the parts of the range `places` of the new data that occur anywhere in
    /// the old data.
    fn copy_from_anywhere(&mut self, old: &[u8], places: Range<usize>) {
        let blocks = BlockIndex::new(old);
        let mut at = places.start;
        let mut hash = None;
        while at + BLOCK <= places.end {
            let rolled = match hash {
                Some((hash, gone)) => roll(hash, gone, self.new[at + BLOCK - 1]),
                None => hash_of(&self.new[at..at + BLOCK]),
            };
            hash = Some((rolled, self.new[at]));
            // Bytes that are already written are not matched again.
            let free = self.written.max(places.start)..places.end;
            if let Some((found, source)) = blocks.find(rolled, self.new, at, free) {
                let end = found.end;
                self.copy(found, source);
                if self.written > at {
                    debug_assert!(self.written <= end);
                    at = self.written;
                    hash = None;
                    continue;
                }
            }
            at += 1;
        }
    }

    fn end(mut self) -> Option<Vec<u8>> {
        // A delta that is not shorter than the new data is useless.
        let left = self.new.len() - self.written;
        if self.out.len() + left >= self.new.len() {
            return None;
        }
        self.insert_up_to(self.new.len());
        put_number(&mut self.out, checksum(self.new));
        self.out.push(b';');
        (self.out.len() < self.new.len()).then_some(self.out)
    }
}

/// An index of the old data's blocks by hash.
struct BlockIndex<'a> {
    old: &'a [u8],
    /// The first block of each hash; the length is a power of two.
    first: Vec<u32>,
    /// For each block, the next block with the same hash.
    next: Vec<u32>,
}

impl<'a> BlockIndex<'a> {
    fn new(old: &'a [u8]) -> Self {
        let count = old.len() / BLOCK;
        let mut blocks = Self {
            old,
            first: vec![NONE; count.next_power_of_two()],
            next: vec![NONE; count],
        };
        // Blocks are added from the last to the first, so that a lookup finds earlier blocks first.
        for block in (0..count).rev() {
            let bytes = &old[block * BLOCK..][..BLOCK];
            let slot = blocks.slot(hash_of(bytes));
            blocks.next[block] = std::mem::replace(&mut blocks.first[slot], block as u32);
        }
        blocks
    }

    fn slot(&self, hash: u32) -> usize {
        // The multiplication makes the upper bits depend on the whole block.
        let mixed = hash.wrapping_mul(0x9e37_79b1);
        (mixed ^ mixed >> 16) as usize & (self.first.len() - 1)
    }

    /// Returns the range of the longest match around offset `at` of `new`, and the match's offset in the old data. The
    /// range is limited to the offsets `free` of `new`.
    fn find(
        &self,
        hash: u32,
        new: &[u8],
        at: usize,
        free: Range<usize>,
    ) -> Option<(Range<usize>, usize)> {
        let mut best: Option<(Range<usize>, usize)> = None;
        let mut block = self.first[self.slot(hash)];
        for _ in 0..CANDIDATES_MAX {
            if block == NONE {
                break;
            }
            let source = block as usize * BLOCK;
            block = self.next[source / BLOCK];
            if self.old[source..source + BLOCK] != new[at..at + BLOCK] {
                continue;
            }
            let is_same = |(a, b): &(&u8, &u8)| a == b;
            let ahead = self.old[source..].iter().zip(&new[at..free.end]);
            let ahead = ahead.take_while(is_same).count();
            let behind = self.old[..source].iter().rev();
            let behind = behind.zip(new[free.start..at].iter().rev());
            let behind = behind.take_while(is_same).count();
            let found = at - behind..at + ahead;
            if best
                .as_ref()
                .is_none_or(|(best, _)| best.len() < found.len())
            {
                best = Some((found, source - behind));
            }
        }
        best
    }
}

const FACTOR: u32 = 0x0100_0193;

/// The factor with which a block's oldest byte counts in the rolling hash.
const FACTOR_OLDEST: u32 = FACTOR.wrapping_pow(BLOCK as u32 - 1);

fn hash_of(block: &[u8]) -> u32 {
    block.iter().fold(0, |hash: u32, byte| {
        hash.wrapping_mul(FACTOR).wrapping_add((*byte).into())
    })
}

/// Returns the hash of the block that begins one byte later.
fn roll(hash: u32, gone: u8, come: u8) -> u32 {
    let rest = hash.wrapping_sub(u32::from(gone).wrapping_mul(FACTOR_OLDEST));
    rest.wrapping_mul(FACTOR).wrapping_add(come.into())
}

/// Returns the number of base-64 digits of a number.
fn digits(number: usize) -> usize {
    (usize::BITS - (number | 1).leading_zeros()).div_ceil(6) as usize
}

fn put_number(out: &mut Vec<u8>, number: u32) {
    for place in (0..digits(number as usize)).rev() {
        out.push(DIGITS[(number >> (6 * place)) as usize & 63]);
    }
}

/// Returns the sum of all groups of four bytes as big-endian numbers.
fn checksum(bytes: &[u8]) -> u32 {
    bytes.chunks(4).fold(0, |sum: u32, chunk| {
        let mut four = [0; 4];
        four[..chunk.len()].copy_from_slice(chunk);
        sum.wrapping_add(u32::from_be_bytes(four))
    })
}
