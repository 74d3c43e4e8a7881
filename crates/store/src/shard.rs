//! A part of a dictionary behind one lock: entries by key, and by expiry.
//!
//! A shard enforces no limit: the caller accounts for the bytes that are added and removed.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use crate::value::Value;

/// Memory overhead of an entry in bytes: map nodes, reference counts, and the fixed part of the value.
const ENTRY_BYTES: usize = 112;

/// Additional overhead in bytes of an entry that expires.
const EXPIRY_BYTES: usize = 48;

/// A key, shared by the map of entries and the set of expiries.
pub(crate) type EntryKey = Arc<[u8]>;

#[derive(Debug)]
pub(crate) struct DictEntry {
    pub(crate) value: Value,
    /// Monotonic time of the expiry in milliseconds; `u64::MAX` for permanent entries.
    pub(crate) expires_ms: u64,
    /// The number of the change that created this version.
    pub(crate) version: u64,
}

impl DictEntry {
    fn is_alive(&self, now_ms: u64) -> bool {
        now_ms < self.expires_ms
    }
}

#[derive(Debug, Default)]
pub(crate) struct Shard {
    entries: BTreeMap<EntryKey, DictEntry>,
    /// The expiry times and keys of entries that expire, soonest first.
    expiries: BTreeSet<(u64, EntryKey)>,
    changes: u64,
}

/// Returns the memory of an entry in bytes.
pub(crate) fn cost(key: &[u8], value: &Value, expires_ms: u64) -> usize {
    let expiry = if expires_ms == u64::MAX {
        0
    } else {
        EXPIRY_BYTES
    };
    ENTRY_BYTES + expiry + key.len() + value.extra_bytes()
}

impl Shard {
    /// Returns the entry of a key; `None` if there is none or it has expired.
    pub(crate) fn find(&self, key: &[u8], now_ms: u64) -> Option<&DictEntry> {
        let entry = self.entries.get(key)?;
        entry.is_alive(now_ms).then_some(entry)
    }

    /// Returns the memory of a key's entry in bytes, even if the entry has expired; 0 if there is
    /// no entry.
    pub(crate) fn cost_of(&self, key: &[u8]) -> usize {
        let entry = self.entries.get(key);
        entry.map_or(0, |entry| cost(key, &entry.value, entry.expires_ms))
    }

    /// Inserts or replaces an entry.
    pub(crate) fn put(&mut self, key: &[u8], value: Value, expires_ms: u64) {
        self.changes += 1;
        let version = self.changes;
        let entry = DictEntry {
            value,
            expires_ms,
            version,
        };
        // Keeps the existing key object, so that the map and the set continue to share it.
        let (key, before_ms) = match self.entries.get_key_value(key) {
            Some((key, before)) => (Arc::clone(key), before.expires_ms),
            None => (Arc::from(key), u64::MAX),
        };
        if before_ms != expires_ms {
            self.expiries.remove(&(before_ms, Arc::clone(&key)));
            if expires_ms != u64::MAX {
                self.expiries.insert((expires_ms, Arc::clone(&key)));
            }
        }
        self.entries.insert(key, entry);
    }

    /// Removes and returns the entry of a key, expired or not; `None` if there is none.
    pub(crate) fn remove(&mut self, key: &[u8]) -> Option<DictEntry> {
        let (key, entry) = self.entries.remove_entry(key)?;
        self.changes += 1;
        if entry.expires_ms != u64::MAX {
            self.expiries.remove(&(entry.expires_ms, key));
        }
        Some(entry)
    }

    /// Removes at most `most` expired entries. Returns their memory in bytes.
    pub(crate) fn expire(&mut self, now_ms: u64, most: usize) -> usize {
        let mut freed = 0;
        for _ in 0..most {
            match self.expiries.first() {
                Some((expires_ms, _)) if *expires_ms <= now_ms => {}
                _ => break,
            }
            if let Some((expires_ms, key)) = self.expiries.pop_first()
                && let Some(entry) = self.entries.remove(&key)
            {
                debug_assert_eq!(
                    entry.expires_ms, expires_ms,
                    "an entry must have the expiry under which it was listed"
                );
                freed += cost(&key, &entry.value, expires_ms);
            }
        }
        freed
    }

    /// Returns the number of entries that have not expired.
    pub(crate) fn count(&self, now_ms: u64) -> usize {
        let soonest_first = self.expiries.iter();
        let expired = soonest_first.take_while(|(expires_ms, _)| *expires_ms <= now_ms);
        self.entries.len() - expired.count()
    }

    /// Returns at most `most` keys that begin with `prefix`, in order, up to and including `last`.
    pub(crate) fn keys(
        &self,
        prefix: &[u8],
        most: usize,
        last: Option<&[u8]>,
        now_ms: u64,
    ) -> Vec<EntryKey> {
        let from = (Bound::Included(prefix), Bound::Unbounded);
        self.entries
            .range::<[u8], _>(from)
            .take_while(|(key, _)| {
                key.starts_with(prefix) && last.is_none_or(|last| &***key <= last)
            })
            .filter(|(_, entry)| entry.is_alive(now_ms))
            .take(most)
            .map(|(key, _)| Arc::clone(key))
            .collect()
    }
}
