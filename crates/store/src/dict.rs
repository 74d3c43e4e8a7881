//! A dictionary that all workers read and change.
//!
//! Its entries are spread over [shards](crate::shard) by a hash of the key. The limit in bytes is one for all of them;
//! room is reserved before an entry grows, so that it holds at any moment. What has expired is not seen any more and is
//! taken out bit by bit with later changes, and as much of it as is needed before a change is refused for want of room.

use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use foldhash::fast::RandomState;
use parking_lot::Mutex;

use crate::error::Error;
use crate::shard::{Entry, Key, Shard, cost};
use crate::value::Value;

/// Locks of one dictionary: more than there will be workers at it in the same moment.
const SHARDS: usize = 32;

/// Expired entries that one change takes out, so that they go faster than new ones can come.
const EXPIRED_PER_CHANGE: usize = 8;

/// Expired entries that are taken out under one lock of a shard, to make room.
const EXPIRED_PER_LOCK: usize = 64;

/// Up to here all whole numbers are exact: a counter beyond it would stand still.
const EXACT_INTEGER_MAX: f64 = 9_007_199_254_740_992.0;

/// Longest key, in bytes.
const KEY_BYTES_MAX: usize = 1024;

/// What is settled when a dictionary comes to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// About the memory that its entries may take: keys, values, and some 130 bytes for each entry.
    pub bytes_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            bytes_max: 64 << 20,
        }
    }
}

/// Which state of an entry was read: [`Dict::swap`] wants to find it unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryVersion(Option<u64>);

/// A dictionary. Each operation is atomic; `now_ms` is monotonic and the same clock for all.
#[derive(Debug)]
pub struct Dict {
    shards: Box<[Padded]>,
    hasher: RandomState,
    used_bytes: AtomicUsize,
    options: Options,
}

/// On cache lines of its own: neighbours are other workers'.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Padded(Mutex<Shard>);

/// What a change makes of an entry.
enum Change<R> {
    Leave(R),
    Remove(R),
    Put(Value, u64, R),
}

