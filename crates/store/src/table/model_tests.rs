//! Runs threads on a table in many schedules. A model checker chooses the schedules, at random and by
//! a strategy (PCT) that finds bugs which need few context switches. Run by `make test` and by
//! `cargo test -p veche-store --features model --lib model_tests`.

use std::sync::Arc;

use shuttle::thread;
use veche_types::Now;

use super::*;

/// Number of schedules of each kind that are tried per test.
const ORDERS: usize = 1500;

fn check(model: impl Fn() + Send + Sync + 'static) {
    let model = Arc::new(model);
    let again = Arc::clone(&model);
    shuttle::check_random(move || model(), ORDERS);
    shuttle::check_pct(move || again(), ORDERS, 3);
}

fn pairs() -> Arc<Table> {
    let draft = SchemaDraft {
        key: "id:u32".to_owned(),
        columns: vec![("n".to_owned(), "u32".to_owned())],
        indexes: vec![("by_n".to_owned(), vec!["n".to_owned()], false)],
        ..SchemaDraft::default()
    };
    let table = Table::new("t", draft.check().expect("a schema"));
    for id in 1..=2 {
        put(&table, id, 0);
    }
    Arc::new(table)
}

fn put(table: &Table, id: u64, n: u64) {
    let row = [Cell::Bits(id), Cell::Bits(n)];
    table.put(PutMode::Upsert, &row, None, 0).expect("room");
}

fn bits(row: &Row<'_>) -> u64 {
    match row.get(1) {
        Cell::Bits(n) => n,
        other => panic!("{other:?}"),
    }
}

fn n(table: &Table, id: u64) -> u64 {
    table
        .read(Cell::Bits(id), 0, |row| bits(&row))
        .expect("there")
}

/// Returns the values of all rows in one slice of a scan.
fn all(table: &Table) -> Vec<u64> {
    let mut scan = table
        .scan(Some(0), &[], &ScanOptions::default())
        .expect("a scan");
    let mut found = Vec::new();
    let mut look = |row: Row<'_>| match row.get(1) {
        Cell::Bits(n) => found.push(n),
        other => panic!("{other:?}"),
    };
    table
        .next(&mut scan, 10, 0, &mut look)
        .expect("not loading");
    found
}

#[test]
fn updates_by_functions_are_not_lost() {
    check(|| {
        let table = pairs();
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let table = Arc::clone(&table);
                thread::spawn(move || {
                    for _ in 0..2 {
                        loop {
                            let look = |row: Row<'_>| (bits(&row), row.snapshot());
                            let (n, seen) = table.read(Cell::Bits(1), 0, look).expect("there");
                            let changes = [(1, Cell::Bits(n + 1))];
                            let updated = table.update(Cell::Bits(1), &changes, Some(&seen), 0);
                            match updated.expect("room") {
                                UpdateResult::Updated => break,
                                UpdateResult::Conflict => {}
                                UpdateResult::NoRow => panic!("it is there"),
                            }
                        }
                        let by = InputValue::Whole(1);
                        table.incr(Cell::Bits(2), 1, by, 0).expect("a number");
                    }
                })
            })
            .collect();
        threads
            .into_iter()
            .for_each(|thread| thread.join().expect("done"));
        assert_eq!((n(&table, 1), n(&table, 2)), (6, 6));
        table.check();
    });
}

#[test]
fn batches_are_seen_whole_and_saved_whole() {
    check(|| {
        let table = pairs();
        let writer = {
            let table = Arc::clone(&table);
            thread::spawn(move || {
                for n in 1..4 {
                    let mut batch = Batch::default();
                    for id in [1, 2] {
                        let changes = [(1, Cell::Bits(n))];
                        batch.update(Cell::Bits(id), &changes).expect("few");
                    }
                    table.apply(&batch, 0).expect("room");
                }
            })
        };
        let saver = {
            let table = Arc::clone(&table);
            thread::spawn(move || {
                let mut bytes = Vec::new();
                let saved = table.save_to(&mut bytes, "f", Now::default());
                assert_eq!(saved, Ok(2));
                bytes
            })
        };
        for _ in 0..2 {
            let found = all(&table);
            assert!(found.len() == 2 && found[0] == found[1], "{found:?}");
        }
        writer.join().expect("done");
        let bytes = saver.join().expect("done");
        assert_eq!(all(&table), [3, 3]);
        let restored = table.restore_from(&bytes[..], "f", Now::default());
        assert_eq!(restored, Ok(2));
        let found = all(&table);
        assert!(found.len() == 2 && found[0] == found[1], "{found:?}");
    });
}

#[test]
fn what_replaces_a_table_keeps_changes_out_until_it_is_there() {
    check(|| {
        let table = pairs();
        let mut out = Vec::new();
        table.save_to(&mut out, "f", Now::default()).expect("saved");
        let writer = {
            let table = Arc::clone(&table);
            thread::spawn(move || {
                let changes = [(1, Cell::Bits(7))];
                table.update(Cell::Bits(1), &changes, None, 0)
            })
        };
        let other = {
            let (table, out) = (Arc::clone(&table), out.clone());
            thread::spawn(move || table.restore_from(&out[..], "f", Now::default()))
        };
        let first = table.restore_from(&out[..], "f", Now::default());
        let results = [first, other.join().expect("done")];
        assert!(results.iter().any(Result::is_ok), "{results:?}");
        let updated = writer.join().expect("done");
        assert!(matches!(
            updated,
            Ok(UpdateResult::Updated) | Err(TableError::Loading)
        ));
        // Whichever thread was first, no writer is blocked forever, and the indexes match the rows.
        put(&table, 2, 5);
        table.check();
    });
}

