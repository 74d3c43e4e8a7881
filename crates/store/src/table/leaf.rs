//! A leaf: up to about a thousand rows with neighbouring numbers.
//!
//! Rows are in the order of their numbers. If the numbers are consecutive, as is usual for keys, only the first is stored. The
//! values of a row are packed side by side, so that comparing two columns of a row, or returning the row, touches few cache
//! lines. Strings are stored separately, in the order of rows and columns; a row contains the end offset of each of its
//! strings. Capacity grows in steps of an eighth of a full leaf, so little memory is wasted.

use super::block::Block;
use super::cell::Cell;
use super::numbers::RowNumbers;
use super::shape::{Shape, Slot, SlotForm};

/// Maximum number of rows of a leaf.
pub(super) const ROWS_MAX: usize = 1024;
/// Total size of strings in bytes above which a leaf with several rows is split.
pub(super) const TEXTS_BYTES_MAX: usize = 64 << 10;
/// A leaf with fewer rows is merged with a neighbour.
pub(super) const MERGE_BELOW: usize = ROWS_MAX / 8;
const STEP: usize = ROWS_MAX / 8;
/// The number of rows for which a new leaf has room, so that a small table does not allocate [`STEP`] rows.
const ROWS_FIRST: usize = 8;
/// Minimum growth of the string area in bytes.
const TEXTS_STEP: usize = 64;

/// A leaf. A clone shares the rows until either of the two is changed.
#[derive(Clone, Debug)]
pub(super) struct Leaf {
    numbers: RowNumbers,
    rows: Block,
    texts: Block,
}

impl Leaf {
    pub(super) fn new() -> Self {
        Self {
            numbers: RowNumbers::Run { first: 0, count: 0 },
            rows: Block::default(),
            texts: Block::default(),
        }
    }

    /// Returns an empty leaf with capacity for the maximum number of rows.
    pub(super) fn with_room(shape: &Shape) -> Self {
        let mut leaf = Self::new();
        leaf.rows.resize(0, ROWS_MAX * shape.width);
        leaf
    }

    pub(super) fn shrink_to_fit(&mut self, shape: &Shape) {
        let (rows, texts) = (self.len() * shape.width, self.text_bytes(shape));
        self.rows.resize(rows, rows);
        self.texts.resize(texts, texts);
    }

    pub(super) fn len(&self) -> usize {
        self.numbers.len()
    }

    #[inline]
    pub(super) fn find(&self, row: u32) -> Result<usize, usize> {
        self.numbers.find(row)
    }

    pub(super) fn number(&self, place: usize) -> u32 {
        self.numbers.at(place)
    }

