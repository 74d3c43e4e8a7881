//! Tests with many rows that expire at the same moment. Expired rows are absent at once, and are
//! removed in bounded steps.

use std::collections::BTreeMap;
use std::sync::Arc;

use fastrand::Rng;

use super::expiry::{EXPIRED_MAX, EXPIRED_PER_CHANGE};
use super::file_tests::table;
use super::*;
use crate::Value;

/// Returns a table whose rows have a unique value and a string.
fn sessions(key: &str, more: impl FnOnce(&mut SchemaDraft)) -> Arc<Table> {
    table(key, &[("user", "u32"), ("word", "string")], |draft| {
        draft.has_ttl = true;
        draft.indexes = vec![("by_user".to_owned(), vec!["user".to_owned()], true)];
        more(draft);
    })
}

fn row<'a>(id: u64, user: u64) -> [Cell<'a>; 3] {
    [Cell::Bits(id), Cell::Bits(user), Cell::Text(b"ann")]
}

/// Adds rows that expire at 10 ms, each with its own user.
fn fill(table: &Table, rows: u64) {
    for id in 0..rows {
        let put = table.put(PutMode::Insert, &row(id, id), Some(10), 0);
        put.expect("room");
    }
}

/// A change as reported to a watcher.
struct ReportedChange {
    text: String,
}

impl ReportedChange {
    fn kind(&self) -> &str {
        let kind = self.text.strip_prefix("{\"kind\":\"").expect("a kind");
        kind.split('"').next().expect("a word")
    }

    fn number(&self, name: &str) -> Option<u64> {
        let (_, value) = self.text.split_once(&format!("\"{name}\":"))?;
        value.split([',', '}']).next()?.parse().ok()
    }
}

fn take_changes(changes: &Watcher) -> Vec<ReportedChange> {
    let parcels = std::iter::from_fn(|| changes.next(None));
    let texts = parcels.map(|item| match item.value {
        Value::Bytes(text) => ReportedChange {
            text: String::from_utf8_lossy(&text).into_owned(),
        },
        other => panic!("{other:?}"),
    });
    texts.collect()
}

#[test]
fn changes_take_out_a_few_of_many_that_expire_at_once() {
    const ROWS: u64 = 5000;
    let table = sessions("id:u32", |_| {});
    fill(&table, ROWS);
    let rows = || table.info().rows;
    let mut left = ROWS as usize;
    let mut batch = Batch::default();
    batch
        .put(PutMode::Insert, &row(10_000, 10_000), None)
        .expect("few");
    table.apply(&batch, 10).expect("room");
    left -= EXPIRED_PER_CHANGE;
    assert_eq!((rows(), table.count(10)), (left + 1, 1));
    let changes = [(2, Cell::Text(b"bob"))];
    let updated = table.update(Cell::Bits(10_000), &changes, None, 10);
    assert_eq!(updated, Ok(UpdateResult::Updated));
    assert_eq!(table.delete(Cell::Bits(4999), 10), Ok(false), "expired");
    left -= 2 * EXPIRED_PER_CHANGE;
    assert_eq!((rows(), table.count(10)), (left + 1, 1));
    // A batch removes as many expired rows as its changes would if each were made alone, up to a limit.
    let mut batch = Batch::default();
    for id in 20_000..20_200 {
        batch.put(PutMode::Insert, &row(id, id), None).expect("few");
    }
    table.apply(&batch, 10).expect("room");
    left -= EXPIRED_MAX;
    assert_eq!((rows(), table.count(10)), (left + 201, 201));
    // The remaining expired rows are removed by maintenance.
    assert_eq!((table.expire(100, 9), table.expire(100, 10)), (0, 100));
    assert_eq!(table.expire(usize::MAX, 10), left - 100);
    assert_eq!((rows(), table.count(10)), (201, 201));
    table.check();
}

