//! Tests of snapshots and text formats with random schemas, of damaged files, and of processes killed while saving.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use proptest::prelude::*;
use veche_types::Now;

use super::file_tests::{Folder, dump, table};
use super::*;

const CLOCKS: Now = Now {
    mono_ms: 5000,
    wall_ms: 1_700_000_000_000,
};

/// An owned input value.
#[derive(Clone, Debug)]
enum Own {
    Null,
    Bool(bool),
    Whole(i128),
    Number(f64),
    Text(Vec<u8>),
}

impl Own {
    fn given(&self) -> InputValue<'_> {
        match self {
            Self::Null => InputValue::Null,
            Self::Bool(value) => InputValue::Bool(*value),
            Self::Whole(value) => InputValue::Whole(*value),
            Self::Number(value) => InputValue::Number(*value),
            Self::Text(text) => InputValue::Text(text),
        }
    }
}

fn word(random: &mut Rng, most: usize) -> Vec<u8> {
    const LETTERS: [char; 12] = [
        'a', 'B', '0', ' ', '"', '\\', '\n', '\u{1}', ',', 'я', '😀', '\u{7f}',
    ];
    let letters = (0..random.usize(..=most)).map(|_| LETTERS[random.usize(..LETTERS.len())]);
    letters.collect::<String>().into_bytes()
}

fn value(random: &mut Rng, column: &Column) -> Own {
    if column.is_nullable && random.u8(..4) == 0 {
        return Own::Null;
    }
    match &column.kind {
        Type::Bool => Own::Bool(random.bool()),
        Type::Unsigned(bits) => Own::Whole((random.u64(..) >> (64 - bits)).into()),
        Type::Signed(bits) => Own::Whole((random.i64(..) >> (64 - bits)).into()),
        Type::F32 => Own::Number(f64::from((random.f32() - 0.5) * 1e30)),
        Type::F64 => {
            let exponent = random.i32(-300..300);
            Own::Number((random.f64() - 0.5) * 10_f64.powi(exponent))
        }
        Type::String(most) => Own::Text(word(random, (*most).min(12))),
        Type::Bytes(most) => {
            let count = random.usize(..=(*most).min(12));
            Own::Text((0..count).map(|_| random.u8(..)).collect())
        }
        Type::Enum(words) => {
            let word = &words[random.usize(..words.len())];
            Own::Text(word.as_bytes().to_vec())
        }
    }
}

const TYPES: [&str; 14] = [
    "bool",
    "u8",
    "u16",
    "u32",
    "u64",
    "i8",
    "i16",
    "i32",
    "i64",
    "f32",
    "f64",
    "string",
    "bytes(9)",
    "enum(m,f,x y)",
];
const KEYS: [&str; 8] = [
    "u8",
    "i16",
    "u32",
    "i32",
    "u64",
    "i64",
    "string(12)",
    "bytes",
];

/// Returns an empty table with a random schema.
fn any_table(random: &mut Rng) -> Arc<Table> {
    let key = format!("k:{}", KEYS[random.usize(..KEYS.len())]);
    let names: Vec<String> = (0..random.usize(..7))
        .map(|place| format!("c{place}"))
        .collect();
    let kinds: Vec<String> = names
        .iter()
        .map(|_| {
            let mark = if random.bool() { "?" } else { "" };
            format!("{}{mark}", TYPES[random.usize(..TYPES.len())])
        })
        .collect();
    let pairs: Vec<(&str, &str)> = names
        .iter()
        .zip(&kinds)
        .map(|(name, kind)| (&**name, &**kind))
        .collect();
    table(&key, &pairs, |draft| {
        for (place, name) in names.iter().enumerate().take(3) {
            let columns = vec![name.clone(), "k".to_owned()];
            let is_unique = place == 1;
            draft
                .indexes
                .push((format!("by_{place}"), columns, is_unique));
        }
        draft.has_ttl = random.bool();
    })
}