impl Dict {
    pub(crate) fn new(options: Options) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Padded::default()).collect(),
            hasher: RandomState::default(),
            used_bytes: AtomicUsize::new(0),
            options,
        }
    }

    /// What it came to be with.
    #[must_use]
    pub fn options(&self) -> Options {
        self.options
    }

    /// Bytes that count against the limit, with those of expired entries that are still there.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &[u8], now_ms: u64) -> Option<Value> {
        self.read(key, now_ms).0
    }

    /// The value of a key, and which state of it that is.
    #[must_use]
    pub fn read(&self, key: &[u8], now_ms: u64) -> (Option<Value>, EntryVersion) {
        let shard = self.shard(key).lock();
        match shard.find(key, now_ms) {
            Some(entry) => (Some(entry.value.clone()), EntryVersion(Some(entry.version))),
            None => (None, EntryVersion(None)),
        }
    }

    /// Sets a value, which stays for good or for `ttl_ms`.
    ///
    /// # Errors
    /// [`Error::Key`], [`Error::Full`].
    pub fn set(
        &self,
        key: &[u8],
        value: Value,
        ttl_ms: Option<u64>,
        now_ms: u64,
    ) -> Result<(), Error> {
        let expires_ms = expiry(ttl_ms, now_ms);
        self.change(key, now_ms, |_| {
            Ok(Change::Put(value.clone(), expires_ms, ()))
        })
    }

    /// Sets a value only if the key has none; whether it was set.
    ///
    /// # Errors
    /// [`Error::Key`], [`Error::Full`].
    pub fn add(
        &self,
        key: &[u8],
        value: Value,
        ttl_ms: Option<u64>,
        now_ms: u64,
    ) -> Result<bool, Error> {
        let expires_ms = expiry(ttl_ms, now_ms);
        self.change(key, now_ms, |before| {
            Ok(match before {
                Some(_) => Change::Leave(false),
                None => Change::Put(value.clone(), expires_ms, true),
            })
        })
    }

    /// Takes a key out; whether it had a value.
    pub fn delete(&self, key: &[u8], now_ms: u64) -> bool {
        let result = self.change(key, now_ms, |before| {
            Ok(match before {
                Some(_) => Change::Remove(true),
                None => Change::Leave(false),
            })
        });
        // A key that is too long has no value.
        result.unwrap_or(false)
    }

    /// Adds to a number; the sum. A key without a value begins with `initial`. When it expires stays as it was.
    ///
    /// # Errors
    /// [`Error::Key`], [`Error::Full`], [`Error::NotANumber`], [`Error::NotFinite`], [`Error::NotExact`].
    pub fn incr(&self, key: &[u8], by: f64, initial: f64, now_ms: u64) -> Result<f64, Error> {
        self.change(key, now_ms, |before| {
            let (value, expires_ms) = match before {
                None => (initial, u64::MAX),
                Some(entry) => match entry.value {
                    Value::Number(value) => (value, entry.expires_ms),
                    ref other => return Err(Error::NotANumber(other.kind())),
                },
            };
            let sum = value + by;
            if !sum.is_finite() {
                return Err(Error::NotFinite);
            }
            let is_exact = sum.abs() <= EXACT_INTEGER_MAX && sum - by == value;
            if value.fract() == 0.0 && by.fract() == 0.0 && !is_exact {
                return Err(Error::NotExact);
            }
            Ok(Change::Put(Value::Number(sum), expires_ms, sum))
        })
    }

    /// Sets or, with `None`, takes out what was [read](Self::read), if nobody has changed it meanwhile; whether that was
    /// so. Without `ttl_ms` an entry expires when it would have before.
    ///
    /// # Errors
    /// [`Error::Key`], [`Error::Full`].
    pub fn swap(
        &self,
        key: &[u8],
        version: EntryVersion,
        value: Option<Value>,
        ttl_ms: Option<u64>,
        now_ms: u64,
    ) -> Result<bool, Error> {
        self.change(key, now_ms, |before| {
            if before.map(|entry| entry.version) != version.0 {
                return Ok(Change::Leave(false));
            }
            let expires_ms = match (ttl_ms, before) {
                (None, Some(entry)) => entry.expires_ms,
                _ => expiry(ttl_ms, now_ms),
            };
            Ok(match (&value, before) {
                (Some(value), _) => Change::Put(value.clone(), expires_ms, true),
                (None, Some(_)) => Change::Remove(true),
                (None, None) => Change::Leave(true),
            })
        })
    }

    /// The first `most` keys with that beginning, in the order of their bytes. Others may change the dictionary while
    /// its shards are looked through, one after the other. `None` where `goes_on`, which is asked before each of them,
    /// returns false.
    pub fn keys(
        &self,
        prefix: &[u8],
        most: usize,
        now_ms: u64,
        goes_on: impl Fn() -> bool,
    ) -> Option<Vec<Arc<[u8]>>> {
        let mut found: Vec<Key> = Vec::new();
        for Padded(shard) in &self.shards {
            if !goes_on() {
                return None;
            }
            // Beyond the last of enough keys no shard has to look.
            let last = found.get(most.wrapping_sub(1)).cloned();
            found.extend(shard.lock().keys(prefix, most, last.as_deref(), now_ms));
            found.sort();
            found.truncate(most);
        }
        Some(found)
    }

    /// How many entries there are.
    #[must_use]
    pub fn count(&self, now_ms: u64) -> usize {
        let shards = self.shards.iter();
        shards.map(|Padded(shard)| shard.lock().count(now_ms)).sum()
    }

    /// Takes out some entries that have expired, of each shard those that expired first; whether there may be more.
    ///
    /// For maintenance: expired entries that are left only take memory.
    pub fn expire(&self, now_ms: u64) -> bool {
        let mut may_be_more = false;
        for Padded(shard) in &self.shards {
            let freed = shard.lock().expire(now_ms, EXPIRED_PER_LOCK);
            self.free(freed);
            may_be_more |= freed > 0;
        }
        may_be_more
    }

    fn shard(&self, key: &[u8]) -> &Mutex<Shard> {
        let hash = self.hasher.hash_one(key);
        &self.shards[hash as usize % SHARDS].0
    }

    /// Changes an entry. `decide` may be called again: expired entries are taken out in between, if there is no room.
    fn change<R>(
        &self,
        key: &[u8],
        now_ms: u64,
        decide: impl Fn(Option<&Entry>) -> Result<Change<R>, Error>,
    ) -> Result<R, Error> {
        if key.len() > KEY_BYTES_MAX {
            return Err(Error::Key);
        }
        loop {
            let mut shard = self.shard(key).lock();
            self.free(shard.expire(now_ms, EXPIRED_PER_CHANGE));
            let (value, expires_ms, result) = match decide(shard.find(key, now_ms))? {
                Change::Leave(result) => return Ok(result),
                Change::Remove(result) => {
                    self.free(shard.cost_of(key));
                    shard.remove(key);
                    return Ok(result);
                }
                Change::Put(value, expires_ms, result) => (value, expires_ms, result),
            };
            let (before, after) = (shard.cost_of(key), cost(key, &value, expires_ms));
            let needed = after.saturating_sub(before);
            if self.reserve(needed) {
                self.free(before.saturating_sub(after));
                shard.put(key, value, expires_ms);
                return Ok(result);
            }
            // One lock at a time: another worker may be doing the same.
            drop(shard);
            if !self.make_room(needed, now_ms) {
                let bytes_max = self.options.bytes_max;
                return Err(Error::Full { needed, bytes_max });
            }
        }
    }

    /// Takes out expired entries until so many bytes more are within the limit, and no others; whether there were any.
    /// Somebody else may take the room, but no entry goes twice, so whoever tries again comes to an end.
    fn make_room(&self, needed: usize, now_ms: u64) -> bool {
        if needed > self.options.bytes_max {
            return false;
        }
        let is_short = || self.used_bytes().saturating_add(needed) > self.options.bytes_max;
        let mut has_freed = false;
        let mut goes_on = true;
        while goes_on {
            goes_on = false;
            for Padded(shard) in &self.shards {
                if !is_short() {
                    return true;
                }
                let freed = shard.lock().expire(now_ms, EXPIRED_PER_LOCK);
                self.free(freed);
                goes_on |= freed > 0;
            }
            has_freed |= goes_on;
        }
        has_freed
    }

    fn reserve(&self, bytes: usize) -> bool {
        let within = |used: usize| {
            let used = used.checked_add(bytes)?;
            (bytes == 0 || used <= self.options.bytes_max).then_some(used)
        };
        // Only the number matters: entries are behind their locks.
        let used = &self.used_bytes;
        used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within)
            .is_ok()
    }

    fn free(&self, bytes: usize) {
        if bytes > 0 {
            self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

fn expiry(ttl_ms: Option<u64>, now_ms: u64) -> u64 {
    ttl_ms.map_or(u64::MAX, |ttl_ms| now_ms.saturating_add(ttl_ms))
}

#[cfg(test)]
mod tests;