#[test]
fn an_expired_rows_unique_value_is_free_before_its_removal() {
    let table = sessions("id:u32", |draft| {
        let both = vec!["user".to_owned(), "word".to_owned()];
        draft.indexes.push(("by_both".to_owned(), both, true));
    });
    fill(&table, 1000);
    let changes = table.watch(1000);
    assert_eq!(
        table.put(PutMode::Insert, &row(5000, 900), None, 10),
        Ok(true)
    );
    let mut batch = Batch::default();
    batch
        .put(PutMode::Insert, &row(5001, 901), None)
        .expect("few");
    batch
        .update(Cell::Bits(5001), &[(1, Cell::Bits(902))])
        .expect("few");
    // Inserts a row with the key of an expired row.
    batch
        .put(PutMode::Insert, &row(903, 5002), None)
        .expect("few");
    table.apply(&batch, 10).expect("nothing is in the way");
    let refused = table.put(PutMode::Insert, &row(6000, 902), None, 10);
    assert!(matches!(refused, Err(TableError::UniqueViolation { .. })));
    table.check();
    let reported = take_changes(&changes);
    let late = reported
        .iter()
        .filter(|change| change.kind() == "expire" && change.number("key") >= Some(900));
    let late: Vec<_> = late.map(|change| change.number("key")).collect();
    assert_eq!(late, [Some(900), Some(901), Some(902), Some(903)]);
    let expired = reported.iter().filter(|change| change.kind() == "expire");
    assert_eq!(expired.count(), 5 * EXPIRED_PER_CHANGE + 4);
}

#[test]
fn a_batch_that_is_refused_leaves_expired_rows_as_they_were() {
    for key in ["id:u32", "id:u64"] {
        let table = sessions(key, |_| {});
        fill(&table, 100);
        table
            .put(PutMode::Insert, &row(500, 500), None, 0)
            .expect("room");
        let rows = table.info().rows;
        let changes = table.watch(1000);
        let mut batch = Batch::default();
        batch
            .put(PutMode::Insert, &row(501, 90), None)
            .expect("few");
        batch
            .put(PutMode::Insert, &row(91, 501), None)
            .expect("few");
        let update = [(1, Cell::Bits(92))];
        batch.update(Cell::Bits(500), &update).expect("few");
        batch.delete(Cell::Bits(500)).expect("few");
        batch
            .put(PutMode::Insert, &row(502, 500), None)
            .expect("few");
        batch
            .put(PutMode::Insert, &row(503, 500), None)
            .expect("few");
        let refused = table.apply(&batch, 10);
        assert!(
            matches!(refused, Err(TableError::UniqueViolation { .. })),
            "{key}"
        );
        table.check();
        // A batch removes some expired rows at its start, even if it fails.
        let gone = take_changes(&changes);
        assert!(gone.iter().all(|change| change.kind() == "expire"));
        assert_eq!(table.info().rows, rows - gone.len(), "{key}");
        let user = table.read(Cell::Bits(500), 10, |row| row.get(1) == Cell::Bits(500));
        assert_eq!((user, table.count(10)), (Some(true), 1), "{key}");
        // The batch did not remove all expired rows. Those that remain are reported when they are removed.
        table.expire(usize::MAX, 10);
        let gone = gone.len() + take_changes(&changes).len();
        assert_eq!((gone, table.info().rows), (100, 1), "{key}");
    }
}

#[test]
fn a_full_table_makes_room_of_a_bounded_number_of_expired_rows() {
    // The first table does not evict, so it refuses a row when it is full. The other tables evict; they get the same number
    // of rows as the first one.
    let mut ids_max = 1_000_000;
    for evict in [None, Some("key"), Some("ttl"), Some("by_user")] {
        let table = sessions("id:u32", |draft| {
            draft.bytes_max = Some(512 << 10);
            draft.evict = evict.map(str::to_owned);
        });
        for id in 0..ids_max {
            // Rows with neighbouring keys expire at different times.
            let ttl_ms = Some(10 + id * 7919 % 7);
            let put = table.put(PutMode::Insert, &row(id, id), ttl_ms, 0);
            if matches!(put, Err(TableError::Full { .. })) {
                ids_max = id;
                break;
            }
            assert_eq!(put, Ok(true));
        }
        let rows = table.info().rows;
        assert!(rows > 4 * EXPIRED_MAX, "{rows}");
        let mut long = row(1_000_000, 1_000_000);
        let word = "x".repeat(10_000);
        long[2] = Cell::Text(word.as_bytes());
        assert_eq!(table.put(PutMode::Insert, &long, None, 20), Ok(true));
        let gone = rows + 1 - table.info().rows;
        assert!(gone > EXPIRED_PER_CHANGE, "room was made: {gone}");
        assert!(gone <= EXPIRED_MAX + EXPIRED_PER_CHANGE, "{gone}");
        assert_eq!(table.count(20), 1);
        // Removing expired rows made enough room, so no row was evicted.
        assert_eq!(table.gauges().evicted, 0, "{evict:?}");
        table.check();
    }
}

