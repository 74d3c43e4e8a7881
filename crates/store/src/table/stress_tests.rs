//! Stress tests with threads on one table. Rows move between groups, counters are incremented, and batches change pairs of
//! rows; readers must see complete rows, each at most once.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fastrand::Rng;
use veche_types::Now;

use super::file_tests::table;
use super::*;

const ROWS: u64 = 3000;
const GROUPS: u64 = 8;
const CHANGES_EACH: u64 = 15_000;
/// The id of the first row of a pair; the second row has the next id. Each batch changes both rows.
const PAIR: u64 = 1_000_000;

/// Returns the values of a row. The second one is a checksum of the id, the group and the turn, so that a partial change is
/// detected.
fn values(id: u64, group: u64, turn: u64) -> [Cell<'static>; 5] {
    let check = (id * 31 + group * 17 + turn) & 0xffff_ffff;
    [id, check, 0, group, turn].map(Cell::Bits)
}

fn bits(row: &Row<'_>, column: usize) -> u64 {
    match row.get(column) {
        Cell::Bits(bits) => bits,
        other => panic!("{other:?}"),
    }
}

fn look(table: &Table, index: Option<usize>, group: Option<u64>, random: &mut Rng) -> usize {
    let mut seen = HashSet::new();
    let given = group.map(|group| InputValue::Whole(group.into()));
    let options = ScanOptions {
        is_reverse: random.bool(),
        ..ScanOptions::default()
    };
    let mut scan = table
        .scan(index, given.as_slice(), &options)
        .expect("a scan");
    loop {
        let mut slice: Vec<[u64; 2]> = Vec::new();
        let more = table.next(&mut scan, random.usize(1..200), 0, |row| {
            let [id, check, _, in_group, turn] = [0, 1, 2, 3, 4].map(|column| bits(&row, column));
            let Cell::Bits(expected) = values(id, in_group, turn)[1] else {
                unreachable!("all are bits")
            };
            assert_eq!(check, expected, "a torn row");
            assert!(
                group.is_none_or(|group| group == in_group),
                "of another group"
            );
            assert!(seen.insert(id), "{id} twice");
            slice.push([id, turn]);
        });
        // The table does not change during a slice, so both rows of a pair must come from the same batch.
        for two in slice.windows(2) {
            let [one, other] = [two[0], two[1]];
            if one[0].min(other[0]) == PAIR && one[0].abs_diff(other[0]) == 1 {
                assert_eq!(one[1], other[1], "half of a batch");
            }
        }
        if !more.expect("no other load of the table may be running") {
            return seen.len();
        }
    }
}

