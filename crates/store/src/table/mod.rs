//! Tables: rows with typed columns and ordered indexes, shared by all workers.
//!
//! ```text
//! Table ── one lock ── State ── TableRows: rows in leaves, by row number
//!                            └─ TableIndex: row numbers in order, one for each index
//! ```
//!
//! If the key is an integer of at most 32 bits, it is also the row's number. Otherwise rows are numbered in order of insertion,
//! and an additional index finds them by key. Readers share the lock, for one row or a slice of a scan; a writer holds it
//! exclusively, for one change or one batch. No application code runs while the lock is held.

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
pub use job::{FilePosition, JOBS_MAX, Job, JobError, JobProgress};
pub use key::Range;
pub use load::{Conflict, LoadFormat, LoadOptions};
pub use scan::{Scan, ScanOptions};
pub use schema::{
    COLUMN_NAME_BYTES_MAX, COLUMNS_MAX, Column, ENUM_WORDS_MAX, Evict, INDEXES_MAX, IndexSchema,
    Schema, SchemaDraft, TABLE_BYTES_DEFAULT, TABLE_BYTES_MIN, TEXT_BYTES_MAX, Type,
};
pub use watch::{CHANGES_DEFAULT, CHANGES_MAX, Watcher};

use index::TableIndex;
use key::KeyShape;
use rows::{RowPosition, TableRows};
use shape::Shape;
use sync::{AtomicBool, AtomicU64, Mutex, RwLock};
use watch::Watchers;

/// A table. Each operation is atomic; `now_ms` comes from one monotonic clock.
#[derive(Debug)]
pub struct Table {
    name: Box<str>,
    schema: Schema,
    shape: Shape,
    /// The shape of the keys of [`State::keys`], the index by which rows are found by the table's key.
    key: KeyShape,
    state: RwLock<State>,
    watchers: Mutex<Watchers>,
    has_watchers: AtomicBool,
    /// Number of rows evicted so far.
    evicted: AtomicU64,
}

#[derive(Debug)]
struct State {
    rows: TableRows,
    /// The indexes, in the order of the schema.
    indexes: Vec<TableIndex>,
    /// The index of rows by key, if the key is not the row number.
    keys: Option<TableIndex>,
    /// The row number at which the search for a free number begins.
    next_row: u32,
    /// Whether a loader fills the table. Its indexes are then missing, and no other thread may change it.
    is_loading: bool,
    /// Whether the rows are about to be replaced by those of a file. The table is then intact, but must not be changed.
    is_replacing: bool,
}

/// A row, valid while its table is locked for reading.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    table: &'a Table,
    position: RowPosition<'a>,
}

impl<'a> Row<'a> {
    /// Returns the value of a column by its index in the schema.
    #[must_use]
    #[inline]
    pub fn get(&self, column: usize) -> Cell<'a> {
        self.position.get(&self.table.shape, column)
    }

    /// Returns the remaining lifetime in milliseconds, if the row expires.
    #[must_use]
    pub fn ttl_ms(&self, now_ms: u64) -> Option<u64> {
        match self.get(self.table.schema.expires()?) {
            Cell::Bits(at_ms) => Some(at_ms.saturating_sub(now_ms)),
            _ => None,
        }
    }

    /// Writes the row as a JSON object: the key, then the columns by name.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        json::row(out, &self.table.schema, |column| self.get(column), false);
    }
}

/// The memory of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableInfo {
    /// Number of rows, including expired rows that are not removed yet.
    pub rows: usize,
    /// Memory used by the table, in bytes.
    pub bytes: usize,
    /// Bytes by column, in the order of the schema. The entry of the key includes the structures that locate rows.
    pub columns: Vec<usize>,
    /// Bytes by index, in the order of the schema.
    pub indexes: Vec<usize>,
    /// Number of rows evicted so far.
    pub evicted: u64,
}

impl Table {
    /// Creates an empty table.
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

    /// Returns the name of the table.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the schema of the table.
    #[must_use]
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Converts a key to the type of the key column.
    ///
    /// # Errors
    /// [`TableError::Value`]: the key is of another type. The result is `None` for a key that no row can have, such as one out
    /// of range.
    pub fn key<'a>(&self, given: InputValue<'a>) -> Result<Option<Cell<'a>>, TableError> {
        key::equal(&self.schema.columns[0], given)
    }

    /// Calls `look` with the row of a key, if it exists.
    pub fn read<R>(
        &self,
        key: Cell<'_>,
        now_ms: u64,
        look: impl FnOnce(Row<'_>) -> R,
    ) -> Option<R> {
        let state = self.state.read();
        let position = state.find(self, key, now_ms)?;
        Some(look(Row {
            table: self,
            position,
        }))
    }

    /// Returns the number of rows.
    #[must_use]
    pub fn count(&self, now_ms: u64) -> usize {
        let state = self.state.read();
        state.rows.count() - state.count_expired(self, now_ms)
    }

    /// Returns the size of each column and index in bytes. Visits every leaf, which takes about a millisecond for ten
    /// million rows.
    #[must_use]
    pub fn info(&self) -> TableInfo {
        let state = self.state.read();
        let visible = 0..self.schema.columns.len();
        let mut columns: Vec<usize> = visible
            .map(|column| state.rows.column_bytes(&self.shape, column))
            .collect();
        columns[0] += state.keys.as_ref().map_or(0, TableIndex::bytes);
        TableInfo {
            rows: state.rows.count(),
            bytes: state.bytes(),
            columns,
            indexes: state.indexes.iter().map(TableIndex::bytes).collect(),
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
            rows: TableRows::new(shape),
            indexes: indexes
                .map(|index| TableIndex::new(KeyShape::new(schema, index), index.is_unique))
                .collect(),
            keys: shape.key.is_none().then(|| TableIndex::new(keys, true)),
            next_row: 0,
            is_loading: false,
            is_replacing: false,
        }
    }

    fn bytes(&self) -> usize {
        let indexes = self.indexes.iter().chain(&self.keys);
        self.rows.bytes() + indexes.map(TableIndex::bytes).sum::<usize>()
    }

    /// Returns the number of the row with a key, even if it has expired.
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
            (None, None) => unreachable!("a table must have keys or row numbers to find a row"),
        }
    }

    #[inline]
    fn find(&self, table: &Table, key: Cell<'_>, now_ms: u64) -> Option<RowPosition<'_>> {
        let position = self.rows.find(self.number(table, key)?)?;
        (!is_expired(table, position, now_ms)).then_some(position)
    }
}

#[inline]
fn is_expired(table: &Table, position: RowPosition<'_>, now_ms: u64) -> bool {
    match table.schema.expires() {
        None => false,
        Some(column) => match position.get(&table.shape, column) {
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