fn put_some(table: &Table, random: &mut Rng, count: usize) {
    for _ in 0..count {
        let columns = table.schema().visible();
        let row: Vec<Own> = columns.iter().map(|column| value(random, column)).collect();
        let cells = columns.iter().zip(&row).map(|(column, own)| {
            let cell = column.cell(own.given());
            cell.unwrap_or_else(|error| panic!("{error}"))
        });
        let cells: Vec<Cell<'_>> = cells.collect();
        let ttl_ms = (table.schema().has_ttl && random.bool()).then(|| random.u64(1..1000));
        let put = table.put(PutMode::Upsert, &cells, ttl_ms, CLOCKS.mono_ms);
        put.expect("room");
        if random.u8(..8) == 0 {
            table.delete(cells[0], CLOCKS.mono_ms).expect("not loading");
        }
    }
}

/// Returns the rows as JSON with their remaining lifetimes.
fn dump_with_ttl(table: &Table, now_ms: u64) -> Vec<(Vec<u8>, Option<u64>)> {
    let options = ScanOptions::default();
    let mut scan = table.scan(None, &[], &options).expect("a scan");
    let mut rows = Vec::new();
    let mut look = |row: Row<'_>| {
        let mut out = Vec::new();
        row.write_json(&mut out);
        rows.push((out, row.ttl_ms(now_ms)));
    };
    while table
        .next(&mut scan, 100, now_ms, &mut look)
        .expect("a scan")
    {}
    rows
}

/// Returns an empty table with the schema of `table`.
fn twin(table: &Table) -> Table {
    Table::new("twin", table.schema().clone())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_snapshot_is_restored(seed in any::<u64>(), count in 0_usize..3000) {
        let mut random = Rng::with_seed(seed);
        let table = any_table(&mut random);
        put_some(&table, &mut random, count);
        let mut bytes = Vec::new();
        let saved = table.save_to(&mut bytes, "f", CLOCKS).expect("saved");
        prop_assert_eq!(saved as usize, table.count(CLOCKS.mono_ms));
        let other = twin(&table);
        put_some(&other, &mut random, 10);
        // The table is restored some time later, by another process whose monotonic clock started at another time.
        let later = random.u64(..1500);
        let clocks = Now { mono_ms: 77, wall_ms: CLOCKS.wall_ms + later };
        other.restore_from(&bytes[..], "f", clocks).expect("whole");
        other.check();
        let expected = dump_with_ttl(&table, CLOCKS.mono_ms + later);
        prop_assert_eq!(dump_with_ttl(&other, clocks.mono_ms), expected);
    }

    #[test]
    fn texts_of_rows_are_loaded_again(seed in any::<u64>(), count in 0_usize..1500) {
        let mut random = Rng::with_seed(seed);
        let table = any_table(&mut random);
        put_some(&table, &mut random, count);
        let rows = dump(&table);
        let spaces = [",", " ,\n", "\t, "][random.usize(..3)];
        let list = format!("[{}]", rows.join(spaces));
        let json = match random.bool() {
            true => format!("{{\"x\":[[]],\"rows\" : {list}}}"),
            false => list,
        };
        for (format, text) in [(LoadFormat::Json, &json), (LoadFormat::Ndjson, &rows.join("\n"))] {
            let mut options = LoadOptions::new(format);
            options.list = Some("rows".to_owned());
            let other = twin(&table);
            // The text is read in small pieces, as from a pipe.
            let reader = Trickle(text.as_bytes(), Rng::with_seed(seed));
            let loaded = other.load_from(reader, "f", &options, CLOCKS);
            prop_assert_eq!(loaded, Ok(rows.len() as u64));
            other.check();
            prop_assert_eq!(&dump(&other), &rows);
        }
    }

    #[test]
    fn csv_of_rows_is_loaded_again(seed in any::<u64>(), count in 0_usize..1500) {
        let mut random = Rng::with_seed(seed);
        let table = any_table(&mut random);
        put_some(&table, &mut random, count);
        let mut out = ::csv::Writer::from_writer(Vec::new());
        let columns = table.schema().visible();
        out.write_record(columns.iter().map(|column| column.name.as_bytes())).expect("written");
        let options = ScanOptions::default();
        let mut scan = table.scan(None, &[], &options).expect("a scan");
        let mut has_empty = false;
        while table.next(&mut scan, 100, CLOCKS.mono_ms, |row| {
            let fields = columns.iter().enumerate().map(|(place, column)| {
                let mut text = Vec::new();
                let cell = row.get(place);
                // In CSV an empty string in a nullable column becomes a missing value.
                has_empty |= column.is_nullable && cell == Cell::Text(b"");
                json::value(&mut text, &column.kind, cell, false);
                match (cell, &column.kind) {
                    (Cell::Null, _) => Vec::new(),
                    (Cell::Text(text), Type::String(_)) => text.to_vec(),
                    _ => text.into_iter().filter(|byte| *byte != b'"').collect(),
                }
            });
            let fields: Vec<Vec<u8>> = fields.collect();
            out.write_record(&fields).expect("written");
        }).expect("not loading") {}
        let text = out.into_inner().expect("written");
        let other = twin(&table);
        let reader = Trickle(&text, Rng::with_seed(seed));
        let loaded = other.load_from(reader, "f", &LoadOptions::new(LoadFormat::Csv), CLOCKS);
        prop_assert_eq!(loaded, Ok(table.count(CLOCKS.mono_ms) as u64));
        other.check();
        if !has_empty {
            prop_assert_eq!(dump(&other), dump(&table));
        }
    }
}

