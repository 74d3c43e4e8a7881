//! Index keys: the values of the indexed columns in a comparable form.
//!
//! If all values have fixed sizes and at most eight bytes together, the key is a 64-bit number; up to sixteen bytes, a 128-bit
//! number; otherwise a byte string. An index stores only one key per leaf; other keys are computed from the rows when they are
//! needed.

use std::cmp::Ordering;

use super::cell::{Cell, InputValue, NumberPosition};
use super::error::TableError;
use super::rows::RowPosition;
use super::schema::{Column, IndexSchema, Schema, Type};
use super::shape::Shape;

/// A comparable form of a sequence of values.
pub(super) trait TreeKey: Ord + Clone + Default + std::fmt::Debug + Send + Sync {
    /// Appends a value of `bits` bits.
    fn push_bits(&mut self, bits: u32, value: u64);

    fn push_text(&mut self, text: &[u8]);

    /// Treats this key as a prefix. Returns the least key that is greater than all keys with this prefix; `None` if there is
    /// none. `rest` is the number of bits that complete keys have after the prefix, if the size is fixed.
    fn next(self, rest: u32) -> Option<Self>;

    /// Returns the smallest complete key that begins with this one. `rest` is the same as for [`next`](Self::next).
    fn least(self, rest: u32) -> Self;

    /// Returns the approximate position of this key between two others, from 0 to 1; `None` if the form of the keys does not
    /// permit an estimate.
    fn fraction(&self, low: &Self, high: &Self) -> Option<f64>;

    /// Returns the heap memory in bytes.
    fn heap_bytes(&self) -> usize {
        0
    }
}

macro_rules! number_key {
    ($number:ty) => {
        impl TreeKey for $number {
            fn push_bits(&mut self, bits: u32, value: u64) {
                *self = self.checked_shl(bits).unwrap_or(0) | Self::from(value);
            }

            fn push_text(&mut self, _text: &[u8]) {
                unreachable!("strings have no fixed size")
            }

            fn next(self, rest: u32) -> Option<Self> {
                let next = self.checked_add(1)?;
                let least = next.checked_shl(rest).unwrap_or(0);
                // An overflow means that there is no greater key.
                (least.checked_shr(rest).unwrap_or(0) == next).then_some(least)
            }

            fn least(self, rest: u32) -> Self {
                self.checked_shl(rest).unwrap_or(0)
            }

            #[inline]
            fn fraction(&self, low: &Self, high: &Self) -> Option<f64> {
                Some(match (self > low, self < high) {
                    (false, _) => 0.0,
                    (_, false) => 1.0,
                    _ => (self - low) as f64 / (high - low) as f64,
                })
            }
        }
    };
}

number_key!(u64);
number_key!(u128);

/// A key as a byte string. Byte strings have the same order as the values.
pub(super) type Bytes = Vec<u8>;

impl TreeKey for Bytes {
    fn push_bits(&mut self, bits: u32, value: u64) {
        let bytes = value.to_be_bytes();
        self.extend_from_slice(&bytes[8 - bits as usize / 8..]);
    }

    fn push_text(&mut self, text: &[u8]) {
        // Each zero byte is followed by 255, and the end is marked by two zeros. So no encoded string is a prefix of another.
        for byte in text {
            self.push(*byte);
            if *byte == 0 {
                self.push(255);
            }
        }
        self.extend_from_slice(&[0, 0]);
    }

    fn next(mut self, _rest: u32) -> Option<Self> {
        while let Some(last) = self.pop() {
            if last < 255 {
                self.push(last + 1);
                return Some(self);
            }
        }
        None
    }

    fn least(self, _rest: u32) -> Self {
        self
    }

    fn fraction(&self, _low: &Self, _high: &Self) -> Option<f64> {
        None
    }

    fn heap_bytes(&self) -> usize {
        super::room::heap_bytes(self.capacity())
    }
}

/// The three forms of index keys: `u64`, `u128` and byte strings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Narrow,
    Medium,
    Wide,
}

/// The definition of an index's keys: how they are computed from rows.
#[derive(Clone, Debug)]
pub(super) struct KeyShape {
    /// For each indexed column: its index, its type, and whether it is nullable.
    parts: Box<[(usize, Type, bool)]>,
    is_sparse: bool,
}

impl KeyShape {
    pub(super) fn new(schema: &Schema, index: &IndexSchema) -> Self {
        Self::of_columns(&schema.columns, &index.columns, index.is_sparse)
    }

    pub(super) fn of_columns(all: &[Column], columns: &[usize], is_sparse: bool) -> Self {
        let parts = columns.iter().map(|&column| {
            let Column {
                kind, is_nullable, ..
            } = &all[column];
            (column, kind.clone(), *is_nullable)
        });
        Self {
            parts: parts.collect(),
            is_sparse,
        }
    }

