//! Tests of tables and files: loading, errors in files, saving and restoring.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use veche_types::Now;

use super::*;

/// A folder removed on drop.
pub(super) struct Folder(pub(super) PathBuf);

impl Folder {
    pub(super) fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("veche-table-{}-{count}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, bytes).expect("a file");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(super) fn table(
    key: &str,
    columns: &[(&str, &str)],
    more: impl FnOnce(&mut SchemaDraft),
) -> Arc<Table> {
    let mut draft = SchemaDraft {
        key: key.to_owned(),
        columns: columns
            .iter()
            .map(|(name, kind)| ((*name).to_owned(), (*kind).to_owned()))
            .collect(),
        ..SchemaDraft::default()
    };
    more(&mut draft);
    Arc::new(Table::new("t", draft.check().expect("a schema")))
}

pub(super) fn visits() -> Arc<Table> {
    let columns = [
        ("location", "u32"),
        ("mark", "u8"),
        ("user", "u32"),
        ("visited_at", "i32"),
    ];
    table("id:u32", &columns, |draft| {
        draft.indexes = vec![
            (
                "by_user".to_owned(),
                vec!["user".to_owned(), "visited_at".to_owned()],
                false,
            ),
            ("by_location".to_owned(), vec!["location".to_owned()], false),
        ];
    })
}

fn named() -> Arc<Table> {
    let columns = [
        ("age", "i8?"),
        ("is_on", "bool"),
        ("photo", "bytes?"),
        ("score", "f64?"),
        ("sex", "enum(m,f)?"),
        ("word", "string"),
    ];
    table("name:string(20)", &columns, |draft| {
        draft.indexes = vec![("by_word".to_owned(), vec!["word".to_owned()], true)];
    })
}

/// Returns all rows as JSON in key order.
pub(super) fn dump(table: &Table) -> Vec<String> {
    let options = ScanOptions::default();
    let mut scan = table.scan(None, &[], &options).expect("a scan");
    let mut rows = Vec::new();
    let mut look = |row: Row<'_>| {
        let mut out = Vec::new();
        row.write_json(&mut out);
        rows.push(String::from_utf8(out).expect("UTF-8"));
    };
    while table.next(&mut scan, 100, 0, &mut look).expect("a scan") {}
    rows
}

const CLOCKS: Now = Now {
    mono_ms: 1000,
    wall_ms: 1_700_000_000_000,
};

fn load(table: &Table, format: LoadFormat, text: &str) -> Result<u64, JobError> {
    let options = LoadOptions::new(format);
    let outcome = table.load_from(text.as_bytes(), "f", &options, CLOCKS);
    table.check();
    outcome
}

fn kinds(changes: &Watcher) -> Vec<String> {
    let mut kinds = Vec::new();
    while let Some(item) = changes.next(None) {
        let crate::Value::Bytes(text) = item.value else {
            panic!("{:?}", item.value)
        };
        let text = String::from_utf8_lossy(&text).into_owned();
        let kind = text.split('"').nth(3).expect("a kind");
        kinds.push(kind.to_owned());
    }
    kinds
}

#[test]
fn rows_of_all_formats_are_the_same() {
    let expected = [
        r#"{"name":"a","age":-5,"is_on":true,"photo":"Zm9v","score":0.5,"sex":"f","word":"é\n\"\\😀"}"#,
        r#"{"name":"b","age":null,"is_on":false,"photo":null,"score":null,"sex":null,"word":""}"#,
    ];
    let json = "\u{feff} [ {\"word\" : \"\\u00e9\\n\\\"\\\\\\ud83d\\ude00\",\"name\":\"a\",\"is_on\":true,\
                \"age\":-5.0,\"photo\":\"Zm9v\",\"score\":5e-1,\"sex\":\"f\"},\n{\"n\\u0061me\":\"b\",\
                \"is_on\":false,\"word\":\"\",\"score\":null}\t]\n";
    let wrapped = format!(
        "{{\"about\":{{\"x\":[1,\"]\",{{}}]}},\"n\":1.5e3,\"rows\":{} , \"end\":null}}",
        json.trim_start_matches('\u{feff}')
    );
    let lines = format!("{}\n\n \r\n{}", expected[0], expected[1]);
    let csv =
        "name,age,is_on,photo,score,sex,word\r\na,-5,true,Zm9v,0.5,f,\"é\n\"\"\\😀\"\r\nb,,0,,,,\n";
    for (format, text) in [
        (LoadFormat::Json, json),
        (LoadFormat::Json, &wrapped),
        (LoadFormat::Ndjson, &lines),
        (LoadFormat::Csv, csv),
    ] {
        let table = named();
        let changes = table.watch(10);
        assert_eq!(load(&table, format, text), Ok(2), "{format:?}");
        assert_eq!(dump(&table), expected, "{format:?}");
        assert_eq!(kinds(&changes), ["load"]);
    }
}