/// A reader that returns a few bytes at a time.
struct Trickle<'a>(&'a [u8], Rng);

impl std::io::Read for Trickle<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let most = into.len().min(self.0.len());
        let count = if most > 1 {
            self.1.usize(1..=most)
        } else {
            most
        };
        into[..count].copy_from_slice(&self.0[..count]);
        self.0 = &self.0[count..];
        Ok(count)
    }
}

/// Returns a table with several blocks, its snapshot, and the offsets of the blocks and of the footer.
fn some_blocks() -> (Arc<Table>, Vec<u8>, Vec<usize>) {
    let table = table("id:u32", &[("word", "string?"), ("n", "i16")], |draft| {
        draft.indexes = vec![("by_n".to_owned(), vec!["n".to_owned()], false)];
    });
    for id in 0..3_u64 {
        // Two strings of this length fill a leaf of the table.
        let text = vec![b'a' + id as u8; 33_000];
        let row = [Cell::Bits(id), Cell::Bits(id), Cell::Text(&text)];
        table.put(PutMode::Insert, &row, None, 0).expect("room");
    }
    let mut bytes = Vec::new();
    table.save_to(&mut bytes, "f", CLOCKS).expect("saved");
    let number = |at: usize| {
        let bytes: [u8; 4] = bytes[at..at + 4].try_into().expect("four");
        u32::from_le_bytes(bytes) as usize
    };
    let mut starts = vec![16 + number(12) + 4];
    while let Some(&at) = starts.last()
        && number(at) != u32::MAX as usize
    {
        starts.push(at + 8 + number(at) + 4);
    }
    assert!(starts.len() >= 3, "{starts:?}");
    (table, bytes, starts)
}

#[test]
fn damage_is_refused_and_nothing_changes() {
    let (table, bytes, starts) = some_blocks();
    let other = twin(&table);
    let row = [Cell::Bits(9), Cell::Bits(9), Cell::Null];
    other.put(PutMode::Insert, &row, None, 0).expect("room");
    let before = dump(&other);
    let changes = other.watch(10);
    let refuse = |bytes: &[u8], what: &str, from: usize, to: usize| {
        let error = other.restore_from(bytes, "f", CLOCKS).expect_err(what);
        match error {
            JobError::Damaged { at, .. } => {
                assert!((from..=to).contains(&(at as usize)), "{what}: {error}");
            }
            _ => panic!("{what}: {error}"),
        }
        assert_eq!(dump(&other), before, "{what}");
    };
    // Each byte is flipped, except most bytes of the long strings, which are all alike.
    let end = bytes.len();
    let is_near = |at: usize| starts.iter().any(|start| at.abs_diff(*start) < 80);
    let places = (0..end).filter(|at| *at < 120 || is_near(*at) || at % 997 == 0 || at + 40 > end);
    let mut random = Rng::with_seed(3);
    for at in places {
        let mut broken = bytes.clone();
        broken[at] ^= 1 << random.u8(..8);
        // The error refers to the chunk that contains the flipped byte, or to the end of the file if a length became
        // greater.
        let from = starts.iter().rev().find(|start| **start <= at);
        refuse(
            &broken,
            &format!("byte {at} flipped"),
            *from.unwrap_or(&0),
            end,
        );
        refuse(
            &bytes[..at],
            &format!("cut at {at}"),
            at.saturating_sub(8).min(at),
            at,
        );
    }
    let [first, second, third] = [starts[0], starts[1], starts[2]];
    let swapped = [
        &bytes[..first],
        &bytes[second..third],
        &bytes[first..second],
        &bytes[third..],
    ];
    refuse(&swapped.concat(), "blocks swapped", first, end);
    let missing = [&bytes[..first], &bytes[second..]];
    refuse(&missing.concat(), "a block missing", first, end);
    let doubled = [&bytes[..second], &bytes[first..]];
    refuse(&doubled.concat(), "a block twice", second, end);
    refuse(&[&bytes[..], b"x"].concat(), "more behind it", end, end);
    refuse(b"{}", "no table", 0, 2);
    let kinds = std::iter::from_fn(|| changes.next(None)).count();
    assert_eq!(kinds, 0, "no change is reported");
    assert_eq!(other.restore_from(&bytes[..], "f", CLOCKS), Ok(3));
    other.check();
}