    pub(super) fn form(&self) -> Form {
        match self.rest(0) {
            Some(0..=64) => Form::Narrow,
            Some(65..=128) => Form::Medium,
            _ => Form::Wide,
        }
    }

    /// Returns the number of bits from a part of the key to the end of the key, if the size is fixed.
    fn rest(&self, from: usize) -> Option<u32> {
        self.parts[from..]
            .iter()
            .map(|(_, kind, is_nullable)| Some(kind.bits()? + if *is_nullable { 8 } else { 0 }))
            .sum()
    }

    fn push<K: TreeKey>(&self, key: &mut K, part: usize, cell: Cell<'_>) {
        let (_, kind, is_nullable) = &self.parts[part];
        if *is_nullable {
            key.push_bits(8, u64::from(cell != Cell::Null));
        }
        match (cell, kind.bits()) {
            (Cell::Bits(bits), Some(size)) => key.push_bits(size, kind.ordered(bits)),
            (Cell::Text(text), _) => key.push_text(text),
            (_, Some(size)) => key.push_bits(size, 0),
            (_, None) => {}
        }
    }

    /// Computes the key of a row from its values.
    pub(super) fn of<'a, K: TreeKey>(&self, value: impl Fn(usize) -> Cell<'a>) -> K {
        let mut key = K::default();
        for part in 0..self.parts.len() {
            self.push(&mut key, part, value(self.parts[part].0));
        }
        key
    }

    #[inline]
    pub(super) fn key_at<K: TreeKey>(&self, shape: &Shape, position: RowPosition<'_>) -> K {
        self.of(|column| position.get(shape, column))
    }

    /// Compares a row with a key.
    #[inline]
    pub(super) fn compare<K: TreeKey>(
        &self,
        shape: &Shape,
        position: RowPosition<'_>,
        key: &K,
    ) -> Ordering {
        self.key_at::<K>(shape, position).cmp(key)
    }

    /// Returns whether a row with these values belongs in the index. A sparse index omits rows whose first indexed column is
    /// NULL.
    pub(super) fn has<'a>(&self, value: impl Fn(usize) -> Cell<'a>) -> bool {
        !self.is_sparse || value(self.parts[0].0) != Cell::Null
    }

    /// Returns whether all of the key's columns have a value.
    pub(super) fn is_whole<'a>(&self, value: impl Fn(usize) -> Cell<'a>) -> bool {
        self.parts
            .iter()
            .all(|(column, ..)| value(*column) != Cell::Null)
    }

    pub(super) fn columns(&self) -> impl Iterator<Item = usize> {
        self.parts.iter().map(|(column, ..)| *column)
    }

    /// Returns the range of keys of a scan: the first key, inclusive, and the end, exclusive, which is `None` for a range
    /// without an end. Returns `None` if the range is empty.
    pub(super) fn range<K: TreeKey>(&self, limits: &IndexRange<'_>) -> Option<(K, Option<K>)> {
        let mut key = K::default();
        for (part, value) in limits.values.iter().enumerate() {
            self.push(&mut key, part, (*value)?);
        }
        let part = limits.values.len();
        let rest = self.rest(part).unwrap_or(0);
        if limits.low == Limit::None && limits.high == Limit::None {
            return Some((key.clone().least(rest), key.next(rest)));
        }
        let (_, kind, is_nullable) = &self.parts[part];
        // The limits apply to values of the column, so the range excludes NULL.
        let mut prefix = key.clone();
        let mut before = rest;
        if *is_nullable {
            prefix.push_bits(8, 1);
            before = before.saturating_sub(8);
        }
        let behind = self.rest(part + 1).unwrap_or(0);
        let at = |cell: Cell<'_>| {
            let mut key = prefix.clone();
            match (cell, kind.bits()) {
                (Cell::Bits(bits), Some(size)) => key.push_bits(size, kind.ordered(bits)),
                (Cell::Text(text), _) => key.push_text(text),
                _ => {}
            }
            key
        };
        let least = || Some(prefix.clone().least(before));
        // Returns the least key that is not before the limit, or `None` if all keys are before it.
        let edge = |limit: &Limit<'_>| match limit {
            Limit::None => unreachable!("the caller must have excluded a range without a limit"),
            Limit::Before => Some(least()),
            Limit::After => Some(prefix.clone().next(before)),
            Limit::At(cell) => Some(Some(at(*cell).least(behind))),
            Limit::Behind(cell) => Some(at(*cell).next(behind)),
        };
        let low = match &limits.low {
            Limit::None => least(),
            limit => edge(limit).flatten(),
        };
        let high = match &limits.high {
            Limit::None => prefix.clone().next(before),
            limit => edge(limit).flatten(),
        };
        let low = low?;
        match high {
            Some(high) if high <= low => None,
            high => Some((low, high)),
        }
    }

    /// Parses the limits of a scan.
    ///
    /// # Errors
    /// [`TableError::Scan`], [`TableError::Value`].
    pub(super) fn limits<'a>(
        &self,
        columns: &[Column],
        values: &[InputValue<'a>],
        range: &Range<'a>,
    ) -> Result<IndexRange<'a>, TableError> {
        if values.len() > self.parts.len() {
            let count = self.parts.len();
            return Err(TableError::Scan(format!(
                "too many values for the index: {} given, at most {count} possible",
                values.len()
            )));
        }
        let mut limits = IndexRange::default();
        for (part, value) in self.parts.iter().zip(values) {
            limits.values.push(equal(&columns[part.0], *value)?);
        }
        if range.is_empty() {
            return Ok(limits);
        }
        let Some(part) = self.parts.get(values.len()) else {
            return Err(TableError::Scan(
                "from, to, above and below apply to the column after the given values, but the index has no further column"
                    .to_owned(),
            ));
        };
        let column = &columns[part.0];
        let conflict = || {
            TableError::Scan(
                "only one of from and above can be given, and only one of to and below".to_owned(),
            )
        };
        limits.low = match (range.from, range.above) {
            (Some(_), Some(_)) => return Err(conflict()),
            (Some(value), None) => limit(column, value, false)?,
            (None, Some(value)) => limit(column, value, true)?,
            (None, None) => Limit::None,
        };
        limits.high = match (range.to, range.below) {
            (Some(_), Some(_)) => return Err(conflict()),
            (Some(value), None) => limit(column, value, true)?,
            (None, Some(value)) => limit(column, value, false)?,
            (None, None) => Limit::None,
        };
        Ok(limits)
    }
}

