//! Atomic batches of changes.
//!
//! A batch is applied under the lock, change by change; if one is refused, the earlier ones are undone in reverse.
//! Watchers are notified when the whole batch is applied, or not at all.

use super::cell::{Cell, OwnedCell};
use super::change::{PutMode, row_bytes};
use super::error::TableError;
use super::expiry::Room;
use super::rows::RowPosition;
use super::watch::Event;
use super::{State, Table};

/// Maximum number of changes of a batch.
pub const BATCH_MAX: usize = 10_000;

#[derive(Clone, Debug)]
enum Step {
    Put(PutMode, Vec<OwnedCell>, Option<u64>),
    Update(OwnedCell, Vec<(usize, OwnedCell)>),
    Delete(OwnedCell),
}

/// A list of changes.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    steps: Vec<Step>,
}

#[derive(Debug)]
pub(super) enum Undo {
    /// The row was inserted.
    Remove(u32),
    /// The row had these values.
    Restore(u32, Vec<OwnedCell>),
    /// The row existed with this number, which an earlier undo record may refer to.
    Insert(u32, Vec<OwnedCell>),
}

fn own(row: &[Cell<'_>]) -> Vec<OwnedCell> {
    row.iter().copied().map(OwnedCell::new).collect()
}

fn cells(row: &[OwnedCell]) -> Vec<Cell<'_>> {
    row.iter().map(OwnedCell::cell).collect()
}

impl Batch {
    fn push(&mut self, step: Step) -> Result<(), TableError> {
        if self.steps.len() == BATCH_MAX {
            return Err(TableError::Batch { most: BATCH_MAX });
        }
        self.steps.push(step);
        Ok(())
    }

    /// Like [`Table::put`].
    ///
    /// # Errors
    /// [`TableError::Batch`].
    pub fn put(
        &mut self,
        how: PutMode,
        row: &[Cell<'_>],
        ttl_ms: Option<u64>,
    ) -> Result<(), TableError> {
        self.push(Step::Put(how, own(row), ttl_ms))
    }

    /// As [`Table::update`]; a missing row is an error.
    ///
    /// # Errors
    /// [`TableError::Batch`].
    pub fn update(
        &mut self,
        key: Cell<'_>,
        changes: &[(usize, Cell<'_>)],
    ) -> Result<(), TableError> {
        let changes = changes
            .iter()
            .map(|(column, cell)| (*column, OwnedCell::new(*cell)));
        self.push(Step::Update(OwnedCell::new(key), changes.collect()))
    }

    /// Like [`Table::delete`].
    ///
    /// # Errors
    /// [`TableError::Batch`].
    pub fn delete(&mut self, key: Cell<'_>) -> Result<(), TableError> {
        self.push(Step::Delete(OwnedCell::new(key)))
    }
}

impl Table {
    /// Applies a batch: all of it, or nothing if one of its changes is refused.
    ///
    /// # Errors
    /// Those of its changes.
    pub fn apply(&self, batch: &Batch, now_ms: u64) -> Result<(), TableError> {
        // Evictions for a later change can't be undone: room for the whole batch is made first.
        let needed = batch.steps.iter().map(|step| match step {
            Step::Put(_, row, _) => row_bytes(self, &cells(row)),
            Step::Update(_, changes) => {
                changes.iter().map(|(_, own)| own.cell().text_bytes()).sum()
            }
            Step::Delete(_) => 0,
        });
        let needed = needed.sum();
        self.change_in_slices(batch.steps.len(), now_ms, |state, budget| {
            state.make_room(self, needed, None, budget, now_ms)?;
            state.steps(self, batch, now_ms)
        })
    }
}

impl State {
    pub(super) fn whole_row(&self, table: &Table, number: u32) -> Vec<OwnedCell> {
        let spot = self.rows.find(number).expect("the row exists");
        let columns = 0..table.shape.columns();
        columns
            .map(|column| OwnedCell::new(spot.get(&table.shape, column)))
            .collect()
    }

    /// Applies all changes of a batch for which there is room, or none.
    fn steps(&mut self, table: &Table, batch: &Batch, now_ms: u64) -> Result<(), TableError> {
        table.hold_changes();
        let mut undo = Vec::new();
        for step in &batch.steps {
            if let Err(error) = self.step(table, step, now_ms, &mut undo) {
                for undo in undo.into_iter().rev() {
                    self.undo(table, undo);
                }
                table.release_changes(false);
                return Err(error);
            }
        }
        table.release_changes(true);
        Ok(())
    }

    fn step(
        &mut self,
        table: &Table,
        step: &Step,
        now_ms: u64,
        undo: &mut Vec<Undo>,
    ) -> Result<(), TableError> {
        let key = match step {
            Step::Put(_, row, _) => row[0].cell(),
            Step::Update(key, _) | Step::Delete(key) => key.cell(),
        };
        let number = self.find(table, key, now_ms).map(RowPosition::number);
        match (step, number) {
            (Step::Put(how, row, ttl_ms), number) => {
                let before = number.map(|number| (number, self.whole_row(table, number)));
                let row = cells(row);
                let mut room = Room::Made(undo);
                let is_new = self.put(table, *how, &row, *ttl_ms, now_ms, &mut room)?;
                match before {
                    Some((number, row)) => undo.push(Undo::Restore(number, row)),
                    None if is_new => {
                        let number = self.number(table, key).expect("it is in");
                        undo.push(Undo::Remove(number));
                    }
                    None => {}
                }
            }
            (Step::Update(_, changes), Some(number)) => {
                let before = self.whole_row(table, number);
                let changes = changes.iter().map(|(column, own)| (*column, own.cell()));
                let changes: Vec<_> = changes.collect();
                let spot = self.rows.find(number).expect("the row exists");
                table.check_key_stays(spot, &changes)?;
                self.change(table, number, &changes, now_ms, &mut Room::Made(undo))?;
                undo.push(Undo::Restore(number, before));
            }
            (Step::Update(..), None) => return Err(TableError::NoRow(table.format_value(0, key))),
            (Step::Delete(_), Some(number)) => {
                undo.push(Undo::Insert(number, self.whole_row(table, number)));
                self.remove(table, number, Event::Delete);
            }
            (Step::Delete(_), None) => {}
        }
        Ok(())
    }

    fn undo(&mut self, table: &Table, undo: Undo) {
        match undo {
            Undo::Remove(number) => {
                self.remove(table, number, Event::Delete);
            }
            Undo::Restore(number, row) => {
                let row = cells(&row);
                let changes: Vec<_> = row.iter().copied().enumerate().skip(1).collect();
                self.set(table, number, &changes);
            }
            Undo::Insert(number, row) => self.insert(table, number, &cells(&row), true),
        }
    }
}
