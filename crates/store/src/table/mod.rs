//! Tables: rows with typed columns and ordered indexes that all workers read and change.
//!
//! ```text
//! Table ── one lock ── State ── Rows: leaves of columns, by row number
//!                            └─ Index: row numbers in order, one for each index
//! ```
//!
//! A row's number is its key, where that is a whole number of at most 32 bits; otherwise rows are numbered as they come,
//! and an index more finds them by their keys. Whoever reads holds the lock together with other readers, for one row or
//! for a slice of a scan; whoever writes holds it alone, for one change or one batch. Neither runs foreign code
//! meanwhile.

mod aggregate;
mod batch;
mod block;
mod build;
mod bulk;
mod cell;
mod change;
mod csv;
mod error;
mod expiry;
mod gauges;
mod index;
mod job;
mod json;
mod key;
mod leaf;
mod load;
mod numbers;
mod room;
mod rows;
mod scan;
mod schema;
mod shape;
mod snapshot;
mod sync;
mod tree;
mod watch;

use std::sync::atomic::Ordering;

pub use aggregate::Aggregate;
pub use batch::{BATCH_MAX, Batch};
pub use cell::{Cell, InputValue};
pub use change::{PutMode, RowSnapshot, UpdateResult};
pub use error::TableError;
pub use gauges::TableGauges;
pub use job::{Clocks, FilePosition, JOBS_MAX, Job, JobError, JobProgress};
pub use key::Range;
pub use load::{Conflict, LoadFormat, LoadOptions};
pub use scan::{Scan, ScanOptions};
pub use schema::{
    COLUMN_NAME_BYTES_MAX, COLUMNS_MAX, Column, ENUM_WORDS_MAX, Evict, INDEXES_MAX, IndexSchema,
    Schema, SchemaDraft, TABLE_BYTES_DEFAULT, TABLE_BYTES_MIN, TEXT_BYTES_MAX, Type,
};
pub use watch::{CHANGES_DEFAULT, CHANGES_MAX, Watcher};

use index::Index;
use key::KeyShape;
use rows::{RowPosition, Rows};
use shape::Shape;
use sync::{AtomicBool, AtomicU64, Mutex, RwLock};
use watch::Watchers;

/// A table. Each operation is atomic; `now_ms` is monotonic and the same clock for all.
#[derive(Debug)]
pub struct Table {
    name: Box<str>,
    schema: Schema,
    shape: Shape,
    /// How rows are told by their key.
    key: KeyShape,
    state: RwLock<State>,
    watchers: Mutex<Watchers>,
    has_watchers: AtomicBool,
    /// Rows that were evicted so far.
    evicted: AtomicU64,
}

/// What changes.
#[derive(Debug)]
struct State {
    rows: Rows,
    /// As in the schema.
    indexes: Vec<Index>,
    /// Where the key is not the row's number: rows by their keys.
    keys: Option<Index>,
    /// Where to look for a free number.
    next_row: u32,
    /// Somebody fills it: its indexes are not there yet, and nobody else may change it.
    is_loading: bool,
    /// Somebody reads what will take its place: it is whole, and nobody else may change it.
    is_replacing: bool,
}

/// A row while its table is read.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    table: &'a Table,
    spot: RowPosition<'a>,
}

impl<'a> Row<'a> {
    /// The value of a column, by its place in the schema.
    #[must_use]
    #[inline]
    pub fn get(&self, column: usize) -> Cell<'a> {
        self.spot.get(&self.table.shape, column)
    }

    /// Milliseconds that it stays, if it expires.
    #[must_use]
    pub fn ttl_ms(&self, now_ms: u64) -> Option<u64> {
        match self.get(self.table.schema.expires()?) {
            Cell::Bits(at_ms) => Some(at_ms.saturating_sub(now_ms)),
            _ => None,
        }
    }

    /// Itself as the text of a JSON object: the key, then the columns by name.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        json::row(out, &self.table.schema, |column| self.get(column), false);
    }
}

/// What a table takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableInfo {
    /// Rows, with those that have expired and are not taken out yet.
    pub rows: usize,
    /// Memory.
    pub bytes: usize,
    /// By column, in the schema's order; the key's is what tells where rows are.
    pub columns: Vec<usize>,
    /// By index, in the schema's order.
    pub indexes: Vec<usize>,
    /// Rows that were evicted so far.
    pub evicted: u64,
}