    #[inline]
    pub(super) fn get(&self, shape: &Shape, place: usize, column: usize) -> Cell<'_> {
        let Slot { form, present } = shape.slot(column);
        let row = place * shape.width;
        if let Some((byte, bit)) = present
            && self.rows[row + byte] & bit == 0
        {
            return Cell::Null;
        }
        let narrow = match form {
            SlotForm::Number(key) => return Cell::Bits(key.bits(self.numbers.at(place))),
            SlotForm::Text(text) => return Cell::Text(&self.texts[self.range(shape, place, text)]),
            SlotForm::One(at) => self.rows[row + at].into(),
            SlotForm::Two(at) => u16::from_le_bytes(self.chunk(row + at)).into(),
            SlotForm::Four(at) => u32::from_le_bytes(self.chunk(row + at)).into(),
            SlotForm::Eight(at) => u64::from_le_bytes(self.chunk(row + at)),
        };
        Cell::Bits(shape.kind(column).widen(narrow))
    }

    /// Loads a row into the CPU cache by reading its first byte, and returns this byte. Callers ignore the value.
    #[inline]
    pub(super) fn first_byte(&self, shape: &Shape, place: usize) -> u8 {
        self.rows
            .get(place * shape.width)
            .copied()
            .unwrap_or_default()
    }

    #[inline]
    fn chunk<const SIZE: usize>(&self, at: usize) -> [u8; SIZE] {
        *self.rows[at..].first_chunk().expect("rows are complete")
    }

    /// Returns the end offset of one of a row's strings.
    fn end(&self, shape: &Shape, place: usize, text: usize) -> usize {
        u32::from_le_bytes(self.chunk(place * shape.width + shape.ends + 4 * text)) as usize
    }

    fn range(&self, shape: &Shape, place: usize, text: usize) -> std::ops::Range<usize> {
        let from = match text {
            0 => self.texts_from(shape, place),
            _ => self.end(shape, place, text - 1),
        };
        from..self.end(shape, place, text)
    }

    /// Returns the start offset of a row's strings.
    fn texts_from(&self, shape: &Shape, place: usize) -> usize {
        match (place, shape.texts) {
            (0, _) | (_, 0) => 0,
            (place, texts) => self.end(shape, place - 1, texts - 1),
        }
    }

    /// Inserts a row; `row` has a cell for each column, including the key.
    pub(super) fn insert(&mut self, shape: &Shape, place: usize, number: u32, row: &[Cell<'_>]) {
        let (len, width) = (self.len(), shape.width);
        let from = self.texts_from(shape, place);
        let text_bytes = row.iter().map(|cell| cell.text_bytes()).sum();
        if text_bytes > 0 {
            self.make_text_room(shape, text_bytes);
            let used = self.text_bytes(shape);
            let mut new = self.texts.replace(used, from..from, text_bytes);
            for text in row.iter().map(|cell| cell.text()) {
                let (own, rest) = new.split_at_mut(text.len());
                own.copy_from_slice(text);
                new = rest;
            }
        }
        let needed = len + 1;
        if needed * width > self.rows.len() {
            let most = match needed {
                0..=ROWS_FIRST => ROWS_FIRST,
                _ => needed.next_multiple_of(STEP),
            };
            self.rows.resize(len * width, most * width);
        }
        let at = place * width;
        let new = self.rows.replace(len * width, at..at, width);
        new.fill(0);
        let mut end = from;
        let mut ends = shape.ends;
        for (column, cell) in row.iter().enumerate() {
            shape.write(new, column, *cell);
            if let SlotForm::Text(_) = shape.slot(column).form {
                end += cell.text_bytes();
                new[ends..ends + 4].copy_from_slice(&(end as u32).to_le_bytes());
                ends += 4;
            }
        }
        self.numbers.insert(place, number);
        self.move_ends(shape, place + 1, text_bytes as u32);
    }

    pub(super) fn set(&mut self, shape: &Shape, place: usize, column: usize, cell: Cell<'_>) {
        let row = place * shape.width;
        shape.write(
            &mut self.rows.change()[row..row + shape.width],
            column,
            cell,
        );
        if let SlotForm::Text(text) = shape.slot(column).form {
            let before = self.range(shape, place, text).len();
            self.make_text_room(shape, cell.text_bytes().saturating_sub(before));
            self.set_text(shape, place, text, cell.text());
            self.give_text_room(shape);
        }
    }

    /// Replaces a string of a row.
    fn set_text(&mut self, shape: &Shape, place: usize, text: usize, new: &[u8]) {
        let used = self.text_bytes(shape);
        let range = self.range(shape, place, text);
        let moved = new.len().wrapping_sub(range.len()) as u32;
        self.texts
            .replace(used, range, new.len())
            .copy_from_slice(new);
        let row = place * shape.width;
        let own = &mut self.rows.change()[row..row + shape.width];
        move_some(&mut own[shape.ends + 4 * text..], moved);
        self.move_ends(shape, place + 1, moved);
    }

    pub(super) fn remove(&mut self, shape: &Shape, place: usize) {
        let (len, width) = (self.len(), shape.width);
        let texts = self.texts_from(shape, place)..self.texts_from(shape, place + 1);
        if !texts.is_empty() {
            let (used, gone) = (self.text_bytes(shape), texts.len() as u32);
            self.texts.replace(used, texts, 0);
            self.move_ends(shape, place + 1, gone.wrapping_neg());
        }
        self.rows
            .replace(len * width, place * width..(place + 1) * width, 0);
        self.numbers.remove(place);
        let len = len - 1;
        if self.room(shape) > len + 2 * STEP.max(len / 4) {
            self.rows
                .resize(len * width, len.next_multiple_of(STEP) * width);
        }
        self.give_text_room(shape);
    }

    fn make_text_room(&mut self, shape: &Shape, more: usize) {
        let used = self.text_bytes(shape);
        if used + more > self.texts.len() {
            let step = (used / 8).max(TEXTS_STEP);
            self.texts
                .resize(used, (used + more).next_multiple_of(step));
        }
    }

    fn give_text_room(&mut self, shape: &Shape) {
        let used = self.text_bytes(shape);
        let step = (used / 8).max(TEXTS_STEP);
        if self.texts.len() - used > 4 * step {
            self.texts.resize(used, used.next_multiple_of(step));
        }
    }

    /// Splits off the rows from index `place` on, and returns them as a new leaf.
    pub(super) fn split_off(&mut self, shape: &Shape, place: usize) -> Self {
        let (len, width) = (self.len(), shape.width);
        let texts = self.text_bytes(shape);
        let text = self.texts_from(shape, place);
        let mut behind = Self {
            numbers: self.numbers.split_off(place),
            rows: Block::copy(&self.rows[place * width..len * width]),
            texts: Block::copy(&self.texts[text..texts]),
        };
        behind.move_ends(shape, 0, (text as u32).wrapping_neg());
        self.rows.resize(place * width, place * width);
        self.texts.resize(text, text);
        behind
    }

    /// Appends the rows of the following leaf.
    pub(super) fn append(&mut self, shape: &Shape, other: &Self) {
        let width = shape.width;
        let (len, more) = (self.len(), other.len());
        let (texts, more_texts) = (self.text_bytes(shape), other.text_bytes(shape));
        self.numbers.append(&other.numbers);
        self.rows.resize(len * width, (len + more) * width);
        self.rows.change()[len * width..].copy_from_slice(&other.rows[..more * width]);
        self.texts.resize(texts, texts + more_texts);
        self.texts.change()[texts..].copy_from_slice(&other.texts[..more_texts]);
        self.move_ends(shape, len, texts as u32);
    }

    /// Adds `by` to the end offsets of the strings in the row at index `place` and all following rows. The addition
    /// wraps, so that `by` can stand for a negative number.
    fn move_ends(&mut self, shape: &Shape, place: usize, by: u32) {
        if shape.texts == 0 || by == 0 {
            return;
        }
        let used = self.len() * shape.width;
        let rows = &mut self.rows.change()[..used];
        for row in rows.chunks_exact_mut(shape.width).skip(place) {
            move_some(&mut row[shape.ends..], by);
        }
    }

    /// Returns whether the leaf has to be split.
    pub(super) fn is_over(&self, shape: &Shape) -> bool {
        self.len() > ROWS_MAX || (self.len() > 1 && self.text_bytes(shape) > TEXTS_BYTES_MAX)
    }

    /// Returns whether the rows of this leaf and of `other` fit into one leaf.
    pub(super) fn can_merge(&self, shape: &Shape, other: &Self) -> bool {
        self.len() + other.len() <= ROWS_MAX * 3 / 4
            && self.text_bytes(shape) + other.text_bytes(shape) <= TEXTS_BYTES_MAX * 3 / 4
    }

    /// Returns the number of bytes that strings use.
    fn text_bytes(&self, shape: &Shape) -> usize {
        self.texts_from(shape, self.len())
    }

    /// Returns the capacity in rows.
    pub(super) fn room(&self, shape: &Shape) -> usize {
        self.rows.len().checked_div(shape.width).unwrap_or(0)
    }

    /// Returns the memory of the row numbers in bytes.
    pub(super) fn number_bytes(&self) -> usize {
        self.numbers.bytes()
    }

    /// Returns the total memory of the leaf in bytes, including its entry in the branch.
    pub(super) fn bytes(&self) -> usize {
        self.numbers.bytes() + self.rows.bytes() + self.texts.bytes() + size_of::<Self>() + 4
    }
}

/// Adds `by` to each four-byte number. The addition wraps.
fn move_some(ends: &mut [u8], by: u32) {
    for end in ends.as_chunks_mut::<4>().0 {
        *end = u32::from_le_bytes(*end).wrapping_add(by).to_le_bytes();
    }
}