/// Fills a table up to its limit with rows of this lifetime, inserted at 0 ms. Returns their number.
fn fill_up(table: &Table, ttl_ms: Option<u64>) -> usize {
    for id in 0.. {
        match table.put(PutMode::Insert, &row(id, id), ttl_ms, 0) {
            Ok(true) if table.gauges().evicted == 0 => {}
            Ok(_) | Err(TableError::Full { .. }) => break,
            Err(error) => panic!("{error}"),
        }
    }
    table.info().rows
}

/// Returns a batch that inserts `rows` rows with this word.
fn batch_of(rows: u64, word: &[u8]) -> Batch {
    let mut batch = Batch::default();
    for id in 1_000_000..1_000_000 + rows {
        let row = [Cell::Bits(id), Cell::Bits(id), Cell::Text(word)];
        batch.put(PutMode::Insert, &row, None).expect("few");
    }
    batch
}

#[test]
fn removals_for_a_large_batch_are_split_over_several_locks() {
    for evict in [None, Some("key"), Some("by_user")] {
        // Tests expired rows, and then rows without expiry, which have to be evicted.
        for ttl_ms in [Some(10), None] {
            if evict.is_none() && ttl_ms.is_none() {
                continue;
            }
            let table = sessions("id:u32", |draft| {
                draft.bytes_max = Some(1 << 20);
                draft.evict = evict.map(str::to_owned);
            });
            let rows = fill_up(&table, ttl_ms);
            assert!(rows > 10 * EXPIRED_MAX, "{rows}");
            // The number of rows that are removed each time the lock is held.
            let mut slices = Vec::new();
            let done = table.change_in_slices(4000, 20, |state, budget| {
                let before = state.rows.count();
                let fits = state.make_room(&table, 100_000, None, budget, 20);
                slices.push(before - state.rows.count());
                fits
            });
            assert_eq!(done, Ok(()), "{evict:?} {ttl_ms:?}: {slices:?}");
            assert!(slices.len() > 2, "{evict:?} {ttl_ms:?}: {slices:?}");
            let most = slices.iter().max();
            assert!(most <= Some(&EXPIRED_MAX), "{slices:?}");
            let batch = batch_of(4000, b"ann bob");
            assert_eq!(table.apply(&batch, 20), Ok(()), "{evict:?} {ttl_ms:?}");
            table.check();
        }
    }
}

#[test]
fn a_change_evicts_as_many_rows_as_it_needs() {
    for is_scattered in [false, true] {
        let table = sessions("id:u32", |draft| {
            draft.bytes_max = Some(4 << 20);
            draft.evict = Some("by_user".to_owned());
        });
        // If the order of rows differs from that of users, the evicted rows are spread over all
        // leaves, and a leaf frees its memory only after many of its rows are evicted.
        let user = |id: u64| match is_scattered {
            true => (id * 0x9e37_79b1) & 0xffff_ffff,
            false => id,
        };
        let mut id = 0;
        while table.gauges().evicted == 0 {
            let put = table.put(PutMode::Insert, &row(id, user(id)), None, 0);
            assert_eq!(put, Ok(true), "{id}");
            id += 1;
        }
        let before = table.gauges().evicted;
        let mut batch = Batch::default();
        for id in 1_000_000..1_001_000 {
            let row = [
                Cell::Bits(id),
                Cell::Bits(user(id)),
                Cell::Text(&[b'x'; 2000]),
            ];
            batch.put(PutMode::Insert, &row, None).expect("few");
        }
        assert_eq!(table.apply(&batch, 20), Ok(()), "{is_scattered}");
        let evicted = table.gauges().evicted - before;
        assert!(evicted > 20 * EXPIRED_MAX as u64, "{evicted}");
        table.check();
    }
}

