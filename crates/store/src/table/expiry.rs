//! Expiry of rows: an expired row counts as absent at once, and is removed in bounded steps.
//!
//! A change removes a few expired rows, so that they are removed faster than new ones can arrive, and those in its way:
//! one with its key or unique values, and some if the table is full. The rest waits for later changes and for
//! [`Table::expire`], so no lock is held longer however many rows expire at the same moment.

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

/// Expired rows removed per change, so that they are removed faster than new ones can arrive.
pub(super) const EXPIRED_PER_CHANGE: usize = 8;

/// The most expired rows removed under one lock, however much room is needed. A batch of more than half as many changes
/// may remove two rows for each change.
pub(super) const EXPIRED_MAX: usize = 1024;

/// How a change gets the room it needs.
pub(super) enum Room<'a> {
    /// By removing at most this many expired rows, and then by eviction.
    Make(&'a mut usize),
    /// There already is room for the whole batch. Removals of expired rows are recorded here, so that they can be
    /// undone.
    Made(&'a mut Vec<Undo>),
}

impl Table {
    /// Removes at most `most` expired rows, those that expired first. Returns their number.
    ///
    /// For maintenance: expired rows that remain only take memory.
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
    /// Returns the index by expiry. Permanent rows are not in it.
    fn due(&self, table: &Table) -> Option<&TableIndex> {
        table.schema.has_ttl.then(|| self.indexes.last()).flatten()
    }

    /// Iterates over expired rows that were not removed yet, by expiry.
    fn expired<'a>(&'a self, table: &'a Table, now_ms: u64) -> impl Iterator<Item = u32> + 'a {
        // A nullable time has 72 bits.
        let numbers = self.due(table).map(|index| {
            let tree = u128::tree(&index.tree);
            tree.from(tree.start())
        });
        let numbers = numbers.into_iter().flatten();
        numbers.take_while(move |row| {
            let position = self.rows.find(*row).expect("an indexed row has its entry");
            is_expired(table, position, now_ms)
        })
    }

    /// Returns the number of expired rows that were not removed yet, visiting only those that a search touches.
    pub(super) fn count_expired(&self, table: &Table, now_ms: u64) -> usize {
        let Some(index) = self.due(table) else {
            return 0;
        };
        let Some(IndexKey::Medium(now)) = index.key_of(|_| Cell::Bits(now_ms)) else {
            unreachable!("an optional time has 72 bits");
        };
        let tree = u128::tree(&index.tree);
        let keys = index.keys(&table.shape, &self.rows);
        let end = tree.seek(&(now, u32::MAX), Edge::Behind, &keys);
        tree.between(tree.start(), end)
    }

    /// Removes some expired rows before changes. Returns how many more may be removed to make room.
    pub(super) fn tidy(&mut self, table: &Table, changes: usize, now_ms: u64) -> usize {
        let most = EXPIRED_MAX.max(2 * changes);
        self.expire(table, most.min(EXPIRED_PER_CHANGE * changes), now_ms);
        most
    }

    /// Removes at most `most` expired rows. Returns their number.
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

    /// Makes room for additional bytes within the limit. `own` is a row that must stay; `most` is the number of expired
    /// rows that may be removed, from which those removed are subtracted.
    pub(super) fn make_room(
        &mut self,
        table: &Table,
        needed: usize,
        own: Option<u32>,
        most: &mut usize,
        now_ms: u64,
    ) -> Result<(), TableError> {
        let bytes_max = table.schema.bytes_max;
        if needed == 0 || self.bytes() + needed <= bytes_max {
            return Ok(());
        }
        self.make_room_of_expired(table, needed, most, now_ms);
        while self.bytes() + needed > bytes_max {
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

    /// Removes expired rows until there is room. A single one frees little, since a leaf keeps its memory as long as it
    /// has rows; so the expired rows in the same leaf are removed with the first.
    fn make_room_of_expired(
        &mut self,
        table: &Table,
        needed: usize,
        most: &mut usize,
        now_ms: u64,
    ) {
        while *most > 0 && self.bytes() + needed > table.schema.bytes_max {
            let Some(first) = self.expired(table, now_ms).next() else {
                return;
            };
            let RowPosition { leaf, .. } = self.rows.find(first).expect("it is there");
            let positions = (0..leaf.len()).map(|place| RowPosition { leaf, place });
            let expired = positions.filter(|position| is_expired(table, *position, now_ms));
            let expired: Vec<u32> = expired.map(RowPosition::number).take(*most).collect();
            *most -= expired.len();
            for number in expired {
                self.remove(table, number, WatchEvent::Expire);
            }
        }
    }
}