/// A range of values for one indexed column. The columns before it in the index have fixed values.
#[derive(Clone, Copy, Debug, Default)]
pub struct Range<'a> {
    /// If set, values must be at least this one.
    pub from: Option<InputValue<'a>>,
    /// If set, values must be at most this one.
    pub to: Option<InputValue<'a>>,
    /// If set, values must be greater than this one.
    pub above: Option<InputValue<'a>>,
    /// If set, values must be less than this one.
    pub below: Option<InputValue<'a>>,
}

impl Range<'_> {
    fn is_empty(&self) -> bool {
        [self.from, self.to, self.above, self.below]
            .iter()
            .all(Option::is_none)
    }
}

/// The range of index entries that a scan visits.
#[derive(Debug, Default)]
pub(super) struct IndexRange<'a> {
    /// Values of the index's first columns; `None` for a value that no row can have.
    values: Vec<Option<Cell<'a>>>,
    low: Limit<'a>,
    high: Limit<'a>,
}

/// Where a range begins or ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Limit<'a> {
    #[default]
    None,
    /// Before the first row that has a value in the column.
    Before,
    At(Cell<'a>),
    Behind(Cell<'a>),
    After,
}

/// Converts the value of an equality condition to a cell; `None` for a value of the right type that no row can have.
pub(super) fn equal<'a>(
    column: &Column,
    given: InputValue<'a>,
) -> Result<Option<Cell<'a>>, TableError> {
    match (&column.kind, given) {
        (_, InputValue::Null) if column.is_nullable => Ok(Some(Cell::Null)),
        (kind, given) if kind.is_number() => match kind.position_of(given) {
            Some(NumberPosition::At(bits)) => Ok(Some(Cell::Bits(bits))),
            Some(_) => Ok(None),
            None => column.cell(given).map(Some),
        },
        // A value that is too long needs no check, since no row has it.
        (Type::String(_) | Type::Bytes(_), InputValue::Text(text)) => Ok(Some(Cell::Text(text))),
        (Type::Enum(_), InputValue::Text(_)) => Ok(column.cell(given).ok()),
        _ => column.cell(given).map(Some),
    }
}

fn limit<'a>(
    column: &Column,
    given: InputValue<'a>,
    is_behind: bool,
) -> Result<Limit<'a>, TableError> {
    let cell = match column.kind.position_of(given) {
        Some(NumberPosition::Before) => return Ok(Limit::Before),
        Some(NumberPosition::After) => return Ok(Limit::After),
        Some(NumberPosition::Behind(bits)) => return Ok(Limit::Behind(Cell::Bits(bits))),
        Some(NumberPosition::At(bits)) => Cell::Bits(bits),
        None => match (&column.kind, given) {
            (Type::String(_) | Type::Bytes(_), InputValue::Text(text)) => Cell::Text(text),
            _ => match column.cell(given)? {
                Cell::Null => {
                    return Err(TableError::Scan(
                        "from, to, above and below can't be null".to_owned(),
                    ));
                }
                cell => cell,
            },
        },
    };
    Ok(match is_behind {
        true => Limit::Behind(cell),
        false => Limit::At(cell),
    })
}
