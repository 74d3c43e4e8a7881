//! Scans: rows in the order of an index, a slice at a time.
//!
//! The table is locked for one slice at a time and may change between slices. A scan remembers the last entry rather than a
//! position, and continues after that entry. So it visits a row a second time only if a change has moved that row further
//! along in the order of the scan.

use super::cell::InputValue;
use super::error::TableError;
use super::index::{IndexKeyForm, KeyReader, TableIndex};
use super::key::{Bytes, Form, KeyShape, Range, TreeKey};
use super::rows::RowPosition;
use super::tree::{Edge, Entry};
use super::{Row, State, Table, is_expired};

/// Options of a scan.
#[derive(Clone, Copy, Debug, Default)]
pub struct ScanOptions<'a> {
    /// Limits of one column of the index: the first column for which the scan has no fixed value.
    pub range: Range<'a>,
    /// Whether the scan is in reverse order.
    pub is_reverse: bool,
    /// Maximum number of rows of the scan; `None` means no limit.
    pub rows_max: Option<usize>,
}

/// Maximum number of rows visited under one lock, including expired ones, which are not returned.
const ROWS_PER_LOCK_MAX: usize = 1024;
/// Number of rows prefetched at once at the beginning of a slice, which is the part of a scan under one lock.
const PREFETCH_FIRST: usize = 6;
/// Number of rows prefetched at once after the first rows of a slice, which is the part of a scan under one lock.
const PREFETCH_MAX: usize = 12;

/// The progress of a scan, for further calls of [`Table::next`].
#[derive(Clone, Debug)]
pub struct Scan {
    cursor: ScanCursor,
    is_reverse: bool,
    left: usize,
}

#[derive(Clone, Debug)]
enum ScanCursor {
    /// The scan is finished.
    Done,
    /// A range of row numbers, for keys from which row numbers are computed: from the first number up to, but not
    /// including, the second.
    Rows(u64, u64),
    /// A range of entries of the index with this position in [`Schema::indexes`](super::Schema::indexes), or of the index of
    /// keys if `None`.
    Narrow(Option<usize>, EntryRange<u64>),
    Medium(Option<usize>, EntryRange<u128>),
    Wide(Option<usize>, EntryRange<Bytes>),
}

/// A range of index entries up to, but not including, `high`; `None` for no upper limit. `edge` determines whether the
/// range begins before or after the entry `low`.
#[derive(Clone, Debug)]
struct EntryRange<K> {
    low: Entry<K>,
    edge: Edge,
    high: Option<Entry<K>>,
}

impl<K: TreeKey> EntryRange<K> {
    fn new((low, high): (K, Option<K>)) -> Self {
        Self {
            low: (low, 0),
            edge: Edge::Before,
            high: high.map(|high| (high, 0)),
        }
    }
}

