//! Expiry of rows. A row counts as absent as soon as it has expired; expired rows are removed later, in bounded steps.
//!
//! Each change removes a few expired rows, so that they are removed faster than new ones can arrive. It also removes the
//! expired rows that have the same key or unique values as the changed row, and, if the table is full, further expired rows.
//! The remaining ones are removed by later changes and by [`Table::expire`].
//!
//! A change that needs much memory removes rows in slices, and releases the lock between them, so the time for which a lock
//! is held does not depend on how many rows expire at the same moment or have to be evicted. [`RoomBudget`] has the limits.

use std::sync::atomic::Ordering;

use super::batch::Undo;
use super::cell::Cell;
use super::error::TableError;
use super::index::{IndexKey, IndexKeyForm as _, TableIndex};
use super::rows::RowPosition;
use super::schema::Evict;
use super::tree::Edge;
use super::watch::WatchEvent;
use super::{State, Table, is_expired};

/// Number of expired rows removed per change, so that rows are removed faster than new ones can arrive.
pub(super) const EXPIRED_PER_CHANGE: usize = 8;

/// The maximum number of rows that are removed while the table stays locked, whether they have expired or are evicted.
pub(super) const EXPIRED_MAX: usize = 1024;

/// The number of rows that a change may still remove to free memory.
#[derive(Debug)]
pub(super) struct RoomBudget {
    /// The number of rows that may still be removed before the table is unlocked.
    lock: usize,
    /// The number of rows that the whole change may still remove, also after the table was unlocked and locked again.
    call: usize,
}

impl RoomBudget {
    /// Returns the budget for a call that changes this many rows.
    fn new(table: &Table, changes: usize) -> Self {
        let call = match table.schema.evict {
            // Only some of the expired rows are removed. Maintenance removes the other expired rows, so a change that
            // does not fit may fit soon.
            Evict::Nothing => EXPIRED_MAX.max(2 * changes),
            // As many rows are removed as needed, so a change does not fail while there are rows to evict.
            _ => usize::MAX,
        };
        Self {
            lock: EXPIRED_MAX,
            call,
        }
    }

    /// Returns how many rows may be removed now.
    fn left(&self) -> usize {
        self.lock.min(self.call)
    }

    fn take(&mut self, rows: usize) {
        self.lock -= rows;
        self.call -= rows;
    }

    /// Begins the next slice, for which the table is locked again, if the current slice is used up. Returns whether a
    /// slice was begun.
    fn next_slice(&mut self) -> bool {
        let goes_on = self.lock == 0 && self.call > 0;
        if goes_on {
            self.lock = EXPIRED_MAX;
        }
        goes_on
    }
}

