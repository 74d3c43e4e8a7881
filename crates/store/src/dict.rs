//! A dictionary shared by all workers.
//!
//! Its entries are distributed over [shards](crate::shard) by a hash of the key. The memory limit applies to all shards
//! together. A change reserves memory before an entry grows, so the limit is never exceeded. Expired entries are
//! invisible. Each change removes some of them. If a change would exceed the memory limit, it removes further expired
//! entries, up to a maximum number. If that does not free enough memory, the change is refused.

use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use foldhash::fast::RandomState;
use parking_lot::Mutex;

use crate::error::Error;
use crate::shard::{DictEntry, EntryKey, Shard, cost};
use crate::value::Value;

/// Number of shards, each with its own lock. It exceeds the number of workers that usually access a dictionary at the same
/// moment.
const SHARDS: usize = 32;

/// Number of expired entries that each change removes, so that they are removed faster than new ones can arrive.
const EXPIRED_PER_CHANGE: usize = 8;

/// Maximum number of expired entries that maintenance, or a change that needs room, removes from a shard before it releases
/// the shard's lock.
const EXPIRED_PER_LOCK: usize = 64;

/// The maximum number of expired entries that one change removes to free memory. A change that needs more memory fails, but
/// the memory that it has freed remains available for a retry, and maintenance removes the other expired entries.
const EXPIRED_PER_CALL: usize = 32_768;

/// All integers up to this absolute value are exact as `f64`. Beyond it, adding 1 may leave a
/// number unchanged.
const EXACT_INTEGER_MAX: f64 = 9_007_199_254_740_992.0;

/// Maximum length of a key in bytes.
const KEY_BYTES_MAX: usize = 1024;

/// Options fixed at the creation of a dictionary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Approximate memory limit of all entries: keys, values, and some 130 bytes per entry.
    pub bytes_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            bytes_max: 64 << 20,
        }
    }
}

/// The version of an entry when [`Dict::read`] returned it. [`Dict::swap`] changes an entry only if it still has this
/// version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryVersion(Option<u64>);

/// A dictionary. Each operation is atomic; `now_ms` comes from one monotonic clock.
#[derive(Debug)]
pub struct Dict {
    shards: Box<[Padded]>,
    hasher: RandomState,
    used_bytes: AtomicUsize,
    options: Options,
}

/// A shard aligned to its own cache lines, so that workers that use neighbouring shards don't slow each other down.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Padded(Mutex<Shard>);

/// What a change does to an entry.
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

    /// Returns the options of the dictionary.
    #[must_use]
    pub fn options(&self) -> Options {
        self.options
    }

    /// Returns the bytes that count against the limit, including expired entries not removed yet.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// Returns the value of a key.
    #[must_use]
    pub fn get(&self, key: &[u8], now_ms: u64) -> Option<Value> {
        self.read(key, now_ms).0
    }

    /// Returns the value of a key and its version.
    #[must_use]
    pub fn read(&self, key: &[u8], now_ms: u64) -> (Option<Value>, EntryVersion) {
        let shard = self.shard(key).lock();
        match shard.find(key, now_ms) {
            Some(entry) => (Some(entry.value.clone()), EntryVersion(Some(entry.version))),
            None => (None, EntryVersion(None)),
        }
    }

    /// Sets a value, permanently or for `ttl_ms`.
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

    /// Sets a value only if the key has none. Returns whether it was set.
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

    /// Removes a key. Returns whether it had a value.
    pub fn delete(&self, key: &[u8], now_ms: u64) -> bool {
        let result = self.change(key, now_ms, |before| {
            Ok(match before {
                Some(_) => Change::Remove(true),
                None => Change::Leave(false),
            })
        });
        // The only possible error is a key that is too long, which can't have a value.
        result.unwrap_or(false)
    }

    /// Adds to a number and returns the sum. A key without a value starts with `initial`. The expiry does not change.
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

    /// Sets the value of a key, or removes the key if `value` is `None`, but only if the entry has
    /// the version that [`read`](Self::read) returned. Otherwise returns `false` and changes nothing.
    /// Without `ttl_ms` the expiry does not change.
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

    /// Returns the first `most` keys with a prefix, in byte order. The shards are visited one after
    /// another, and the dictionary may change in between. `goes_on` is called before each shard; if
    /// it returns false, the search ends and `None` is returned.
    pub fn keys(
        &self,
        prefix: &[u8],
        most: usize,
        now_ms: u64,
        goes_on: impl Fn() -> bool,
    ) -> Option<Vec<Arc<[u8]>>> {
        let mut found: Vec<EntryKey> = Vec::new();
        for Padded(shard) in &self.shards {
            if !goes_on() {
                return None;
            }
            // Once `most` keys are found, the following shards need not search beyond the last of these keys.
            let last = found.get(most.wrapping_sub(1)).cloned();
            found.extend(shard.lock().keys(prefix, most, last.as_deref(), now_ms));
            found.sort();
            found.truncate(most);
        }
        Some(found)
    }

    /// Returns the number of entries.
    #[must_use]
    pub fn count(&self, now_ms: u64) -> usize {
        let shards = self.shards.iter();
        shards.map(|Padded(shard)| shard.lock().count(now_ms)).sum()
    }

    /// Removes some expired entries from each shard, in the order of their expiry. Returns whether there may be more.
    ///
    /// Meant for periodic maintenance, since expired entries that are not removed still take memory.
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

    /// Changes an entry as `decide` requests. If the change would exceed the memory limit, removes expired entries and calls
    /// `decide` again.
    fn change<R>(
        &self,
        key: &[u8],
        now_ms: u64,
        decide: impl Fn(Option<&DictEntry>) -> Result<Change<R>, Error>,
    ) -> Result<R, Error> {
        if key.len() > KEY_BYTES_MAX {
            return Err(Error::Key);
        }
        let mut removals = EXPIRED_PER_CALL;
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
            // The lock is released first. Otherwise two workers that remove expired entries from all shards could wait for
            // each other's locks.
            drop(shard);
            if !self.make_room(needed, now_ms, &mut removals) {
                let bytes_max = self.options.bytes_max;
                return Err(Error::Full { needed, bytes_max });
            }
        }
    }

    /// Removes expired entries until `needed` more bytes fit within the memory limit. Removes at most `removals`
    /// entries, and lowers `removals` by at least their number. Returns `true` if the bytes fit or an entry was
    /// removed, so that the caller should try its change again; returns `false` if that would be useless. Another
    /// thread may use the freed memory first, but each attempt removes further entries, so the attempts end.
    fn make_room(&self, needed: usize, now_ms: u64, removals: &mut usize) -> bool {
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
                if *removals == 0 {
                    return has_freed || goes_on;
                }
                let most = EXPIRED_PER_LOCK.min(*removals);
                let freed = shard.lock().expire(now_ms, most);
                self.free(freed);
                if freed > 0 {
                    // The number of removed entries is unknown, since only their size is returned,
                    // so the maximum is subtracted.
                    *removals -= most;
                }
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
        // Relaxed ordering suffices, because the entries themselves are protected by locks.
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
