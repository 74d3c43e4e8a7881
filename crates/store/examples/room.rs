//! Measures changes that have to make room, in milliseconds: the time of the call, and the longest wait of another thread
//! that reads the same table or dictionary meanwhile.
//!
//! ```sh
//! cargo run --profile bench -p veche-store --example room
//! ```

#[path = "../../../tests/now.rs"]
mod now;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use veche_store::table::{Batch, Cell, PutMode, SchemaDraft, Table};
use veche_store::{Options, Store, Value};

use now::now;

/// Number of expired rows in a table without a memory limit.
const ROWS: u64 = 800_000;
/// The memory limits of the table and the dictionary that are filled, in bytes.
const TABLE_BYTES_MAX: usize = 32 << 20;
const DICT_BYTES_MAX: usize = 64 << 20;

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// Prints the time of a change and the longest time of `read` in another thread.
fn measure(what: &str, read: impl Fn() + Sync, change: impl FnOnce() -> String) {
    let is_over = AtomicBool::new(false);
    let (took, result, waited) = thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut longest = Duration::ZERO;
            while !is_over.load(Ordering::Relaxed) {
                let begun = now();
                read();
                longest = longest.max(begun.elapsed());
            }
            longest
        });
        thread::sleep(Duration::from_millis(20));
        let begun = now();
        let result = change();
        let took = begun.elapsed();
        is_over.store(true, Ordering::Relaxed);
        (took, result, reader.join().expect("it only reads"))
    });
    println!(
        "{what:60} {:8.1}  a reader waited {:6.1}  {result}",
        ms(took),
        ms(waited)
    );
}

fn table(
    store: &Store,
    name: &str,
    limits: impl FnOnce(&mut SchemaDraft),
) -> std::sync::Arc<Table> {
    let column = |name: &str, kind: &str| (name.to_owned(), kind.to_owned());
    let mut draft = SchemaDraft {
        key: "id:u32".to_owned(),
        columns: vec![column("user", "u32"), column("word", "string")],
        indexes: vec![("by_user".to_owned(), vec!["user".to_owned()], true)],
        has_ttl: true,
        ..SchemaDraft::default()
    };
    limits(&mut draft);
    let schema = draft.check().expect("a schema");
    store.table(name, Some(schema)).expect("a table")
}

/// Returns a row; the order of users differs from that of ids.
fn row(id: u64, word: &[u8]) -> [Cell<'_>; 3] {
    let user = id.wrapping_mul(0x9e37_79b1) & 0xffff_ffff;
    [Cell::Bits(id), Cell::Bits(user), Cell::Text(word)]
}

/// Adds rows until the table has `rows` rows or reaches its memory limit.
fn fill(table: &Table, rows: u64, ttl_ms: Option<u64>) {
    for id in 0..rows {
        let put = table.put(PutMode::Insert, &row(id, b"word"), ttl_ms, 0);
        if put.is_err() || table.gauges().evicted > 0 {
            return;
        }
    }
}

fn batch(rows: u64, word: &[u8]) -> Batch {
    let mut batch = Batch::default();
    for id in 0..rows {
        let row = row(100_000_000 + id, word);
        batch.put(PutMode::Insert, &row, None).expect("few");
    }
    batch
}

fn apply(table: &Table, what: &str, batch: &Batch) {
    let rows = table.info().rows;
    let read = || _ = table.read(Cell::Bits(7), 20, |_| ());
    measure(what, read, || {
        let result = match table.apply(batch, 20) {
            Ok(()) => "done".to_owned(),
            Err(error) => error.to_string(),
        };
        format!("{rows} rows, then {}: {result}", table.info().rows)
    });
}

fn main() {
    let store = Store::default();
    let large = table(&store, "large", |_| {});
    fill(&large, ROWS, Some(10));
    apply(
        &large,
        "a table with 800,000 expired rows gets a batch of 10,000",
        &batch(10_000, b"word"),
    );

    for (name, evict, ttl_ms) in [
        (
            "a full table of expired rows gets a batch of 10,000",
            None,
            Some(10),
        ),
        ("the same table with eviction by key", Some("key"), Some(10)),
        (
            "a full table with eviction by key gets a batch of 10,000",
            Some("key"),
            None,
        ),
        (
            "the same table with eviction by an index in another order",
            Some("by_user"),
            None,
        ),
    ] {
        for (rows, word) in [(10_000, &b"word"[..]), (10_000, &[b'x'; 200])] {
            let full = table(&store, &format!("{name} {}", word.len()), |draft| {
                draft.bytes_max = Some(TABLE_BYTES_MAX);
                draft.evict = evict.map(str::to_owned);
            });
            fill(&full, u64::MAX, ttl_ms);
            let what = format!("{name}, with strings of {} bytes", word.len());
            apply(&full, &what, &batch(rows, word));
        }
    }

    let options = Options {
        bytes_max: DICT_BYTES_MAX,
    };
    let dict = store.dict(b"dict", Some(options)).expect("a dictionary");
    let mut number = 0;
    let value = Value::Bytes(b"v"[..].into());
    while dict
        .set(format!("{number}").as_bytes(), value.clone(), Some(10), 0)
        .is_ok()
    {
        number += 1;
    }
    let large = Value::Bytes(vec![b'x'; 16 << 20].into());
    for _ in 0..2 {
        let before = dict.used_bytes();
        let what = "a full dictionary of expired entries gets a value of 16 MiB";
        measure(
            what,
            || _ = dict.get(b"7", 20),
            || {
                let result = dict.set(b"large", large.clone(), None, 20);
                let result = result.map_or_else(|error| error.to_string(), |()| "done".to_owned());
                format!(
                    "{} MiB, then {}: {result}",
                    before >> 20,
                    dict.used_bytes() >> 20
                )
            },
        );
    }
}