impl Table {
    /// An empty table.
    pub(crate) fn new(name: &str, schema: Schema) -> Self {
        let shape = Shape::new(&schema);
        let state = State::new(&schema, &shape);
        Self {
            name: name.into(),
            key: KeyShape::of_columns(&schema.columns, &[0], false),
            shape,
            schema,
            state: RwLock::new(state),
            watchers: Mutex::default(),
            has_watchers: AtomicBool::new(false),
            evicted: AtomicU64::new(0),
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it is made of.
    #[must_use]
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// A key as its column has it.
    ///
    /// # Errors
    /// [`TableError::Value`]: it is of another type. One that no row can have, such as one out of range, is `None`.
    pub fn key<'a>(&self, given: InputValue<'a>) -> Result<Option<Cell<'a>>, TableError> {
        key::equal(&self.schema.columns[0], given)
    }

    /// Calls `look` with a row, if there is one with that key.
    pub fn read<R>(
        &self,
        key: Cell<'_>,
        now_ms: u64,
        look: impl FnOnce(Row<'_>) -> R,
    ) -> Option<R> {
        let state = self.state.read();
        let spot = state.find(self, key, now_ms)?;
        Some(look(Row { table: self, spot }))
    }

    /// How many rows there are.
    #[must_use]
    pub fn count(&self, now_ms: u64) -> usize {
        let state = self.state.read();
        state.rows.count() - state.count_expired(self, now_ms)
    }

    /// What it takes. Looks at every leaf: about a millisecond for ten million rows.
    #[must_use]
    pub fn info(&self) -> TableInfo {
        let state = self.state.read();
        let visible = 0..self.schema.columns.len();
        let mut columns: Vec<usize> = visible
            .map(|column| state.rows.column_bytes(&self.shape, column))
            .collect();
        columns[0] += state.keys.as_ref().map_or(0, Index::bytes);
        TableInfo {
            rows: state.rows.count(),
            bytes: state.bytes(),
            columns,
            indexes: state.indexes.iter().map(Index::bytes).collect(),
            evicted: self.evicted.load(Ordering::Relaxed),
        }
    }

    #[cfg(test)]
    pub(crate) fn check(&self) {
        let state = self.state.read();
        state.rows.check();
        for index in state.indexes.iter().chain(&state.keys) {
            index.check(&self.shape, &state.rows);
        }
    }
}

impl State {
    fn new(schema: &Schema, shape: &Shape) -> Self {
        let indexes = schema.indexes.iter();
        let keys = KeyShape::of_columns(&schema.columns, &[0], false);
        Self {
            rows: Rows::new(shape),
            indexes: indexes
                .map(|index| Index::new(KeyShape::new(schema, index), index.is_unique))
                .collect(),
            keys: shape.key.is_none().then(|| Index::new(keys, true)),
            next_row: 0,
            is_loading: false,
            is_replacing: false,
        }
    }

    fn bytes(&self) -> usize {
        let indexes = self.indexes.iter().chain(&self.keys);
        self.rows.bytes() + indexes.map(Index::bytes).sum::<usize>()
    }

    /// The number of the row with that key, even if it has expired.
    fn number(&self, table: &Table, key: Cell<'_>) -> Option<u32> {
        match (table.shape.key, &self.keys) {
            (Some(number), _) => match key {
                Cell::Bits(bits) => Some(number.row(table.shape.kind(0), bits)),
                _ => None,
            },
            (None, Some(keys)) => {
                let made = keys.key_of(|_| key)?;
                keys.first(&made, &table.shape, &self.rows)
            }
            (None, None) => unreachable!("rows are found by one or the other"),
        }
    }

    #[inline]
    fn find(&self, table: &Table, key: Cell<'_>, now_ms: u64) -> Option<RowPosition<'_>> {
        let spot = self.rows.find(self.number(table, key)?)?;
        (!is_expired(table, spot, now_ms)).then_some(spot)
    }
}

#[inline]
fn is_expired(table: &Table, spot: RowPosition<'_>, now_ms: u64) -> bool {
    match table.schema.expires() {
        None => false,
        Some(column) => match spot.get(&table.shape, column) {
            Cell::Bits(at_ms) => at_ms <= now_ms,
            _ => false,
        },
    }
}

#[cfg(test)]
mod expiry_tests;
#[cfg(test)]
mod file_tests;
#[cfg(all(test, feature = "model"))]
mod model_tests;
#[cfg(test)]
mod search_tests;
#[cfg(test)]
mod snapshot_tests;
#[cfg(test)]
mod stress_tests;
#[cfg(test)]
mod tests;