#[test]
fn other_columns_are_named() {
    let (table, bytes, _) = some_blocks();
    drop(table);
    let with = |key: &str, columns: &[(&str, &str)], has_ttl: bool| {
        let table = self::table(key, columns, |draft| draft.has_ttl = has_ttl);
        let error = table.restore_from(&bytes[..], "f", CLOCKS);
        error.expect_err("other columns").to_string()
    };
    let [word, n] = [("word", "string?"), ("n", "i16")];
    for (error, expected) in [
        (
            with("id:u32", &[word, ("n", "i32")], false),
            "the column n is i16 in the file, but i32 in the table",
        ),
        (
            with("id:u32", &[word], false),
            "the file has a column n, which the table lacks",
        ),
        (
            with("id:u32", &[word, n, ("m", "u8")], false),
            "the file has no column m",
        ),
        (
            with("id:u32", &[word, n], true),
            "rows of the file don't expire, but rows of the table do",
        ),
        (
            with("key:u32", &[word, n], false),
            "the file has no column key",
        ),
        (
            with("n:i16", &[word, ("id", "u32")], false),
            "the key is id in the file, but n in the table",
        ),
    ] {
        assert!(
            error.starts_with("f does not fit the table: ") && error.contains(expected),
            "{error}"
        );
    }
}

#[test]
fn others_read_and_change_while_it_is_saved() {
    let (table, ..) = some_blocks();
    /// A writer that changes the table while it is being saved.
    struct Meddler<'a>(&'a Table, Vec<u8>);
    impl std::io::Write for Meddler<'_> {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            for id in 0..3 {
                let changes = [(1, Cell::Bits(self.1.len() as u64 & 1)), (2, Cell::Null)];
                self.0
                    .update(Cell::Bits(id), &changes, None, 0)
                    .expect("room");
            }
            self.1.extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let before = dump(&table);
    let mut meddler = Meddler(&table, Vec::new());
    assert_eq!(table.save_to(&mut meddler, "f", CLOCKS), Ok(3));
    let bytes = meddler.1;
    assert_ne!(dump(&table), before);
    assert_eq!(table.restore_from(&bytes[..], "f", CLOCKS), Ok(3));
    assert_eq!(dump(&table), before);
}

#[test]
fn a_table_is_read_and_not_changed_while_another_takes_its_place() {
    let (table, bytes, _) = some_blocks();
    table.delete(Cell::Bits(0), 0).expect("there");
    /// A reader that examines the table while it is being replaced.
    struct Guest<'a>(&'a Table, &'a [u8]);
    impl std::io::Read for Guest<'_> {
        fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
            assert_eq!(self.0.count(0), 2);
            let mut scan = self.0.scan(Some(0), &[], &ScanOptions::default());
            let scan = scan.as_mut().expect("a scan");
            let mut seen = 0;
            while self
                .0
                .next(scan, 10, 0, |_| seen += 1)
                .expect("its indexes are there")
            {}
            assert_eq!(seen, 2);
            assert_eq!(self.0.delete(Cell::Bits(1), 0), Err(TableError::Loading));
            let again = self.0.restore_from(&b""[..], "f", CLOCKS);
            assert_eq!(again, Err(JobError::Table(TableError::Loading)));
            self.1.read(into)
        }
    }
    assert_eq!(
        table.restore_from(Guest(&table, &bytes), "f", CLOCKS),
        Ok(3)
    );
    assert_eq!(table.delete(Cell::Bits(1), 0), Ok(true));
}

