//! State shared by all workers and applications of a process: dictionaries, counters, queues, tables and metrics, by
//! name.
//!
//! The crate does not depend on Lua, does no network I/O and reads no clock: values are plain data, and time is an argument. A
//! lock is held for one operation on one shard and never while application code runs, so no worker waits for another worker's
//! script. The state lives as long as the [`Store`]: it survives a reload of code, but not a restart of the process.

mod counter;
mod dict;
mod error;
pub mod metrics;
mod notifier;
mod queue;
mod shard;
pub mod table;
mod value;

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

pub use counter::Counter;
pub use dict::{Dict, EntryVersion, Options};
pub use error::Error;
pub use notifier::Notifier;
pub use queue::{PushResult, Queue, QueueItem, QueueOptions, WaitSide, Waiter};
use table::{Schema, Table, TableError};
pub use value::{Value, ValueKind};

/// Maximum length of a name in bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// Maximum number of dictionaries per process. They are limited because each has its own locks.
pub const DICTS_MAX: usize = 1024;

/// Maximum number of tables per process.
pub const TABLES_MAX: usize = 1024;

/// Maximum number of expired rows that a maintenance pass removes from each table.
const EXPIRED_PER_PASS: usize = 256;

/// Maximum number of queues per process.
pub const QUEUES_MAX: usize = 1024;

/// While there are fewer queues than this, unused queues are not removed, since they take little memory.
const QUEUES_MIN: usize = 64;

/// Maximum number of counters per process.
pub const COUNTERS_MAX: usize = 65_536;

/// All shared objects by name. Callers look a name up once and keep the object.
#[derive(Debug, Default)]
pub struct Store {
    dicts: Mutex<BTreeMap<Box<[u8]>, Arc<Dict>>>,
    counters: Mutex<BTreeMap<Box<[u8]>, Arc<Counter>>>,
    queues: Mutex<Queues>,
    tables: Mutex<BTreeMap<Box<str>, Arc<Table>>>,
    /// Metrics that the applications define.
    pub metrics: metrics::Metrics,
}

#[derive(Debug, Default)]
struct Queues {
    named: BTreeMap<Box<[u8]>, Arc<Queue>>,
    /// The number of queues that were left by the last removal of unused queues.
    known: usize,
}

impl Queues {
    /// Removes empty queues that are no longer referenced, if the number of queues has doubled since the last removal or has
    /// reached its limit.
    fn tidy(&mut self) {
        let count = self.named.len();
        if count >= QUEUES_MAX || count >= QUEUES_MIN.max(2 * self.known) {
            let is_needed = |queue: &Arc<Queue>| Arc::strong_count(queue) > 1 || !queue.is_empty();
            self.named.retain(|_, queue| is_needed(queue));
            self.known = self.named.len();
        }
    }
}

impl Store {
    /// Returns the dictionary with a name, and creates it on first use. `options` apply at the creation; later they must be
    /// omitted or equal.
    ///
    /// # Errors
    /// [`Error::Name`], [`Error::TooMany`], [`Error::Options`].
    pub fn dict(&self, name: &[u8], options: Option<Options>) -> Result<Arc<Dict>, Error> {
        let mut dicts = self.dicts.lock();
        if let Some(dict) = dicts.get(name) {
            return match options {
                Some(options) if options != dict.options() => Err(Error::Options {
                    bytes_max: dict.options().bytes_max,
                }),
                _ => Ok(Arc::clone(dict)),
            };
        }
        check_name(name)?;
        if dicts.len() >= DICTS_MAX {
            return Err(Error::TooMany {
                what: "dictionaries",
                most: DICTS_MAX,
            });
        }
        let dict = Arc::new(Dict::new(options.unwrap_or_default()));
        dicts.insert(name.into(), Arc::clone(&dict));
        Ok(dict)
    }