/// Returns the number of changes that the watcher has reported, including missed ones; appends
/// their texts to `reported`.
fn count(changes: &Watcher, reported: &mut Vec<String>) -> u64 {
    let mut count = 0;
    while let Some(item) = changes.next(None) {
        let crate::Value::Bytes(text) = item.value else {
            panic!("{:?}", item.value)
        };
        let text = String::from_utf8_lossy(&text).into_owned();
        count += match text.strip_prefix("{\"kind\":\"missed\",\"count\":") {
            Some(rest) => rest.trim_end_matches('}').parse::<u64>().expect("a count"),
            None => 1,
        };
        reported.push(text);
    }
    count
}

#[test]
fn each_change_is_reported_once_or_counted_as_missed() {
    check(|| {
        let table = pairs();
        let changes = table.watch(2);
        let threads: Vec<_> = [1, 2]
            .into_iter()
            .map(|id| {
                let table = Arc::clone(&table);
                thread::spawn(move || (1..4).for_each(|n| put(&table, id, n)))
            })
            .collect();
        let reader = {
            let changes = Arc::clone(&changes);
            thread::spawn(move || {
                let mut reported = Vec::new();
                let mut sum = 0;
                for _ in 0..3 {
                    sum += count(&changes, &mut reported);
                    thread::yield_now();
                }
                (sum, reported)
            })
        };
        threads
            .into_iter()
            .for_each(|thread| thread.join().expect("done"));
        let (mut sum, mut reported) = reader.join().expect("done");
        // If the queue has missed changes, it must contain an entry that says so, because only an entry wakes a waiter.
        assert!(
            !changes.sleeps_with_missed(),
            "a change was not reported: {reported:?}"
        );
        sum += count(&changes, &mut reported);
        assert_eq!(sum, 6, "{reported:?}");
        for id in [1, 2] {
            let of_row = reported
                .iter()
                .filter(|text| text.contains(&format!("\"id\":{id}")));
            let of_row: Vec<_> = of_row.collect();
            assert!(of_row.is_sorted(), "{reported:?}");
        }
    });
}

#[test]
fn a_new_watcher_receives_later_changes() {
    check(|| {
        let table = pairs();
        let gone = table.watch(10);
        let writer = {
            let table = Arc::clone(&table);
            thread::spawn(move || (1..3).for_each(|n| put(&table, 1, n)))
        };
        // The last watcher is dropped while another one is added.
        drop(gone);
        let changes = table.watch(10);
        put(&table, 2, 1);
        writer.join().expect("done");
        let mut reported = Vec::new();
        count(&changes, &mut reported);
        let own = reported.iter().filter(|text| text.contains("\"id\":2"));
        assert_eq!(own.count(), 1, "{reported:?}");
    });
}

#[test]
fn a_unique_value_of_an_expired_row_can_be_reused() {
    check(|| {
        let draft = SchemaDraft {
            key: "id:u32".to_owned(),
            columns: vec![("n".to_owned(), "u32".to_owned())],
            indexes: vec![("by_n".to_owned(), vec!["n".to_owned()], true)],
            has_ttl: true,
            ..SchemaDraft::default()
        };
        let table = Arc::new(Table::new("t", draft.check().expect("a schema")));
        // There are more expired rows than a change removes, and the conflicting row is not among the first.
        for id in 0..20 {
            let row = [Cell::Bits(id), Cell::Bits(id)];
            let ttl_ms = Some(1 + id / 19);
            table.put(PutMode::Insert, &row, ttl_ms, 0).expect("room");
        }
        let changes = table.watch(100);
        let writers: Vec<_> = [100, 101]
            .into_iter()
            .map(|id| {
                let table = Arc::clone(&table);
                thread::spawn(move || {
                    let mut batch = Batch::default();
                    let row = [Cell::Bits(id), Cell::Bits(19)];
                    batch.put(PutMode::Insert, &row, None).expect("few");
                    table.apply(&batch, 2).is_ok()
                })
            })
            .collect();
        let sweeper = {
            let table = Arc::clone(&table);
            thread::spawn(move || table.expire(1, 2) + table.expire(1, 2))
        };
        assert!(table.count(2) <= 1 && table.count(1) <= 2);
        let done = writers
            .into_iter()
            .map(|writer| writer.join().expect("done"));
        assert_eq!(done.filter(|is_done| *is_done).count(), 1);
        sweeper.join().expect("done");
        assert_eq!(table.count(2), 1);
        while table.expire(3, 2) > 0 {}
        table.check();
        let mut reported = Vec::new();
        assert_eq!(count(&changes, &mut reported), 21, "{reported:?}");
    });
}
