//! Reads a table of 10,000 rows by key and by index.

use std::hint::black_box;
use std::sync::Arc;

use veche_store::Store;
use veche_store::table::{InputValue, PutMode, Row, ScanOptions, SchemaDraft, Table};

use crate::Path;

const ROWS: u32 = 10_000;
/// Number of rows with the same value in the indexed column.
const ROWS_EACH: u32 = 100;
const NOW_MS: u64 = 1;

fn table() -> Arc<Table> {
    let column = |name: &str, kind: &str| (name.to_owned(), kind.to_owned());
    let draft = SchemaDraft {
        key: "id:u32".to_owned(),
        columns: vec![column("city", "u16"), column("name", "string(32)")],
        indexes: vec![("by_city".to_owned(), vec!["city".to_owned()], false)],
        ..SchemaDraft::default()
    };
    let schema = draft.check().expect("a schema");
    let store = Store::default();
    let table = store.table("users", Some(schema)).expect("a table");
    for id in 0..ROWS {
        let name = format!("user {id}");
        let given = [
            InputValue::Whole(id.into()),
            InputValue::Whole((id / ROWS_EACH).into()),
            InputValue::Text(name.as_bytes()),
        ];
        let columns = table.schema().visible().iter();
        let row: Vec<_> = columns
            .zip(given)
            .map(|(column, given)| column.cell(given).expect("a value"))
            .collect();
        let put = table.put(PutMode::Insert, &row, None, NOW_MS);
        assert_eq!(put, Ok(true), "a row is new");
    }
    table
}

/// Reads a column of one row by its key.
pub(crate) fn lookup(count: u32) -> Path {
    let table = table();
    Path::new(move || {
        for number in 0..count {
            let id = number.wrapping_mul(7919) % ROWS;
            let key = table.key(InputValue::Whole(id.into())).ok().flatten();
            let key = key.ok_or("no key")?;
            let found = table.read(key, NOW_MS, |row| {
                black_box(row.get(2));
            });
            found.ok_or_else(|| format!("no row {id}"))?;
        }
        Ok(())
    })
}

/// Scans rows with one value of an indexed column, and reads a column of each.
pub(crate) fn scan(rows: usize, count: u32) -> Path {
    let table = table();
    let by_city = table.schema().index(b"by_city");
    assert!(by_city.is_some(), "an index");
    Path::new(move || {
        for number in 0..count {
            let city = number % (ROWS / ROWS_EACH);
            let of = [InputValue::Whole(city.into())];
            let scan = table.scan(by_city, &of, &ScanOptions::default());
            let mut scan = scan.map_err(|error| error.to_string())?;
            let mut found = 0;
            let mut look = |row: Row<'_>| {
                black_box(row.get(2));
                found += 1;
            };
            let step = |scan: &mut _, look: &mut _| table.next(scan, rows, NOW_MS, look);
            while step(&mut scan, &mut look).map_err(|error| error.to_string())? {}
            if found != rows {
                return Err(format!("{found} rows of city {city}"));
            }
        }
        Ok(())
    })
}
