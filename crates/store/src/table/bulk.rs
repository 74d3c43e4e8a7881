//! Bulk loading of rows from files.
//!
//! An empty table is filled without its indexes, which are built at the end; until then no other thread can change the table.
//! Watchers are notified of the load as one event, and after an error the table is empty again. If the table already has rows,
//! further rows are added by ordinary puts, several under one lock, and rows added before an error stay.

use veche_types::Now;

use super::cell::Cell;
use super::change::PutMode;
use super::error::TableError;
use super::expiry::{EXPIRED_MAX, Room};
use super::job::{Job, JobError};
use super::load::row_batch::RowBatch;
use super::watch::WatchEvent;
use super::{State, Table, build, json};

/// How rows are added to a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// The table was empty, and only this loader may change it.
    Fill,
    Puts,
}

/// Adds rows to a table. If the loader is dropped before it has finished, a table that was empty at the beginning is empty
/// again.
#[derive(Debug)]
pub(super) struct BulkLoader<'a> {
    table: &'a Table,
    mode: Mode,
    how: PutMode,
    now: Now,
}

impl<'a> BulkLoader<'a> {
    pub(super) fn new(table: &'a Table, how: PutMode, now: Now) -> Result<Self, TableError> {
        // Expired rows are removed in steps, so that other threads can get the lock in between.
        while table.expire(EXPIRED_MAX, now.mono_ms) > 0 {}
        let mut state = table.state.write();
        state.refuse_while_loading()?;
        let mode = match state.rows.count() {
            0 => {
                *state = State::new(&table.schema, &table.shape);
                state.is_loading = true;
                Mode::Fill
            }
            _ => Mode::Puts,
        };
        drop(state);
        Ok(Self {
            table,
            mode,
            how,
            now,
        })
    }

    /// Adds rows and returns the number of added rows. Releases the lock between rows only if many rows have to be removed
    /// to make room. An error contains the index of the refused row in the batch.
    pub(super) fn put(&self, batch: &RowBatch) -> Result<u64, (usize, TableError)> {
        let table = self.table;
        let mut put = 0;
        let mut row: Vec<Cell<'_>> = Vec::with_capacity(table.shape.columns());
        if self.mode == Mode::Fill {
            let mut state = table.state.write();
            let expiry = table.expiry(None, self.now.mono_ms);
            for place in 0..batch.len() {
                row.clear();
                row.extend(batch.cells(place));
                if table.schema.has_ttl {
                    row.push(expiry);
                }
                let is_put = state.fill(table, self.how, &row);
                put += u64::from(is_put.map_err(|error| (place, error))?);
            }
            let last = batch.len().saturating_sub(1);
            state
                .check_fits(table, true)
                .map_err(|error| (last, error))?;
            return Ok(put);
        }
        let now_ms = self.now.mono_ms;
        let mut place = 0;
        let all = table.change_in_slices(batch.len(), now_ms, |state, budget| {
            while place < batch.len() {
                row.clear();
                row.extend(batch.cells(place));
                let mut room = Room::Make(budget);
                let is_new = state.put(table, self.how, &row, None, now_ms, &mut room)?;
                put += u64::from(is_new || self.how == PutMode::Upsert);
                place += 1;
            }
            Ok(())
        });
        all.map_err(|error| (place, error))?;
        Ok(put)
    }

    pub(super) fn finish(mut self, job: &Job) -> Result<(), JobError> {
        if self.mode == Mode::Puts {
            return Ok(());
        }
        let table = self.table;
        // No other thread may change the table while it is being filled, so the rows stay the same.
        let mut state = table.state.write();
        state.rows.shrink_to_fit(&table.shape);
        let rows = state.rows.clone();
        drop(state);
        let indexes = build::indexes(table, &rows, job)?;
        // The clone shares its rows with the table. It is dropped before other threads can change rows, so that they
        // need not copy shared rows.
        drop(rows);
        let mut state = table.state.write();
        let empty = std::mem::replace(&mut state.indexes, indexes);
        if let Err(error) = state.check_fits(table, false) {
            state.indexes = empty;
            return Err(error.into());
        }
        state.is_loading = false;
        self.mode = Mode::Puts;
        table.notify_watchers(|out| json::event(out, WatchEvent::Load, None));
        Ok(())
    }
}

impl Drop for BulkLoader<'_> {
    fn drop(&mut self) {
        if self.mode == Mode::Fill {
            let empty = State::new(&self.table.schema, &self.table.shape);
            let full = std::mem::replace(&mut *self.table.state.write(), empty);
            drop(full);
        }
    }
}

impl State {
    /// Adds a row; its secondary indexes are built later. Returns `false` if an existing row with the same key was kept.
    fn fill(&mut self, table: &Table, how: PutMode, row: &[Cell<'_>]) -> Result<bool, TableError> {
        let there = self.number(table, row[0]);
        if let Some(number) = there.filter(|number| self.rows.find(*number).is_some()) {
            return match how {
                PutMode::Add => Ok(false),
                PutMode::Insert => Err(table.duplicate_key(row[0])),
                PutMode::Upsert => {
                    let changes = row.iter().copied().enumerate().skip(1);
                    self.rows.set(&table.shape, number, changes);
                    Ok(true)
                }
            };
        }
        let number = self.new_number(table, row[0])?;
        self.insert(table, number, row, false);
        Ok(true)
    }

    /// Checks that the table is within its memory limit. If the indexes are not built yet, their minimum size is included.
    pub(super) fn check_fits(&self, table: &Table, lacks_indexes: bool) -> Result<(), TableError> {
        let bytes_max = table.schema.bytes_max;
        let whole = table.schema.indexes.iter().filter(|index| !index.is_sparse);
        let lacking = self.rows.count() * 4 * whole.count();
        let needed = self.bytes() + if lacks_indexes { lacking } else { 0 };
        match needed.checked_sub(bytes_max) {
            None | Some(0) => Ok(()),
            Some(needed) => Err(TableError::Full { needed, bytes_max }),
        }
    }
}