    /// Returns the queue with a name, and creates it on first use. `options`, if given, apply from now on. An empty queue that
    /// is no longer referenced may be removed.
    ///
    /// # Errors
    /// [`Error::Name`], [`Error::TooMany`].
    pub fn queue(&self, name: &[u8], options: Option<QueueOptions>) -> Result<Arc<Queue>, Error> {
        let mut queues = self.queues.lock();
        if let Some(queue) = queues.named.get(name) {
            if let Some(options) = options.filter(|options| *options != queue.options()) {
                queue.resize(options);
            }
            return Ok(Arc::clone(queue));
        }
        check_name(name)?;
        queues.tidy();
        if queues.named.len() >= QUEUES_MAX {
            return Err(Error::TooMany {
                what: "queues",
                most: QUEUES_MAX,
            });
        }
        let queue = Arc::new(Queue::new(options.unwrap_or_default()));
        queues.named.insert(name.into(), Arc::clone(&queue));
        Ok(queue)
    }

    /// Returns the table with a name, and creates it with `schema` on first use. Later the schema must be omitted or equal.
    ///
    /// # Errors
    /// [`TableError::Schema`], [`TableError::Missing`], [`TableError::Differs`], [`TableError::TooMany`].
    pub fn table(&self, name: &str, schema: Option<Schema>) -> Result<Arc<Table>, TableError> {
        let mut tables = self.tables.lock();
        if let Some(table) = tables.get(name) {
            let other = schema.and_then(|schema| table.schema().difference(&schema));
            return match other {
                Some(words) => Err(TableError::Differs(words)),
                None => Ok(Arc::clone(table)),
            };
        }
        let is_good = (1..=NAME_BYTES_MAX).contains(&name.len());
        if !is_good {
            return Err(TableError::Schema(Error::Name.to_string()));
        }
        let schema = schema.ok_or(TableError::Missing)?;
        if tables.len() >= TABLES_MAX {
            return Err(TableError::TooMany { most: TABLES_MAX });
        }
        let table = Arc::new(Table::new(name, schema));
        tables.insert(name.into(), Arc::clone(&table));
        Ok(table)
    }

    /// Returns all tables by name.
    #[must_use]
    pub fn tables(&self) -> Vec<Arc<Table>> {
        self.tables.lock().values().cloned().collect()
    }

    /// Removes some expired entries of each dictionary and table, holding each lock only briefly. Returns whether there may be
    /// more. Meant for periodic maintenance.
    pub fn expire(&self, now_ms: u64) -> bool {
        let dicts: Vec<_> = self.dicts.lock().values().cloned().collect();
        let mut may_be_more = false;
        for dict in dicts {
            may_be_more |= dict.expire(now_ms);
        }
        for table in self.tables() {
            may_be_more |= table.expire(EXPIRED_PER_PASS, now_ms) > 0;
        }
        may_be_more
    }

    /// Returns the counter with a name, and creates it with the value 0 on first use.
    ///
    /// # Errors
    /// [`Error::Name`], [`Error::TooMany`].
    pub fn counter(&self, name: &[u8]) -> Result<Arc<Counter>, Error> {
        let mut counters = self.counters.lock();
        if let Some(counter) = counters.get(name) {
            return Ok(Arc::clone(counter));
        }
        check_name(name)?;
        if counters.len() >= COUNTERS_MAX {
            return Err(Error::TooMany {
                what: "counters",
                most: COUNTERS_MAX,
            });
        }
        let counter = Arc::new(Counter::default());
        counters.insert(name.into(), Arc::clone(&counter));
        Ok(counter)
    }
}