/// How a change gets the memory that it needs.
pub(super) enum Room<'a> {
    /// The change removes rows within this budget to free memory: expired rows first, then rows chosen by [`Evict`].
    Make(&'a mut RoomBudget),
    /// Memory for the whole batch was freed before. Removals of expired rows are recorded here, so that they can be undone.
    Made(&'a mut Vec<Undo>),
}

impl Table {
    /// Removes a few expired rows, then makes a change, both under the lock. `changes` is the number of rows that
    /// `change` changes. If `change` needs more memory than one slice of removals frees, the lock is released and
    /// `change` is called again; so a call of `change` that fails with [`TableError::Full`] must have changed nothing,
    /// or the next call must continue where it failed.
    pub(super) fn change_in_slices<R>(
        &self,
        changes: usize,
        now_ms: u64,
        mut change: impl FnMut(&mut State, &mut RoomBudget) -> Result<R, TableError>,
    ) -> Result<R, TableError> {
        let mut budget = RoomBudget::new(self, changes);
        let mut is_first = true;
        loop {
            let mut state = self.state.write();
            state.refuse_while_loading()?;
            if std::mem::take(&mut is_first) {
                let most = EXPIRED_MAX.min(EXPIRED_PER_CHANGE * changes);
                // These rows count only towards the limit per lock, because every change removes a few expired rows, even if
                // it needs no memory.
                budget.lock -= state.expire(self, most, now_ms);
            }
            let result = change(&mut state, &mut budget);
            let is_full = matches!(result, Err(TableError::Full { .. }));
            if !is_full || !budget.next_slice() {
                return result;
            }
        }
    }

    /// Removes at most `most` expired rows, in the order of their expiry. Returns the number of removed rows.
    ///
    /// Meant for periodic maintenance, since expired rows that are not removed still take memory.
    pub fn expire(&self, most: usize, now_ms: u64) -> usize {
        if !self.schema.has_ttl || self.state.read().expired(self, now_ms).next().is_none() {
            return 0;
        }
        let mut state = self.state.write();
        match state.refuse_while_loading() {
            Ok(()) => state.expire(self, most, now_ms),
            Err(_) => 0,
        }
    }
}

impl State {
    /// Returns the index by expiry, if rows of the table may expire. Permanent rows are not in this index.
    fn due(&self, table: &Table) -> Option<&TableIndex> {
        table.schema.has_ttl.then(|| self.indexes.last()).flatten()
    }

    /// Iterates over expired rows that were not removed yet, ordered by expiry.
    fn expired<'a>(&'a self, table: &'a Table, now_ms: u64) -> impl Iterator<Item = u32> + 'a {
        // The key of a nullable time has 72 bits, so the index has 128-bit keys.
        let numbers = self.due(table).map(|index| {
            let tree = u128::tree(&index.tree);
            tree.from(tree.start())
        });
        let numbers = numbers.into_iter().flatten();
        numbers.take_while(move |row| {
            let position = self
                .rows
                .find(*row)
                .expect("every row in an index must exist");
            is_expired(table, position, now_ms)
        })
    }

    /// Returns the number of expired rows that were not removed yet, by a search in the index instead of visiting each row.
    pub(super) fn count_expired(&self, table: &Table, now_ms: u64) -> usize {
        let Some(index) = self.due(table) else {
            return 0;
        };
        let Some(IndexKey::Medium(now)) = index.key_of(|_| Cell::Bits(now_ms)) else {
            unreachable!("the key of an optional time must have 72 bits");
        };
        let tree = u128::tree(&index.tree);
        let keys = index.keys(&table.shape, &self.rows);
        let end = tree.seek(&(now, u32::MAX), Edge::Behind, &keys);
        tree.between(tree.start(), end)
    }

    /// Removes at most `most` expired rows. Returns the number of removed rows.
    fn expire(&mut self, table: &Table, most: usize, now_ms: u64) -> usize {
        let expired: Vec<u32> = self.expired(table, now_ms).take(most).collect();
        for &number in &expired {
            self.remove(table, number, WatchEvent::Expire);
        }
        expired.len()
    }

    /// Removes an expired row that conflicts with a change.
    pub(super) fn expire_one(&mut self, table: &Table, number: u32, room: &mut Room<'_>) {
        if let Room::Made(undo) = room {
            undo.push(Undo::Insert(number, self.whole_row(table, number)));
        }
        self.remove(table, number, WatchEvent::Expire);
    }

    /// Makes room for `needed` more bytes within the memory limit of the table. `own` is a row that
    /// must stay. Fails with [`TableError::Full`] if no other row may be removed, or if as many rows
    /// were removed as `budget` permits without unlocking the table.
    pub(super) fn make_room(
        &mut self,
        table: &Table,
        needed: usize,
        own: Option<u32>,
        budget: &mut RoomBudget,
        now_ms: u64,
    ) -> Result<(), TableError> {
        let bytes_max = table.schema.bytes_max;
        if needed == 0 || self.bytes() + needed <= bytes_max {
            return Ok(());
        }
        self.make_room_of_expired(table, needed, budget, now_ms);
        while self.bytes() + needed > bytes_max {
            if budget.left() == 0 {
                return Err(TableError::Full { needed, bytes_max });
            }
            let first = match table.schema.evict {
                Evict::Nothing => None,
                Evict::Key => match &self.keys {
                    Some(keys) => keys.lowest(),
                    None => self.rows.from(0).next().map(RowPosition::number),
                },
                Evict::Index(place) => self.indexes[place].lowest(),
            };
            let Some(first) = first.filter(|first| Some(*first) != own) else {
                return Err(TableError::Full { needed, bytes_max });
            };
            budget.take(1);
            let position = self.rows.find(first).expect("it is there");
            if is_expired(table, position, now_ms) {
                self.remove(table, first, WatchEvent::Expire);
            } else {
                self.remove(table, first, WatchEvent::Evict);
                table.evicted.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Removes expired rows until there is room. Removing a single row frees little memory, since a leaf keeps its memory as
    /// long as it has rows; so all expired rows of the same leaf are removed together.
    fn make_room_of_expired(
        &mut self,
        table: &Table,
        needed: usize,
        budget: &mut RoomBudget,
        now_ms: u64,
    ) {
        while budget.left() > 0 && self.bytes() + needed > table.schema.bytes_max {
            let Some(first) = self.expired(table, now_ms).next() else {
                return;
            };
            let RowPosition { leaf, .. } = self.rows.find(first).expect("it is there");
            let positions = (0..leaf.len()).map(|place| RowPosition { leaf, place });
            let expired = positions.filter(|position| is_expired(table, *position, now_ms));
            let expired = expired.map(RowPosition::number).take(budget.left());
            let expired: Vec<u32> = expired.collect();
            budget.take(expired.len());
            for number in expired {
                self.remove(table, number, WatchEvent::Expire);
            }
        }
    }
}
