//! Tests of dumps without a server: output, end and limits.

use std::os::unix::net::UnixStream;

use veche_store::table::{Cell, PutMode, SchemaDraft};

use super::*;

const ROWS: u64 = 20_000;

fn store() -> Arc<Store> {
    let store = Store::default();
    let draft = SchemaDraft {
        key: "id:u32".to_owned(),
        columns: vec![
            ("mark".to_owned(), "u8".to_owned()),
            ("name".to_owned(), "string?".to_owned()),
        ],
        indexes: vec![("by_mark".to_owned(), vec!["mark".to_owned()], false)],
        ..SchemaDraft::default()
    };
    let schema = draft.check().expect("a schema");
    let table = store.table("users", Some(schema)).expect("a table");
    for id in 0..ROWS {
        let name = format!("user, \"{id}\"\n");
        let name = match id {
            0 => Cell::Null,
            _ => Cell::Text(name.as_bytes()),
        };
        let row = [Cell::Bits(id), Cell::Bits(id % 3), name];
        table.put(PutMode::Insert, &row, None, 0).expect("room");
    }
    Arc::new(store)
}

fn wanted(table: &str) -> DumpRequest {
    DumpRequest {
        table: table.to_owned(),
        csv: false,
        index: None,
        limit: None,
    }
}

fn dump(store: &Arc<Store>, wanted: DumpRequest) -> (String, DumpEnd) {
    let (mut ours, theirs) = UnixStream::pair().expect("a pair");
    Dumps::default().begin(store, wanted, theirs.into());
    let mut text = Vec::new();
    let end = receive(&mut ours, &mut text).expect("an end");
    (String::from_utf8(text).expect("text"), end)
}

#[test]
fn all_rows_come_in_the_order_that_was_asked_for() {
    let store = store();
    let (text, end) = dump(&store, wanted("users"));
    assert_eq!((end.rows, end.error), (ROWS, None));
    assert_eq!(text.lines().count() as u64, ROWS);
    for (id, line) in text.lines().enumerate() {
        let row: serde_json::Value = serde_json::from_str(line).expect("JSON");
        assert_eq!((&row["id"], &row["mark"]), (&id.into(), &(id % 3).into()));
    }
    let by_mark = DumpRequest {
        index: Some("by_mark".to_owned()),
        limit: Some(7_000),
        csv: true,
        ..wanted("users")
    };
    let (text, end) = dump(&store, by_mark);
    assert_eq!((end.rows, end.error), (7_000, None));
    let mut records = text.split("\r\n");
    assert_eq!(records.next(), Some("id,mark,name"));
    assert_eq!(records.next(), Some("0,0,"));
    assert_eq!(records.next(), Some("3,0,\"user, \"\"3\"\"\n\""));
    assert_eq!(text.split("\r\n").count(), 7_002);
}

#[test]
fn unknown_names_are_reported_with_the_known_ones() {
    let store = store();
    let (text, end) = dump(&store, wanted("user"));
    assert_eq!((text.as_str(), end.rows), ("", 0));
    let expected = "there is no table \"user\"; existing tables: \"users\"";
    assert_eq!(end.error.as_deref(), Some(expected));
    let (_, end) = dump(&Arc::default(), wanted("user"));
    let expected = "there is no table \"user\"; no tables exist";
    assert_eq!(end.error.as_deref(), Some(expected));
    let of_index = DumpRequest {
        index: Some("by_name".to_owned()),
        ..wanted("users")
    };
    let (_, end) = dump(&store, of_index);
    let expected = "the table \"users\" has no index \"by_name\"; existing indexes: \"by_mark\"";
    assert_eq!(end.error.as_deref(), Some(expected));
    let several = listed("tables", ["a", "b", "c"].into_iter());
    assert_eq!(several, "existing tables: \"a\", \"b\" and \"c\"");
    let many = listed("tables", std::iter::repeat_n("a", NAMES_SHOWN_MAX + 2));
    assert!(many.ends_with("\"a\" and 2 more"), "{many}");
}

#[test]
fn a_closed_reader_ends_the_watch_and_slow_readers_are_limited() {
    let store = store();
    let dumps = Dumps::default();
    // The rows exceed a socket's buffer, so each dump waits for its reader.
    let mut readers: Vec<UnixStream> = (0..DUMPS_MAX)
        .map(|_| {
            let (ours, theirs) = UnixStream::pair().expect("a pair");
            dumps.begin(&store, wanted("users"), theirs.into());
            ours
        })
        .collect();
    let (mut ours, theirs) = UnixStream::pair().expect("a pair");
    dumps.begin(&store, wanted("users"), theirs.into());
    let end = receive(&mut ours, &mut Vec::new()).expect("an end");
    assert!(
        end.error
            .is_some_and(|why| why.starts_with("4 dumps are running"))
    );
    let mut slow = readers.pop().expect("one");
    drop(readers);
    let end = receive(&mut slow, &mut Vec::new()).expect("an end");
    assert_eq!(end.rows, ROWS);
    while dumps.0.load(Ordering::Relaxed) > 0 {
        thread::yield_now();
    }
    let (_, end) = dump(&store, wanted("users"));
    assert_eq!(end.rows, ROWS);
}

#[test]
fn truncated_rows_are_detected() {
    let whole = {
        let mut bytes = Vec::from(3_u32.to_le_bytes());
        bytes.extend(b"abc");
        bytes.extend(ending(&DumpEnd {
            rows: 1,
            error: None,
        }));
        bytes
    };
    let mut out = Vec::new();
    assert_eq!(receive(&mut &*whole, &mut out).expect("an end").rows, 1);
    assert_eq!(out, b"abc");
    for length in 0..whole.len() {
        let cut = receive(&mut &whole[..length], &mut Vec::new());
        assert!(matches!(cut, Err(ReceiveError::Source(_))), "{length}");
    }
}
