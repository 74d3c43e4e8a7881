//! Changes of a single row.
//!
//! All checks that can refuse a change are made before anything is modified, so nothing has to be undone.

use super::cell::{Cell, InputValue, OwnedCell};
use super::error::TableError;
use super::expiry::Room;
use super::index::IndexKey;
use super::rows::RowPosition;
use super::watch::WatchEvent;
use super::{KeyShape, Row, State, Table, is_expired, json};

/// What a put does if a row with the key exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutMode {
    /// Fails if the row exists.
    Insert,
    /// Keeps the existing row.
    Add,
    /// Replaces the existing row.
    Upsert,
}

/// A copy of a row's values, by which later changes of the row are detected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowSnapshot(Vec<OwnedCell>);

impl Row<'_> {
    /// Returns a copy of the values.
    #[must_use]
    pub fn snapshot(&self) -> RowSnapshot {
        let columns = 0..self.table.schema.columns.len();
        let cells = columns.map(|column| OwnedCell::new(self.get(column)));
        RowSnapshot(cells.collect())
    }
}

/// The result of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateResult {
    /// The row was updated.
    Updated,
    /// The row does not exist.
    NoRow,
    /// The row differs from the snapshot.
    Conflict,
}

impl Table {
    /// Puts a row into the table. Returns whether the key was new. `row` has a cell for each
    /// [visible](super::Schema::visible) column, made by [`Column::cell`](super::Column::cell). The row expires after
    /// `ttl_ms`; if that is `None`, after the default time in the schema, if it has one.
    ///
    /// # Errors
    /// [`TableError::DuplicateKey`], [`TableError::UniqueViolation`], [`TableError::Full`], [`TableError::Rows`],
    /// [`TableError::Loading`].
    pub fn put(
        &self,
        how: PutMode,
        row: &[Cell<'_>],
        ttl_ms: Option<u64>,
        now_ms: u64,
    ) -> Result<bool, TableError> {
        self.change_in_slices(1, now_ms, |state, budget| {
            state.put(self, how, row, ttl_ms, now_ms, &mut Room::Make(budget))
        })
    }

    /// Changes values of a row. `changes` contains the indices of columns and their new values. With `seen`, the row is
    /// changed only if it still equals that snapshot.
    ///
    /// # Errors
    /// Those of [`put`](Self::put), and [`TableError::Value`] if the key itself would change.
    pub fn update(
        &self,
        key: Cell<'_>,
        changes: &[(usize, Cell<'_>)],
        seen: Option<&RowSnapshot>,
        now_ms: u64,
    ) -> Result<UpdateResult, TableError> {
        self.change_in_slices(1, now_ms, |state, budget| {
            let Some(position) = state.find(self, key, now_ms) else {
                return Ok(UpdateResult::NoRow);
            };
            let number = position.number();
            if let Some(seen) = seen {
                let cells = seen.0.iter().enumerate();
                let mut cells =
                    cells.map(|(column, own)| own.cell() == position.get(&self.shape, column));
                if !cells.all(|is_same| is_same) {
                    return Ok(UpdateResult::Conflict);
                }
            }
            self.check_key_stays(position, changes)?;
            state.change(self, number, changes, now_ms, &mut Room::Make(budget))?;
            Ok(UpdateResult::Updated)
        })
    }

    /// Adds `by` to a numeric value of a row and returns the bits of the sum; `None` if the row does not exist.
    ///
    /// # Errors
    /// Those of [`update`](Self::update), and [`TableError::Value`] if the column is not numeric or the sum is out of
    /// range.
    pub fn incr(
        &self,
        key: Cell<'_>,
        column: usize,
        by: InputValue<'_>,
        now_ms: u64,
    ) -> Result<Option<u64>, TableError> {
        let Some(about) = self
            .schema
            .visible()
            .get(column)
            .filter(|about| about.kind.is_number())
        else {
            return Err(TableError::Value {
                column: self.schema.columns[column].name.clone(),
                value: by.to_string(),
                why: format!(
                    "only numbers can be incremented, not a {}",
                    self.schema.columns[column].kind
                ),
            });
        };
        self.change_in_slices(1, now_ms, |state, budget| {
            let Some(position) = state.find(self, key, now_ms) else {
                return Ok(None);
            };
            let number = position.number();
            let bits = match position.get(&self.shape, column) {
                Cell::Bits(bits) => bits,
                _ => 0,
            };
            let sum = match (about.kind.whole(bits), by) {
                (Some(value), InputValue::Whole(by)) => InputValue::Whole(value.saturating_add(by)),
                (Some(value), InputValue::Number(by)) if by.fract() == 0.0 => {
                    InputValue::Whole(value.saturating_add(by as i128))
                }
                (None, InputValue::Whole(by)) => {
                    InputValue::Number(about.kind.number(bits) + by as f64)
                }
                (None, InputValue::Number(by)) => InputValue::Number(about.kind.number(bits) + by),
                (_, other) => other,
            };
            let cell = about.cell(sum)?;
            let changes = [(column, cell)];
            self.check_key_stays(position, &changes)?;
            state.change(self, number, &changes, now_ms, &mut Room::Make(budget))?;
            match cell {
                Cell::Bits(bits) => Ok(Some(bits)),
                _ => Ok(None),
            }
        })
    }

    /// Removes a row. Returns whether it existed.
    ///
    /// # Errors
    /// [`TableError::Loading`].
    pub fn delete(&self, key: Cell<'_>, now_ms: u64) -> Result<bool, TableError> {
        self.change_in_slices(1, now_ms, |state, _| {
            let Some(position) = state.find(self, key, now_ms) else {
                return Ok(false);
            };
            let number = position.number();
            state.remove(self, number, WatchEvent::Delete);
            Ok(true)
        })
    }

    /// Removes all rows.
    ///
    /// # Errors
    /// [`TableError::Loading`].
    pub fn clear(&self) -> Result<(), TableError> {
        let mut state = self.state.write();
        state.refuse_while_loading()?;
        let empty = State::new(&self.schema, &self.shape);
        let full = std::mem::replace(&mut *state, empty);
        self.notify_watchers(|out| json::event(out, WatchEvent::Clear, None));
        drop(state);
        full.free();
        Ok(())
    }

    /// Returns the expiry for a row that is added at `now_ms`.
    pub(super) fn expiry<'a>(&self, ttl_ms: Option<u64>, now_ms: u64) -> Cell<'a> {
        match ttl_ms.or(self.schema.ttl_ms) {
            Some(ttl_ms) => Cell::Bits(now_ms.saturating_add(ttl_ms)),
            None => Cell::Null,
        }
    }

    pub(super) fn check_key_stays(
        &self,
        position: RowPosition<'_>,
        changes: &[(usize, Cell<'_>)],
    ) -> Result<(), TableError> {
        let key = position.get(&self.shape, 0);
        match changes
            .iter()
            .find(|(column, cell)| *column == 0 && *cell != key)
        {
            None => Ok(()),
            Some((_, cell)) => Err(TableError::Value {
                column: self.schema.columns[0].name.clone(),
                value: self.format_value(0, *cell),
                why: "a row's key can't be changed".to_owned(),
            }),
        }
    }

    /// Returns the error for a key that exists already.
    pub(super) fn duplicate_key(&self, key: Cell<'_>) -> TableError {
        TableError::DuplicateKey {
            column: self.schema.columns[0].name.clone(),
            value: self.format_value(0, key),
        }
    }

    /// Returns the error for a row with values that a unique index already contains.
    pub(super) fn unique_violation<'a>(
        &self,
        index: &str,
        keys: &KeyShape,
        value: impl Fn(usize) -> Cell<'a>,
    ) -> TableError {
        let values = keys.columns().map(|column| {
            let name = &self.schema.columns[column].name;
            format!("{name} {}", self.format_value(column, value(column)))
        });
        TableError::UniqueViolation {
            index: index.into(),
            values: values.collect::<Vec<_>>().join(", "),
        }
    }

    /// Formats a value for an error.
    pub(super) fn format_value(&self, column: usize, cell: Cell<'_>) -> String {
        match cell {
            // The text is formatted as an input value, because this shortens long texts.
            Cell::Text(text) => InputValue::Text(text).to_string(),
            cell => {
                let mut out = Vec::new();
                json::value(&mut out, &self.schema.columns[column].kind, cell, false);
                String::from_utf8_lossy(&out).into_owned()
            }
        }
    }
}

/// The maximum number of rows that the calling thread frees itself; freeing a million takes about
/// 10 ms.
const FREED_AT_ONCE: usize = 10_000;

impl State {
    /// Frees the rows, on a separate thread if there are many, since the caller is a worker. Must
    /// be called without the lock.
    fn free(self) {
        if self.rows.count() <= FREED_AT_ONCE {
            return;
        }
        let thread = std::thread::Builder::new().name("table-clear".to_owned());
        // If no thread can be started, the closure is dropped here, and the rows with it.
        drop(thread.spawn(move || drop(self)));
    }

    pub(super) fn refuse_while_loading(&self) -> Result<(), TableError> {
        match self.is_loading || self.is_replacing {
            true => Err(TableError::Loading),
            false => Ok(()),
        }
    }

    pub(super) fn put(
        &mut self,
        table: &Table,
        how: PutMode,
        row: &[Cell<'_>],
        ttl_ms: Option<u64>,
        now_ms: u64,
        room: &mut Room<'_>,
    ) -> Result<bool, TableError> {
        let with_expiry: Vec<Cell<'_>>;
        let row = match table.schema.has_ttl {
            false => row,
            true => {
                let expiry = std::iter::once(table.expiry(ttl_ms, now_ms));
                with_expiry = row.iter().copied().chain(expiry).collect();
                &with_expiry
            }
        };
        if let Some(number) = self.number(table, row[0])
            && let Some(position) = self.rows.find(number)
        {
            if is_expired(table, position, now_ms) {
                self.expire_one(table, number, room);
            } else {
                return match how {
                    PutMode::Add => Ok(false),
                    PutMode::Insert => Err(table.duplicate_key(row[0])),
                    PutMode::Upsert => {
                        let changes = row.iter().copied().enumerate().skip(1);
                        let changes: Vec<_> = changes.collect();
                        self.change(table, number, &changes, now_ms, room)?;
                        Ok(false)
                    }
                };
            }
        }
        for number in self.check_unique(table, |column| row[column], None, |_| true, now_ms)? {
            self.expire_one(table, number, room);
        }
        if let Room::Make(budget) = room {
            self.make_room(table, row_bytes(table, row), None, budget, now_ms)?;
        }
        let number = self.new_number(table, row[0])?;
        self.insert(table, number, row, true);
        table.notify_watchers(|out| {
            json::event(
                out,
                WatchEvent::Insert,
                Some((&table.schema, &|column| row[column])),
            )
        });
        Ok(true)
    }

    /// Inserts a row. The caller has made all checks. Without `is_indexed`, the row is added only to the index of keys,
    /// because the other indexes are built later.
    pub(super) fn insert(
        &mut self,
        table: &Table,
        number: u32,
        row: &[Cell<'_>],
        is_indexed: bool,
    ) {
        let Self {
            rows,
            indexes,
            keys,
            ..
        } = self;
        rows.insert(&table.shape, number, row);
        let indexes = indexes.iter_mut().filter(|_| is_indexed);
        for index in indexes.chain(keys) {
            if let Some(made) = index.key_of(|column| row[column]) {
                index.insert(made, number, &table.shape, rows);
            }
        }
    }

    /// Returns the number for a new row.
    pub(super) fn new_number(&mut self, table: &Table, key: Cell<'_>) -> Result<u32, TableError> {
        if let (Some(number), Cell::Bits(bits)) = (table.shape.key, key) {
            return Ok(number.row(table.shape.kind(0), bits));
        }
        if self.rows.count() >= u32::MAX as usize {
            return Err(TableError::Rows);
        }
        // Numbers are assigned in ascending order and wrap around to 0, so that a released number
        // is not reused soon.
        let mut free = self.next_row;
        for taken in self.rows.from(self.next_row) {
            if taken.number() != free {
                break;
            }
            free = match free.checked_add(1) {
                Some(free) => free,
                None => break,
            };
        }
        if self.rows.find(free).is_some() {
            free = 0;
            for taken in self.rows.from(0) {
                if taken.number() != free {
                    break;
                }
                free += 1;
            }
        }
        self.next_row = free.wrapping_add(1);
        Ok(free)
    }

    /// Changes values of an existing row, except its key.
    pub(super) fn change(
        &mut self,
        table: &Table,
        number: u32,
        changes: &[(usize, Cell<'_>)],
        now_ms: u64,
        room: &mut Room<'_>,
    ) -> Result<(), TableError> {
        let shape = &table.shape;
        let position = self.rows.find(number).expect("the row exists");
        let real: Vec<_> = changes
            .iter()
            .copied()
            .filter(|(column, cell)| *column > 0 && position.get(shape, *column) != *cell)
            .collect();
        if real.is_empty() {
            return Ok(());
        }
        let after = |column: usize| match changed(&real, column) {
            Some(cell) => cell,
            None => position.get(shape, column),
        };
        let expired = self.check_unique(
            table,
            after,
            Some(number),
            |keys| {
                keys.columns()
                    .any(|column| changed(&real, column).is_some())
            },
            now_ms,
        )?;
        let grows = |&(column, cell): &(usize, Cell<'_>)| {
            let before = position.get(shape, column).text_bytes();
            cell.text_bytes().saturating_sub(before)
        };
        let needed = real.iter().map(grows).sum();
        for number in expired {
            self.expire_one(table, number, room);
        }
        if let Room::Make(budget) = room {
            self.make_room(table, needed, Some(number), budget, now_ms)?;
        }
        self.set(table, number, &real);
        table.notify_watchers(|out| {
            let position = self.rows.find(number).expect("the row exists");
            let value = |column: usize| position.get(shape, column);
            json::event(out, WatchEvent::Update, Some((&table.schema, &value)));
        });
        Ok(())
    }

    /// Changes values of an existing row without checks.
    pub(super) fn set(&mut self, table: &Table, number: u32, changes: &[(usize, Cell<'_>)]) {
        let shape = &table.shape;
        let Self { rows, indexes, .. } = self;
        let position = rows.find(number).expect("the row exists");
        let mut made: Vec<(usize, Option<IndexKey>)> = Vec::new();
        for (place, index) in indexes.iter_mut().enumerate() {
            let mut columns = index.shape.columns();
            if !columns.any(|column| changed(changes, column).is_some()) {
                continue;
            }
            drop(columns);
            let after = index.key_of(|column| match changed(changes, column) {
                Some(cell) => cell,
                None => position.get(shape, column),
            });
            made.push((place, after));
            if let Some(before) = index.key_of_row(shape, position) {
                index.remove(before, number, shape, rows);
            }
        }
        rows.set(shape, number, changes.iter().copied());
        for (place, made) in made {
            if let Some(made) = made {
                indexes[place].insert(made, number, shape, rows);
            }
        }
    }

    /// Removes an existing row.
    pub(super) fn remove(&mut self, table: &Table, number: u32, event: WatchEvent) {
        let shape = &table.shape;
        let Self {
            rows,
            indexes,
            keys,
            ..
        } = self;
        let position = rows.find(number).expect("the row exists");
        for index in indexes.iter_mut().chain(keys) {
            if let Some(made) = index.key_of_row(shape, position) {
                index.remove(made, number, shape, rows);
            }
        }
        table.notify_watchers(|out| {
            let key = position.get(shape, 0);
            json::gone(out, event, &table.schema, key);
        });
        rows.remove(&table.shape, number);
    }

    /// Checks that no other row has the same values in a unique index. Returns the numbers of expired rows with these
    /// values. The caller must remove them before the change, so that a unique index never contains two equal entries.
    /// `value` returns the new value of a column; `own` is the number of the changed row, or `None` for a new row.
    fn check_unique<'a>(
        &self,
        table: &Table,
        value: impl Fn(usize) -> Cell<'a>,
        own: Option<u32>,
        is_affected: impl Fn(&KeyShape) -> bool,
        now_ms: u64,
    ) -> Result<Vec<u32>, TableError> {
        let mut expired = Vec::new();
        for (index, about) in self.indexes.iter().zip(&table.schema.indexes) {
            if !index.is_unique || !is_affected(&index.shape) || !index.shape.is_whole(&value) {
                continue;
            }
            let Some(made) = index.key_of(&value) else {
                continue;
            };
            let Some(other) = index.first(&made, &table.shape, &self.rows) else {
                continue;
            };
            let position = self
                .rows
                .find(other)
                .expect("every row in an index must exist");
            if Some(other) == own {
                continue;
            }
            if !is_expired(table, position, now_ms) {
                return Err(table.unique_violation(&about.name, &index.shape, value));
            }
            // The same row may conflict in several indexes.
            if !expired.contains(&other) {
                expired.push(other);
            }
        }
        Ok(expired)
    }
}

/// Returns the new value of a column if it is among the changes.
fn changed<'a>(changes: &[(usize, Cell<'a>)], column: usize) -> Option<Cell<'a>> {
    let change = changes.iter().find(|(changed, _)| *changed == column);
    change.map(|(_, cell)| *cell)
}

/// Returns the approximate memory of a row in bytes.
pub(super) fn row_bytes(table: &Table, row: &[Cell<'_>]) -> usize {
    let values = row.iter().enumerate().map(|(column, cell)| {
        let fixed = table.shape.kind(column).bits();
        fixed.map_or(4, |bits| bits as usize / 8) + cell.text_bytes()
    });
    values.sum::<usize>() + 5 * table.schema.indexes.len()
}
