//! Atomic batches of changes.
//!
//! A batch is applied change by change while the table is locked. If a change is refused, the earlier ones are undone in
//! reverse order. Watchers are notified only after the whole batch was applied.

use super::cell::{Cell, OwnedCell};
use super::change::{PutMode, row_bytes};
use super::error::TableError;
use super::expiry::Room;
use super::rows::RowPosition;
use super::watch::WatchEvent;
use super::{State, Table};

/// Maximum number of changes of a batch.
pub const BATCH_MAX: usize = 10_000;

/// Maximum memory of the values of a batch, in bytes.
const BATCH_BYTES_MAX: usize = 16 << 20;

#[derive(Clone, Debug)]
enum Step {
    Put(PutMode, Vec<OwnedCell>, Option<u64>),
    Update(OwnedCell, Vec<(usize, OwnedCell)>),
    Delete(OwnedCell),
}

/// A list of changes to a table, which are applied together.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    steps: Vec<Step>,
    /// The memory of the values in bytes.
    bytes: usize,
}

#[derive(Debug)]
pub(super) enum Undo {
    /// Undoes an insertion: removes the row with this number.
    Remove(u32),
    /// Undoes an update: restores these values of the row.
    Restore(u32, Vec<OwnedCell>),
    /// Undoes a removal: inserts the row again with the same number, to which an earlier undo record may refer.
    Insert(u32, Vec<OwnedCell>),
}

fn own(row: &[Cell<'_>]) -> Vec<OwnedCell> {
    row.iter().copied().map(OwnedCell::new).collect()
}

fn cells(row: &[OwnedCell]) -> Vec<Cell<'_>> {
    row.iter().map(OwnedCell::cell).collect()
}

impl Batch {
    /// Counts a change and the memory of its values. Fails at a limit before the values are copied, because rows that share
    /// a long text each get a copy of it.
    fn take<'a>(&mut self, cells: impl Iterator<Item = Cell<'a>>) -> Result<(), TableError> {
        if self.steps.len() == BATCH_MAX {
            return Err(TableError::Batch { most: BATCH_MAX });
        }
        let bytes = cells.map(|cell| size_of::<OwnedCell>() + cell.text_bytes());
        let bytes = bytes.fold(self.bytes, usize::saturating_add);
        if bytes > BATCH_BYTES_MAX {
            let most = BATCH_BYTES_MAX >> 20;
            return Err(TableError::BatchBytes { most });
        }
        self.bytes = bytes;
        Ok(())
    }

    /// Adds a put to the batch, with the effect of [`Table::put`].
    ///
    /// # Errors
    /// [`TableError::Batch`], [`TableError::BatchBytes`].
    pub fn put(
        &mut self,
        how: PutMode,
        row: &[Cell<'_>],
        ttl_ms: Option<u64>,
    ) -> Result<(), TableError> {
        self.take(row.iter().copied())?;
        self.steps.push(Step::Put(how, own(row), ttl_ms));
        Ok(())
    }

    /// Adds an update to the batch. In contrast to [`Table::update`], a missing row is an error.
    ///
    /// # Errors
    /// [`TableError::Batch`], [`TableError::BatchBytes`].
    pub fn update(
        &mut self,
        key: Cell<'_>,
        changes: &[(usize, Cell<'_>)],
    ) -> Result<(), TableError> {
        let cells = changes.iter().map(|(_, cell)| *cell);
        self.take(cells.chain([key]))?;
        let changes = changes
            .iter()
            .map(|(column, cell)| (*column, OwnedCell::new(*cell)));
        let key = OwnedCell::new(key);
        self.steps.push(Step::Update(key, changes.collect()));
        Ok(())
    }

    /// Adds a deletion to the batch, with the effect of [`Table::delete`].
    ///
    /// # Errors
    /// [`TableError::Batch`], [`TableError::BatchBytes`].
    pub fn delete(&mut self, key: Cell<'_>) -> Result<(), TableError> {
        self.take([key].into_iter())?;
        self.steps.push(Step::Delete(OwnedCell::new(key)));
        Ok(())
    }
}

impl Table {
    /// Applies all changes of a batch, or none if one of them is refused.
    ///
    /// # Errors
    /// The error of the refused change.
    pub fn apply(&self, batch: &Batch, now_ms: u64) -> Result<(), TableError> {
        // Room for the whole batch is made first, because evictions can't be undone if a later change is refused.
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
        let position = self.rows.find(number).expect("the row exists");
        let columns = 0..table.shape.columns();
        columns
            .map(|column| OwnedCell::new(position.get(&table.shape, column)))
            .collect()
    }

    /// Applies all changes of a batch, or none. The caller has made room for the batch.
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
                let position = self.rows.find(number).expect("the row exists");
                table.check_key_stays(position, &changes)?;
                self.change(table, number, &changes, now_ms, &mut Room::Made(undo))?;
                undo.push(Undo::Restore(number, before));
            }
            (Step::Update(..), None) => return Err(TableError::NoRow(table.format_value(0, key))),
            (Step::Delete(_), Some(number)) => {
                undo.push(Undo::Insert(number, self.whole_row(table, number)));
                self.remove(table, number, WatchEvent::Delete);
            }
            (Step::Delete(_), None) => {}
        }
        Ok(())
    }

    fn undo(&mut self, table: &Table, undo: Undo) {
        match undo {
            Undo::Remove(number) => {
                self.remove(table, number, WatchEvent::Delete);
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
