//! Loads arbitrary bytes as a file of a table: a snapshot, JSON, lines of JSON or CSV. Loading must not panic. Rejected
//! input must leave the table unchanged, and accepted input must survive a save and a load.
//!
//! The first byte of the input selects the format; the rest is the file.

use std::sync::Arc;

use veche_store::Store;
use veche_store::table::{LoadFormat, LoadOptions, Row, ScanOptions, SchemaDraft, Table};
use veche_types::Now;

fn table(store: &Store, name: &str) -> Arc<Table> {
    let columns = [
        ("b", "bool?"),
        ("e", "enum(m,f)?"),
        ("f", "f64?"),
        ("n", "i16?"),
        ("s", "string(9)?"),
        ("y", "bytes?"),
    ];
    let draft = SchemaDraft {
        key: "k:u32".to_owned(),
        columns: columns
            .iter()
            .map(|(name, kind)| ((*name).to_owned(), (*kind).to_owned()))
            .collect(),
        indexes: vec![("by_s".to_owned(), vec!["s".to_owned()], true)],
        ..SchemaDraft::default()
    };
    let schema = draft.check().expect("a schema");
    store.table(name, Some(schema)).expect("a table")
}

fn rows(table: &Table) -> Vec<Vec<u8>> {
    let mut scan = table
        .scan(None, &[], &ScanOptions::default())
        .expect("a scan");
    let mut rows = Vec::new();
    let mut look = |row: Row<'_>| {
        let mut out = Vec::new();
        row.write_json(&mut out);
        rows.push(out);
    };
    while table.next(&mut scan, 100, 0, &mut look).expect("a scan") {}
    rows
}

/// Runs one input; panics if it has found a fault.
pub fn run(input: &[u8]) {
    let Some((choice, file)) = input.split_first() else {
        return;
    };
    let (store, now) = (Store::default(), Now::default());
    let table_a = table(&store, "a");
    let format = match choice & 3 {
        0 => None,
        1 => Some(LoadFormat::Json),
        2 => Some(LoadFormat::Ndjson),
        _ => Some(LoadFormat::Csv),
    };
    let loaded = match format {
        None => table_a.restore_from(file, "f", now),
        Some(format) => table_a.load_from(file, "f", &LoadOptions::new(format), now),
    };
    let there = rows(&table_a);
    match loaded {
        Ok(count) => assert_eq!(count, there.len() as u64),
        Err(_) => assert!(there.is_empty(), "half of it is there"),
    }
    let mut saved = Vec::new();
    table_a.save_to(&mut saved, "f", now).expect("a vector");
    let table_b = table(&store, "b");
    let restored = table_b.restore_from(&saved[..], "f", now);
    assert_eq!(restored, Ok(there.len() as u64));
    assert_eq!(rows(&table_b), there);
    let text = there.join(&b'\n');
    let table_c = table(&store, "c");
    let options = LoadOptions::new(LoadFormat::Ndjson);
    let again = table_c.load_from(&text[..], "f", &options, now);
    assert_eq!(again, Ok(there.len() as u64));
    assert_eq!(rows(&table_c), there);
}