/// The expected sessions by id, each with its user and its expiry.
type Model = BTreeMap<u64, (u64, u64)>;

/// Applies a change to the model. Returns an error if the table should reject the change.
fn put_model(
    model: &mut Model,
    how: PutMode,
    id: u64,
    user: u64,
    expires_ms: u64,
) -> Result<(), ()> {
    match (how, model.contains_key(&id)) {
        (PutMode::Insert, true) => return Err(()),
        (PutMode::Add, true) => return Ok(()),
        _ => {}
    }
    let is_taken = model
        .iter()
        .any(|(other, (taken, _))| *other != id && *taken == user);
    if is_taken {
        return Err(());
    }
    model.insert(id, (user, expires_ms));
    Ok(())
}

#[test]
fn a_table_is_as_if_all_went_at_the_moment_they_expire() {
    for seed in 0..60 {
        let mut random = Rng::with_seed(seed);
        let key = ["id:u32", "id:u64"][random.usize(..2)];
        let table = sessions(key, |_| {});
        let changes = table.watch(CHANGES_MAX);
        let (mut model, mut mirror) = (Model::new(), BTreeMap::new());
        let mut now_ms = 0;
        for _ in 0..400 {
            if random.u8(..30) == 0 {
                now_ms += random.u64(1..300);
            }
            model.retain(|_, (_, expires_ms)| now_ms < *expires_ms);
            let mut wanted = model.clone();
            let mut batch = Batch::default();
            let mut is_good = true;
            for _ in 0..random.usize(1..20) {
                let (id, user) = (random.u64(..150), random.u64(..150));
                match random.u8(..5) {
                    0 => {
                        batch.delete(Cell::Bits(id)).expect("few");
                        wanted.remove(&id);
                    }
                    1 => {
                        let changes = [(1, Cell::Bits(user))];
                        batch.update(Cell::Bits(id), &changes).expect("few");
                        let expires_ms = wanted.get(&id).map(|(_, expires_ms)| *expires_ms);
                        is_good = is_good
                            && expires_ms.is_some_and(|expires_ms| {
                                put_model(&mut wanted, PutMode::Upsert, id, user, expires_ms)
                                    .is_ok()
                            });
                    }
                    _ => {
                        let how =
                            [PutMode::Insert, PutMode::Add, PutMode::Upsert][random.usize(..3)];
                        let ttl_ms = random.u64(1..200);
                        let put = batch.put(how, &row(id, user), Some(ttl_ms));
                        put.expect("few");
                        is_good = is_good
                            && put_model(&mut wanted, how, id, user, now_ms + ttl_ms).is_ok();
                    }
                }
                if !is_good || random.bool() {
                    break;
                }
            }
            assert_eq!(table.apply(&batch, now_ms).is_ok(), is_good, "seed {seed}");
            if is_good {
                model = wanted;
            }
            if random.u8(..10) == 0 {
                table.expire(random.usize(1..10), now_ms);
            }
            assert_eq!(table.count(now_ms), model.len(), "seed {seed}");
            // Applying the reported changes gives the existing rows, including expired ones that are not removed yet.
            for change in take_changes(&changes) {
                let id = change.number("key").expect("a number");
                let user = change.number("user");
                let before = match user {
                    Some(user) => mirror.insert(id, user),
                    None => mirror.remove(&id),
                };
                let is_new = change.kind() == "insert";
                assert_eq!(before.is_none(), is_new, "seed {seed}: {}", change.text);
            }
            assert_eq!(mirror.len(), table.info().rows, "seed {seed}");
        }
        table.check();
        let options = ScanOptions::default();
        let mut scan = table.scan(Some(0), &[], &options).expect("a scan");
        let mut found = Model::new();
        let mut more = true;
        while more {
            let next = table.next(&mut scan, 7, now_ms, |row| {
                let [Cell::Bits(id), Cell::Bits(user)] = [row.get(0), row.get(1)] else {
                    panic!("numbers");
                };
                let ttl_ms = row.ttl_ms(now_ms).expect("it expires");
                found.insert(id, (user, now_ms + ttl_ms));
            });
            more = next.expect("not loading");
        }
        assert_eq!(found, model, "seed {seed}");
    }
}