/// The environment variable with the path of the snapshot that a child process saves until it is killed.
const SAVER: &str = "VECHE_TEST_SAVER";

fn generations() -> Arc<Table> {
    table(
        "id:u32",
        &[("generation", "u32"), ("word", "string")],
        |_| {},
    )
}

/// Returns the number of the save, which is the second column of every row. Asserts that it is the same in all rows.
fn generation(table: &Table) -> u64 {
    let mut seen = Vec::new();
    let mut scan = table
        .scan(None, &[], &ScanOptions::default())
        .expect("a scan");
    let mut look = |row: Row<'_>| match row.get(1) {
        Cell::Bits(generation) => seen.push(generation),
        other => panic!("{other:?}"),
    };
    while table.next(&mut scan, 100, 0, &mut look).expect("a scan") {}
    assert_eq!(seen.len(), 2000);
    assert!(seen.iter().all(|one| *one == seen[0]), "half of a save");
    seen[0]
}

/// Not a test of its own: `a_kill_while_saving_leaves_the_previous_file` runs this function in a child process and kills
/// that process.
#[test]
fn saves_until_it_is_killed() {
    let Some(path) = std::env::var_os(SAVER).map(PathBuf::from) else {
        return;
    };
    let table = generations();
    let mut last = 0;
    if path.exists() {
        table
            .start_restore(path.clone(), CLOCKS)
            .wait()
            .expect("whole");
        last = generation(&table);
    }
    loop {
        last += 1;
        let text = vec![b'x'; (last % 200) as usize];
        for id in 0..2000 {
            let row = [Cell::Bits(id), Cell::Bits(last), Cell::Text(&text)];
            table.put(PutMode::Upsert, &row, None, 0).expect("room");
        }
        table
            .start_save(path.clone(), CLOCKS)
            .wait()
            .expect("saved");
    }
}

fn start_saver(path: &Path) -> Child {
    let own = std::env::current_exe().expect("a test");
    let mut command = Command::new(own);
    command.args(["--exact", "table::snapshot_tests::saves_until_it_is_killed"]);
    command
        .env(SAVER, path)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.spawn().expect("a process")
}

#[test]
fn a_kill_while_saving_leaves_the_previous_file() {
    let folder = Folder::new();
    let path = folder.0.join("t.table");
    let mut random = Rng::with_seed(11);
    let table = generations();
    let mut last = 0;
    let mut leftovers = 0;
    let unfinished = || {
        let entries = fs::read_dir(&folder.0).expect("a folder");
        let paths = entries.map(|entry| entry.expect("an entry").path());
        paths.filter(|found| *found != path).collect::<Vec<_>>()
    };
    for round in 0..100 {
        let mut saver = start_saver(&path);
        let stamp = || fs::metadata(&path).and_then(|about| about.modified()).ok();
        let before = stamp();
        // The process is killed after its first save: in even rounds at a random moment, in odd rounds once it has begun to
        // write the next file.
        for _ in 0..4000 {
            if stamp() != before {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        if round % 2 == 0 {
            std::thread::sleep(Duration::from_micros(random.u64(..20_000)));
        } else {
            for _ in 0..100_000 {
                if !unfinished().is_empty() {
                    break;
                }
                std::thread::yield_now();
            }
        }
        saver.kill().expect("killed");
        saver.wait().expect("gone");
        for left in unfinished() {
            leftovers += 1;
            fs::remove_file(left).expect("removed");
        }
        let restored = table.start_restore(path.clone(), CLOCKS).wait();
        assert_eq!(restored, Ok(2000), "round {round}");
        let now = generation(&table);
        assert!(now > last, "round {round}: {now} after {last}");
        last = now;
    }
    assert!(leftovers > 0, "none was killed while it wrote");
}