fn check_name(name: &[u8]) -> Result<(), Error> {
    let is_good = (1..=NAME_BYTES_MAX).contains(&name.len());
    if is_good { Ok(()) } else { Err(Error::Name) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leads_to_the_same_thing() {
        let store = Store::default();
        let ann = store.dict(b"users", None).expect("a dict");
        let bob = store.dict(b"users", None).expect("a dict");
        ann.set(b"k", Value::Boolean(true), None, 0).expect("room");
        assert_eq!(bob.get(b"k", 0), Some(Value::Boolean(true)));
        let other = store.dict(b"others", None).expect("a dict");
        assert_eq!(other.get(b"k", 0), None);
        store.counter(b"users").expect("a counter").add(2);
        assert_eq!(store.counter(b"users").expect("a counter").value(), 2);
    }

    #[test]
    fn options_are_settled_once() {
        let store = Store::default();
        let small = Some(Options { bytes_max: 1000 });
        store.dict(b"x", small).expect("a dict");
        store.dict(b"x", None).expect("the same");
        store.dict(b"x", small).expect("the same");
        let other = store.dict(b"x", Some(Options { bytes_max: 2000 }));
        assert_eq!(other.err(), Some(Error::Options { bytes_max: 1000 }));
    }

    #[test]
    fn expired_entries_are_removed_in_steps() {
        let store = Store::default();
        let dict = store.dict(b"d", None).expect("a dict");
        let draft = table::SchemaDraft {
            key: "id:u32".to_owned(),
            has_ttl: true,
            ..table::SchemaDraft::default()
        };
        let schema = draft.check().expect("a schema");
        let table = store.table("t", Some(schema)).expect("a table");
        for id in 0..10_000 {
            let key = id.to_string();
            let value = Value::Boolean(true);
            dict.set(key.as_bytes(), value, Some(10), 0).expect("room");
            let row = [table::Cell::Bits(id)];
            let put = table.put(table::PutMode::Insert, &row, Some(10), 0);
            put.expect("room");
        }
        assert!(!store.expire(9));
        assert_eq!(table.info().rows, 10_000);
        let (mut passes, mut rows, mut bytes) = (0, 10_000, dict.used_bytes());
        while store.expire(10) {
            let [rows_after, bytes_after] = [table.info().rows, dict.used_bytes()];
            assert!(rows - rows_after <= EXPIRED_PER_PASS);
            // A pass removes at most 64 entries from each of the 32 shards.
            assert!(bytes - bytes_after <= 32 * 64 * 170);
            (rows, bytes) = (rows_after, bytes_after);
            passes += 1;
        }
        assert_eq!((rows, bytes), (0, 0));
        assert_eq!(passes, 10_000_usize.div_ceil(EXPIRED_PER_PASS));
    }

    #[test]
    fn an_empty_unreferenced_queue_is_removed() {
        let store = Store::default();
        let item = QueueItem {
            value: Value::Number(1.0),
            is_json: false,
        };
        let open = |name: &str| store.queue(name.as_bytes(), None);
        let full = open("full").expect("a queue");
        full.push(item.clone(), None);
        let held: Vec<_> = (0..500)
            .map(|number| open(&format!("held {number}")).expect("a queue"))
            .collect();
        drop(full);
        for number in 0..10_000 {
            open(&number.to_string()).expect("room for another");
        }
        assert!(store.queues.lock().named.len() < QUEUES_MAX);
        let pop = |name| open(name).expect("a queue").pop(None);
        assert_eq!(pop("full"), Some(item.clone()));
        held[7].push(item.clone(), None);
        assert_eq!(pop("held 7"), Some(item));
        let more: Vec<_> = (0..QUEUES_MAX - 500)
            .map(|number| open(&format!("more {number}")))
            .collect();
        let too_many = Error::TooMany {
            what: "queues",
            most: QUEUES_MAX,
        };
        assert!(more.iter().all(Result::is_ok));
        assert_eq!(open("one more").err(), Some(too_many));
    }

    #[test]
    fn names_and_numbers_have_limits() {
        let store = Store::default();
        let long = [b'x'; NAME_BYTES_MAX + 1];
        assert_eq!(store.dict(b"", None).err(), Some(Error::Name));
        assert_eq!(store.dict(&long, None).err(), Some(Error::Name));
        assert_eq!(store.counter(&long).err(), Some(Error::Name));
        store.dict(&long[1..], None).expect("just short enough");
        for number in 1..DICTS_MAX {
            let name = number.to_string();
            store.dict(name.as_bytes(), None).expect("room for one");
        }
        let refused = store.dict(b"one more", None).err();
        let too_many = Error::TooMany {
            what: "dictionaries",
            most: DICTS_MAX,
        };
        assert_eq!(refused, Some(too_many));
    }
}