#[test]
fn threads_see_whole_rows_once_and_whole_batches() {
    let columns = [
        ("check", "u32"),
        ("count", "u32"),
        ("in_group", "u8"),
        ("turn", "u32"),
    ];
    let table = table("id:u32", &columns, |draft| {
        draft.indexes = vec![("by_group".to_owned(), vec!["in_group".to_owned()], false)];
    });
    for id in (0..ROWS).chain([PAIR, PAIR + 1]) {
        table
            .put(PutMode::Insert, &values(id, id % GROUPS, 0), None, 0)
            .expect("room");
    }
    let is_over = AtomicBool::new(false);
    let (table, is_over) = (&*table, &is_over);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..3_u64)
            .map(|writer| {
                scope.spawn(move || {
                    let mut random = Rng::with_seed(writer);
                    for turn in 1..=CHANGES_EACH {
                        // Each writer moves its own rows, and all writers increment the same counters.
                        let id = random.u64(..ROWS / 3) * 3 + writer;
                        let [_, check, _, group, turn_cell] =
                            values(id, random.u64(..GROUPS), turn);
                        let changes = [(1, check), (3, group), (4, turn_cell)];
                        let updated = table.update(Cell::Bits(id), &changes, None, 0);
                        assert_eq!(updated, Ok(UpdateResult::Updated));
                        let shared = Cell::Bits(random.u64(..16));
                        table
                            .incr(shared, 2, InputValue::Whole(1), 0)
                            .expect("a number");
                        if turn % 8 == 0 && writer == 0 {
                            let mut batch = Batch::default();
                            for id in [PAIR, PAIR + 1] {
                                let [_, check, _, group, turn_cell] =
                                    values(id, turn % GROUPS, turn);
                                let changes = [(1, check), (3, group), (4, turn_cell)];
                                batch.update(Cell::Bits(id), &changes).expect("few");
                            }
                            table.apply(&batch, 0).expect("room");
                        }
                    }
                })
            })
            .collect();
        let readers: Vec<_> = (0..2)
            .map(|reader| {
                scope.spawn(move || {
                    let mut random = Rng::with_seed(100 + reader);
                    let mut scans = 0;
                    while !is_over.load(Ordering::Relaxed) || scans < 20 {
                        let group = random.u64(..GROUPS);
                        look(table, Some(0), Some(group), &mut random);
                        assert_eq!(look(table, None, None, &mut random) as u64, ROWS + 2);
                        scans += 1;
                    }
                })
            })
            .collect();
        let saver = scope.spawn(move || {
            let mut saves = 0;
            while !is_over.load(Ordering::Relaxed) || saves < 5 {
                let mut bytes = Vec::new();
                let saved = table.save_to(&mut bytes, "f", Now::default());
                assert_eq!(saved, Ok(ROWS + 2));
                let other = Table::new("other", table.schema().clone());
                other
                    .restore_from(&bytes[..], "f", Now::default())
                    .expect("whole");
                other.check();
                let turn = |id: u64| other.read(Cell::Bits(id), 0, |row| bits(&row, 4));
                assert_eq!(turn(PAIR), turn(PAIR + 1), "half of a batch was saved");
                saves += 1;
            }
        });
        writers
            .into_iter()
            .for_each(|writer| writer.join().expect("done"));
        is_over.store(true, Ordering::Relaxed);
        readers
            .into_iter()
            .for_each(|reader| reader.join().expect("done"));
        saver.join().expect("done");
    });
    table.check();
    let counted = (0..16).map(|id| table.read(Cell::Bits(id), 0, |row| bits(&row, 2)));
    assert_eq!(
        counted.map(|count| count.expect("there")).sum::<u64>(),
        3 * CHANGES_EACH
    );
}

#[test]
fn an_expired_rows_unique_value_is_free() {
    const SLOTS: u64 = 64;
    let table = table("id:u64", &[("slot", "u32")], |draft| {
        draft.indexes = vec![("by_slot".to_owned(), vec!["slot".to_owned()], true)];
        draft.has_ttl = true;
    });
    let (now_ms, left) = (AtomicU64::new(0), AtomicU64::new(2));
    let (table, now_ms, left) = (&*table, &now_ms, &left);
    std::thread::scope(|scope| {
        for writer in 0..2 {
            scope.spawn(move || {
                let mut random = Rng::with_seed(writer);
                for turn in 0..CHANGES_EACH {
                    let now = match random.u8(..64) {
                        0 => now_ms.fetch_add(1, Ordering::Relaxed) + 1,
                        _ => now_ms.load(Ordering::Relaxed),
                    };
                    let row = [turn * 2 + writer, random.u64(..SLOTS)].map(Cell::Bits);
                    let put = table.put(PutMode::Insert, &row, Some(random.u64(1..4)), now);
                    assert!(matches!(
                        put,
                        Ok(true) | Err(TableError::UniqueViolation { .. })
                    ));
                }
                left.fetch_sub(1, Ordering::Relaxed);
            });
        }
        scope.spawn(move || {
            while left.load(Ordering::Relaxed) > 0 {
                table.expire(16, now_ms.load(Ordering::Relaxed));
                let now = now_ms.load(Ordering::Relaxed);
                let options = ScanOptions::default();
                let mut scan = table.scan(Some(0), &[], &options).expect("a scan");
                let mut slots = Vec::new();
                let next = table.next(&mut scan, SLOTS as usize, now, |row| {
                    slots.push(bits(&row, 1));
                });
                next.expect("no other load of the table may be running");
                assert!(slots.windows(2).all(|two| two[0] < two[1]), "{slots:?}");
            }
        });
    });
    table.check();
}