#[test]
fn mistakes_are_named_with_their_place() {
    let json = LoadFormat::Json;
    let good = r#"{"id":1,"location":1,"mark":1,"user":1,"visited_at":1}"#;
    for (format, text, expected) in [
        (json, "", "at byte 0: unexpected end of file"),
        (json, "7", "at byte 0: expected a list or an object"),
        (json, "[", "at byte 1: unexpected end of file"),
        (
            json,
            "[{\"id\":1",
            "row 1, at byte 1: unexpected end of file",
        ),
        (
            json,
            "[{}",
            "row 1, at byte 1: column id: nothing: a value is missing",
        ),
        (
            json,
            &format!("[{good}] x"),
            "unexpected data after the end of the JSON value",
        ),
        (
            json,
            &format!("[{good},]"),
            "row 2, at byte 56: expected an object",
        ),
        (json, &format!("[{good} {good}]"), "expected \",\" or \"]\""),
        (
            json,
            &format!("[{good},{good}]"),
            "row 2, at byte 56: column id: a row with the key 1 already exists",
        ),
        (
            json,
            r#"[{"idd":1}]"#,
            "row 1, at byte 2: there is no column \"idd\"",
        ),
        (
            json,
            r#"[{"id":1,"id":2}]"#,
            "row 1, at byte 9: id occurs twice",
        ),
        (
            json,
            r#"[{"id":[1]}]"#,
            "column id: a list: expected a whole number (u32)",
        ),
        (
            json,
            r#"[{"mark":256}]"#,
            "column mark: 256: out of range: must be from 0 to 255",
        ),
        (json, r#"[{"mark":01}]"#, "leading zero"),
        (json, r#"[{"mark":1.}]"#, "expected a digit"),
        (json, r#"[{"mark":nul}]"#, "expected a value"),
        (
            json,
            r#"{"a":1}"#,
            "none of the object's fields is a list; one must contain the rows",
        ),
        (
            json,
            r#"{"a":[],"b":[]}"#,
            "there are two lists, \"a\" and \"b\"",
        ),
        (json, r#"{"a":{"b":1}]"#, "expected \",\" or \"}\""),
        (
            LoadFormat::Ndjson,
            &format!("{good}\n\n{{\"id\":2}}"),
            "line 3: column location",
        ),
        (
            LoadFormat::Ndjson,
            &format!("{good} 5"),
            "line 1: unexpected data after",
        ),
        (
            LoadFormat::Ndjson,
            "{\"id\":\n1}",
            "line 1: unexpected end of file",
        ),
        (
            LoadFormat::Csv,
            "",
            "line 1: the file is empty: the first line must name the columns",
        ),
        (LoadFormat::Csv, "id,x", "line 1: there is no column \"x\""),
        (LoadFormat::Csv, "id,id", "line 1: id occurs twice"),
        (
            LoadFormat::Csv,
            "id,location,mark,user,visited_at\n1,2,3,4,5\n3",
            "line 3: the number of fields is 1, but the first line has 5",
        ),
        (
            LoadFormat::Csv,
            "id,location,mark,user,visited_at\n1,2,3,4,5\n2,2,x,4,5",
            "line 3: column mark: \"x\"",
        ),
        (
            LoadFormat::Csv,
            "id,location,mark,user,visited_at\n1,2,,4,5",
            "line 2: column mark: nothing",
        ),
    ] {
        let table = visits();
        let changes = table.watch(10);
        let error = load(&table, format, text).expect_err(text).to_string();
        assert!(
            error.starts_with("f: ") && error.contains(expected),
            "{text}: {error}"
        );
        assert_eq!(table.count(0), 0, "all or nothing");
        assert_eq!(kinds(&changes), [""; 0]);
    }
}

#[test]
fn unique_indexes_hold_after_loading() {
    let table = named();
    let lines = "{\"name\":\"a\",\"is_on\":true,\"word\":\"x\"}\n{\"name\":\"b\",\"is_on\":true,\"word\":\"x\"}";
    let error = load(&table, LoadFormat::Ndjson, lines).expect_err("twice");
    assert_eq!(
        error.to_string(),
        "index by_word is unique and another row has word \"x\""
    );
    assert_eq!(table.count(0), 0);
}

#[test]
fn a_conflict_ends_it_or_is_replaced_or_skipped() {
    let text = |mark: u8| {
        let rows = (0..5).map(|id| {
            let id = id % 4;
            format!(r#"{{"id":{id},"location":1,"mark":{mark},"user":{id},"visited_at":1}}"#)
        });
        rows.collect::<Vec<_>>().join("\n")
    };
    for (conflict, added, expected) in [
        (Conflict::Replace, [5, 5], "\"mark\":2"),
        (Conflict::Skip, [4, 0], "\"mark\":1"),
    ] {
        let table = visits();
        let mut options = LoadOptions::new(LoadFormat::Ndjson);
        options.conflict = conflict;
        for (mark, added) in [1, 2].into_iter().zip(added) {
            let text = text(mark);
            let put = table.load_from(text.as_bytes(), "f", &options, CLOCKS);
            assert_eq!(put, Ok(added));
            table.check();
        }
        assert!(dump(&table).iter().all(|row| row.contains(expected)));
    }
    // If a load into a table that already has rows fails, the rows that were loaded before the error stay.
    let table = visits();
    let first = "{\"id\":7,\"location\":1,\"mark\":1,\"user\":1,\"visited_at\":1}";
    load(&table, LoadFormat::Ndjson, first).expect("loaded");
    let changes = table.watch(10);
    load(&table, LoadFormat::Ndjson, &text(1)).expect_err("0 is there twice");
    assert_eq!(table.count(0), 5);
    assert_eq!(kinds(&changes), ["insert"; 4]);
}

#[test]
fn a_full_table_is_an_error_and_empty_again() {
    let table = table("id:u32", &[("word", "string")], |draft| {
        draft.bytes_max = Some(TABLE_BYTES_MIN);
        draft.evict = Some("key".to_owned());
    });
    let word = "x".repeat(100);
    let lines = |count: u32| {
        let lines = (0..count).map(|id| format!("{{\"id\":{id},\"word\":\"{word}\"}}\n"));
        lines.collect::<String>()
    };
    let error = load(&table, LoadFormat::Ndjson, &lines(2000)).expect_err("full");
    assert!(
        matches!(error, JobError::Table(TableError::Full { .. })),
        "{error}"
    );
    assert_eq!(table.count(0), 0);
    assert_eq!(load(&table, LoadFormat::Ndjson, &lines(100)), Ok(100));
    // Unlike a load, ordinary puts evict rows.
    let more = lines(2000)
        .lines()
        .skip(1000)
        .collect::<Vec<_>>()
        .join("\n");
    assert_eq!(load(&table, LoadFormat::Ndjson, &more), Ok(1000));
    assert!(table.info().bytes <= TABLE_BYTES_MIN && table.info().evicted > 500);
}

fn ids(range: std::ops::Range<u32>) -> String {
    let rows = range.map(|id| {
        let user = id.wrapping_mul(2_654_435_761) % 1000;
        format!(
            r#"{{"id":{id},"location":{},"mark":{},"user":{user},"visited_at":-{id}}}"#,
            user % 7,
            id % 6
        )
    });
    rows.collect::<Vec<_>>().join(",")
}

#[test]
fn folders_and_archives_are_read_side_by_side() {
    use std::io::Write as _;
    let folder = Folder::new();
    let archive = fs::File::create(folder.0.join("data.zip")).expect("a file");
    let mut archive = zip::ZipWriter::new(archive);
    let deflated = zip::write::SimpleFileOptions::default();
    for part in 0..12_u32 {
        let text = format!("{{\"visits\":[{}]}}", ids(part * 3000..(part + 1) * 3000));
        if part == 5 {
            let out = fs::File::create(folder.0.join("visits_5.json.gz")).expect("a file");
            let mut out = flate2::write::GzEncoder::new(out, flate2::Compression::fast());
            out.write_all(text.as_bytes()).expect("written");
            out.finish().expect("written");
        } else {
            folder.write(&format!("visits_{part}.json"), &text);
        }
        archive
            .start_file(format!("data/visits_{part}.json"), deflated)
            .expect("a member");
        archive.write_all(text.as_bytes()).expect("written");
    }
    archive
        .start_file("data/users_1.json", deflated)
        .expect("a member");
    archive.write_all(b"{\"users\":[{}]}").expect("written");
    archive.finish().expect("written");
    folder.write("users_1.json", "{\"users\":[{}]}");
    let mut options = LoadOptions::new(LoadFormat::Json);
    options.files = Some("visits_*".to_owned());
    let mut dumps = Vec::new();
    for path in [folder.0.clone(), folder.0.join("data.zip")] {
        let table = visits();
        let job = table.start_load(path, options.clone(), CLOCKS);
        assert_eq!(job.wait(), Ok(36_000));
        let progress = job.progress();
        assert_eq!(
            (progress.rows, progress.bytes),
            (36_000, progress.bytes_total)
        );
        table.check();
        dumps.push(dump(&table));
    }
    assert_eq!(dumps[0].len(), 36_000);
    assert_eq!(dumps[0], dumps[1]);
    let table = visits();
    let load = |path: PathBuf, files: &str| {
        let mut options = options.clone();
        options.files = Some(files.to_owned());
        let job = table.start_load(path, options, CLOCKS);
        job.wait().expect_err("a mistake").to_string()
    };
    assert!(load(folder.0.clone(), "x*").contains("the folder or archive has no file \"x*\""));
    assert!(load(folder.0.join("nothing"), "*").contains("nothing: "));
    let words = load(folder.0.join("data.zip"), "*");
    assert!(
        words.contains("data.zip: data/users_1.json: row 1, at byte 10: column id"),
        "{words}"
    );
    assert_eq!(table.count(0), 0);
}

#[test]
fn keys_without_numbers_and_rows_that_expire_are_loaded() {
    let table = table("k:u64", &[("n", "u16")], |draft| {
        draft.has_ttl = true;
        draft.ttl_ms = Some(500);
        draft.indexes = vec![("by_n".to_owned(), vec!["n".to_owned()], false)];
    });
    let lines: String = (0..5000_u64)
        .map(|k| format!("{{\"k\":{},\"n\":{}}}\n", (k * 7919 % 5000) << 40, k % 10))
        .collect();
    assert_eq!(load(&table, LoadFormat::Ndjson, &lines), Ok(5000));
    assert_eq!(table.count(1499), 5000);
    assert_eq!(table.count(1500), 0);
    // The table is saved halfway through the TTL, and restored with another monotonic clock shortly before the TTL ends.
    let mut bytes = Vec::new();
    let at = |mono_ms, wall_ms| Now { mono_ms, wall_ms };
    assert_eq!(table.save_to(&mut bytes, "f", at(1250, 10_000)), Ok(5000));
    assert_eq!(
        table.restore_from(&bytes[..], "f", at(77, 10_240)),
        Ok(5000)
    );
    table.check();
    assert_eq!((table.count(86), table.count(87)), (5000, 0));
    assert_eq!(table.restore_from(&bytes[..], "f", at(77, 10_250)), Ok(0));
}

#[test]
fn a_table_is_saved_and_restored() {
    let folder = Folder::new();
    let table = visits();
    let path = folder.0.join("visits.table");
    assert_eq!(table.start_save(path.clone(), CLOCKS).wait(), Ok(0));
    load(&table, LoadFormat::Json, &format!("[{}]", ids(5..30_000))).expect("loaded");
    let before = dump(&table);
    let job = table.start_save(path.clone(), CLOCKS);
    assert_eq!(job.wait(), Ok(29_995));
    assert_eq!(fs::read_dir(&folder.0).expect("a folder").count(), 1);
    table.clear().expect("not loading");
    let changes = table.watch(10);
    let job = table.start_restore(path.clone(), CLOCKS);
    assert_eq!(job.wait(), Ok(29_995));
    assert_eq!(job.progress().rows, 29_995);
    assert_eq!(kinds(&changes), ["load"]);
    table.check();
    assert_eq!(dump(&table), before);
    // The restored rows can be changed.
    assert_eq!(table.delete(Cell::Bits(5), 0), Ok(true));
    let other = named();
    let error = other
        .start_restore(path, CLOCKS)
        .wait()
        .expect_err("others");
    assert!(
        error.to_string().ends_with("the file has no column name"),
        "{error}"
    );
    let error = other.start_save(folder.0.join("no/such"), CLOCKS).wait();
    assert!(matches!(error, Err(JobError::File { .. })), "{error:?}");
}

#[test]
fn jobs_wait_for_their_turn_and_are_cancelled() {
    let folder = Folder::new();
    // A job that reads a pipe blocks until the pipe has a writer.
    let pipes: Vec<PathBuf> = (0..6)
        .map(|place| folder.0.join(format!("{place}")))
        .collect();
    for pipe in &pipes {
        let made = std::process::Command::new("mkfifo").arg(pipe).status();
        assert!(made.expect("mkfifo").success());
    }
    let tables: Vec<_> = pipes.iter().map(|_| visits()).collect();
    let start = |(table, pipe): (&Arc<Table>, &PathBuf)| {
        table.start_load(pipe.clone(), LoadOptions::new(LoadFormat::Ndjson), CLOCKS)
    };
    let jobs: Vec<_> = tables.iter().zip(&pipes).map(start).collect();
    // At most four jobs run; one of the waiting jobs is cancelled before it starts.
    jobs[5].cancel();
    assert_eq!(jobs[5].outcome(), Some(Err(JobError::Cancelled)));
    for (place, pipe) in pipes.iter().enumerate().take(5) {
        // Opening the pipe for writing waits until its job opens it for reading.
        let mut out = fs::File::options().write(true).open(pipe).expect("a pipe");
        assert_eq!(jobs[place].outcome(), None);
        jobs[place].cancel();
        use std::io::Write as _;
        let _ = out.write_all(b"\n");
        drop(out);
        assert_eq!(jobs[place].wait(), Err(JobError::Cancelled));
        assert_eq!(
            tables[place].put(PutMode::Insert, &[Cell::Bits(1); 5], None, 0),
            Ok(true)
        );
    }
}

#[test]
fn a_snapshot_is_for_its_owner_alone_and_its_draft_is_no_link() {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    let folder = Folder::new();
    let path = folder.write("t.snapshot", "of an earlier version");
    let draft = folder.write(".t.snapshot.saving", "left by one that was killed");
    for path in [&path, &draft] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o644)).expect("set");
    }
    let save = || visits().start_save(path.clone(), CLOCKS);
    save().wait().expect("saved");
    let mode = fs::metadata(&path).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let precious = folder.write("precious", "precious");
    symlink(&precious, &draft).expect("a link");
    let error = save().wait().expect_err("a link").to_string();
    assert!(error.contains("symbolic link"), "{error}");
    assert_eq!(fs::read_to_string(&precious).expect("text"), "precious");
}