impl Table {
    /// Starts a scan in the order of an index or of the key. It visits the rows with `values` in the first columns of
    /// the index.
    ///
    /// # Errors
    /// [`TableError::Scan`], [`TableError::Value`].
    pub fn scan(
        &self,
        index: Option<usize>,
        values: &[InputValue<'_>],
        options: &ScanOptions<'_>,
    ) -> Result<Scan, TableError> {
        let state;
        let keys: &KeyShape = match index {
            None => &self.key,
            Some(place) => {
                state = self.state.read();
                &state.indexes[place].shape
            }
        };
        let limits = keys.limits(&self.schema.columns, values, &options.range)?;
        let form = keys.form();
        let way = match (index, form) {
            (None, _) if self.shape.key.is_some() => keys
                .range::<u64>(&limits)
                .map(|(low, high)| ScanCursor::Rows(low, high.unwrap_or(1 << 32))),
            (_, Form::Narrow) => keys
                .range(&limits)
                .map(|range| ScanCursor::Narrow(index, EntryRange::new(range))),
            (_, Form::Medium) => keys
                .range(&limits)
                .map(|range| ScanCursor::Medium(index, EntryRange::new(range))),
            (_, Form::Wide) => keys
                .range(&limits)
                .map(|range| ScanCursor::Wide(index, EntryRange::new(range))),
        };
        Ok(Scan {
            cursor: way.unwrap_or(ScanCursor::Done),
            is_reverse: options.is_reverse,
            left: options.rows_max.unwrap_or(usize::MAX),
        })
    }

    /// Visits at most `rows_max` further rows of a scan. Returns whether there may be more. If many rows have expired, a
    /// call may visit none although more rows follow.
    ///
    /// # Errors
    /// [`TableError::Loading`].
    pub fn next(
        &self,
        scan: &mut Scan,
        rows_max: usize,
        now_ms: u64,
        mut look: impl FnMut(Row<'_>),
    ) -> Result<bool, TableError> {
        self.next_while(scan, rows_max, now_ms, |row| {
            look(row);
            true
        })
    }

    /// Like [`next`](Self::next), but also stops after the first row for which `look` returns `false`; the next call
    /// continues after that row.
    ///
    /// # Errors
    /// [`TableError::Loading`].
    pub fn next_while(
        &self,
        scan: &mut Scan,
        rows_max: usize,
        now_ms: u64,
        mut look: impl FnMut(Row<'_>) -> bool,
    ) -> Result<bool, TableError> {
        let most = rows_max.min(scan.left);
        if most == 0 {
            return Ok(scan.left > 0 && !matches!(scan.cursor, ScanCursor::Done));
        }
        let state = self.state.read();
        let mut slice = Slice {
            table: self,
            state: &state,
            is_reverse: scan.is_reverse,
            most,
            now_ms,
            seen: 0,
            left: most.max(ROWS_PER_LOCK_MAX),
        };
        let is_done = match &mut scan.cursor {
            ScanCursor::Done => return Ok(false),
            ScanCursor::Rows(low, high) => slice.rows(low, high, &mut look),
            ScanCursor::Narrow(place, span) => slice.entries(state.index(*place)?, span, &mut look),
            ScanCursor::Medium(place, span) => slice.entries(state.index(*place)?, span, &mut look),
            ScanCursor::Wide(place, span) => slice.entries(state.index(*place)?, span, &mut look),
        };
        scan.left -= slice.seen;
        if is_done || scan.left == 0 {
            scan.cursor = ScanCursor::Done;
        }
        Ok(!matches!(scan.cursor, ScanCursor::Done))
    }

    /// Returns how many rows a scan has left, without visiting them; `None` if some of them may have expired, because
    /// the rows must then be visited to be counted.
    ///
    /// # Errors
    /// [`TableError::Loading`].
    pub fn count_ahead(&self, scan: &Scan) -> Result<Option<usize>, TableError> {
        if self.schema.has_ttl {
            return Ok(None);
        }
        let state = self.state.read();
        let count = match &scan.cursor {
            ScanCursor::Done => 0,
            ScanCursor::Rows(low, high) => {
                let below = |number: &u64| match u32::try_from(*number) {
                    Ok(number) => state.rows.count_below(number),
                    Err(_) => state.rows.count(),
                };
                below(high).saturating_sub(below(low))
            }
            ScanCursor::Narrow(place, span) => state.between(self, state.index(*place)?, span),
            ScanCursor::Medium(place, span) => state.between(self, state.index(*place)?, span),
            ScanCursor::Wide(place, span) => state.between(self, state.index(*place)?, span),
        };
        Ok(Some(count.min(scan.left)))
    }
}

impl State {
    /// Returns the index with this position in [`Schema::indexes`](super::Schema::indexes), or the index of keys for `None`.
    fn index(&self, place: Option<usize>) -> Result<&TableIndex, TableError> {
        match place {
            None => Ok(self
                .keys
                .as_ref()
                .expect("a table with keys other than row numbers must have an index of its keys")),
            Some(_) if self.is_loading => Err(TableError::Loading),
            Some(place) => Ok(&self.indexes[place]),
        }
    }

    /// Returns the number of entries of a range.
    fn between<K: IndexKeyForm>(
        &self,
        table: &Table,
        index: &TableIndex,
        span: &EntryRange<K>,
    ) -> usize {
        let keys = index.keys(&table.shape, &self.rows);
        let tree = K::tree(&index.tree);
        let from = tree.seek(&span.low, span.edge, &keys);
        let to = match &span.high {
            Some(high) => tree.seek(high, Edge::Before, &keys),
            None => tree.end(),
        };
        tree.between(from, to)
    }
}

/// The part of a scan that is visited under one lock.
struct Slice<'a> {
    table: &'a Table,
    state: &'a State,
    is_reverse: bool,
    most: usize,
    now_ms: u64,
    seen: usize,
    /// The number of rows that may still be visited under this lock, expired or not.
    left: usize,
}

impl<'a> Slice<'a> {
    /// Visits a row unless it has expired. Returns whether more rows may be visited.
    #[inline]
    fn visit(&mut self, position: RowPosition<'a>, look: &mut impl FnMut(Row<'_>) -> bool) -> bool {
        let mut goes_on = true;
        self.left -= 1;
        if !is_expired(self.table, position, self.now_ms) {
            self.seen += 1;
            goes_on = look(Row {
                table: self.table,
                position,
            });
        }
        goes_on && self.seen < self.most && self.left > 0
    }

    /// Visits the rows from `low` up to, but not including, `high`. Moves the bound at which the scan began past the
    /// visited rows. Returns whether the end of the scan is reached.
    fn rows(
        &mut self,
        low: &mut u64,
        high: &mut u64,
        look: &mut impl FnMut(Row<'_>) -> bool,
    ) -> bool {
        let rows = &self.state.rows;
        if self.is_reverse {
            let Some(last) = high
                .checked_sub(1)
                .and_then(|last| u32::try_from(last).ok())
            else {
                return true;
            };
            for position in rows.down_from(last) {
                if u64::from(position.number()) < *low {
                    return true;
                }
                *high = position.number().into();
                if !self.visit(position, look) {
                    return false;
                }
            }
            return true;
        }
        let Ok(first) = u32::try_from(*low) else {
            return true;
        };
        for position in rows.from(first) {
            if u64::from(position.number()) >= *high {
                return true;
            }
            *low = u64::from(position.number()) + 1;
            if !self.visit(position, look) {
                return false;
            }
        }
        true
    }

    /// Visits rows in the range `span`, and removes the visited rows from the range. Returns whether the end of the
    /// scan is reached.
    fn entries<K: IndexKeyForm>(
        &mut self,
        index: &'a TableIndex,
        span: &mut EntryRange<K>,
        look: &mut impl FnMut(Row<'_>) -> bool,
    ) -> bool {
        let keys = index.keys(&self.table.shape, &self.state.rows);
        let tree = K::tree(&index.tree);
        let mut last = None;
        let mut is_done = true;
        if self.is_reverse {
            let at = match &span.high {
                Some(high) => tree.seek(high, Edge::Before, &keys),
                None => tree.end(),
            };
            for position in Prefetch::new(tree.down_from(at), keys) {
                let order = keys.compare_at(position, &span.low.0);
                if order.then(position.number().cmp(&span.low.1)).is_lt() {
                    break;
                }
                last = Some(position);
                if !self.visit(position, look) {
                    is_done = false;
                    break;
                }
            }
            if let Some(position) = last {
                span.high = Some((keys.key_at(position), position.number()));
            }
            return is_done;
        }
        let at = tree.seek(&span.low, span.edge, &keys);
        for position in Prefetch::new(tree.from(at), keys) {
            if let Some((key, number)) = &span.high
                && keys
                    .compare_at(position, key)
                    .then(position.number().cmp(number))
                    .is_ge()
            {
                break;
            }
            last = Some(position);
            if !self.visit(position, look) {
                is_done = false;
                break;
            }
        }
        if let Some(position) = last {
            span.low = (keys.key_at(position), position.number());
            span.edge = Edge::Behind;
        }
        is_done
    }
}

/// An iterator that prefetches rows ahead of the visited row.
struct Prefetch<'a, I> {
    numbers: I,
    keys: KeyReader<'a>,
    positions: [Option<RowPosition<'a>>; PREFETCH_MAX],
    /// The number of prefetched rows.
    count: usize,
    /// The index in `positions` of the row that is returned next.
    next: usize,
}

impl<'a, I: Iterator<Item = u32>> Prefetch<'a, I> {
    fn new(numbers: I, keys: KeyReader<'a>) -> Self {
        Self {
            numbers,
            keys,
            positions: [None; PREFETCH_MAX],
            count: 0,
            next: 0,
        }
    }
}

impl<'a, I: Iterator<Item = u32>> Iterator for Prefetch<'a, I> {
    type Item = RowPosition<'a>;

    #[inline]
    fn next(&mut self) -> Option<RowPosition<'a>> {
        if self.next == self.count {
            // Few rows are prefetched at first, because most scans are short and end before they reach further rows.
            let most = match self.count {
                0 => PREFETCH_FIRST,
                _ => PREFETCH_MAX,
            };
            (self.next, self.count) = (0, 0);
            for number in self.numbers.by_ref().take(most) {
                self.positions[self.count] = Some(self.keys.position(number));
                self.count += 1;
            }
            self.keys.fetch(&self.positions[..self.count]);
            if self.count == 0 {
                return None;
            }
        }
        self.next += 1;
        self.positions[self.next - 1]
    }
}
