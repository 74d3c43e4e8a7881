//! Expiry of rows. A row counts as absent as soon as it has expired; expired rows are removed later, in bounded steps.
//!
//! Each change removes a few expired rows, so that they are removed faster than new ones can arrive. It also removes expired
//! rows that conflict with it: those with the same key or unique values, and some if the table is full. The others are removed
//! by later changes and by [`Table::expire`], so the time for which a lock is held does not depend on how many rows expire at
//! the same moment.

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

/// Maximum number of expired rows removed under one lock to make room. For a batch the maximum is twice its number of changes,
/// if that is more.
pub(super) const EXPIRED_MAX: usize = 1024;

/// How a change gets the memory that it needs.
pub(super) enum Room<'a> {
    /// By removing at most this many expired rows, and then by eviction.
    Make(&'a mut usize),
    /// Room for the whole batch was made before. Removals of expired rows are recorded here, so that they can be undone.
    Made(&'a mut Vec<Undo>),
}

impl Table {
    /// Removes at most `most` expired rows, those that expired first. Returns the number of removed rows.
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
            let position = self.rows.find(*row).expect("an indexed row has its entry");
            is_expired(table, position, now_ms)
        })
    }

    /// Returns the number of expired rows that were not removed yet, by a search in the index instead of visiting each row.
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

    /// Removes some expired rows before `changes` changes are made. Returns how many more may be removed to make room.
    pub(super) fn tidy(&mut self, table: &Table, changes: usize, now_ms: u64) -> usize {
        let most = EXPIRED_MAX.max(2 * changes);
        self.expire(table, most.min(EXPIRED_PER_CHANGE * changes), now_ms);
        most
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

    /// Makes room for additional bytes within the memory limit. `own` is a row that must stay. `most` is the number of expired
    /// rows that may be removed; it is reduced by the number of removed rows.
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

    /// Removes expired rows until there is room. Removing a single row frees little memory, since a leaf keeps its memory as
    /// long as it has rows; so all expired rows of the same leaf are removed together.
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
