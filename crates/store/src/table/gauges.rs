//! Gauges of a table that are cheap enough for frequent queries, since they need no pass over the rows.

use std::sync::atomic::Ordering;

use super::Table;

/// The result of [`Table::gauges`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableGauges {
    /// Number of rows, including expired ones that are not removed yet.
    pub rows: usize,
    /// Memory used by the table, in bytes.
    pub bytes: usize,
    /// Memory limit in bytes.
    pub bytes_max: usize,
    /// Number of rows evicted so far.
    pub evicted: u64,
    /// Whether the table is being loaded, so that its indexes are missing.
    pub is_loading: bool,
}

impl Table {
    /// Returns the gauges of the whole table in O(1). [`info`](Self::info) returns the memory by column and index.
    #[must_use]
    pub fn gauges(&self) -> TableGauges {
        let state = self.state.read();
        TableGauges {
            rows: state.rows.count(),
            bytes: state.bytes(),
            bytes_max: self.schema.bytes_max,
            evicted: self.evicted.load(Ordering::Relaxed),
            is_loading: state.is_loading,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Store;
    use crate::table::{Cell, Evict, PutMode, SchemaDraft, TABLE_BYTES_MIN, TableGauges};

    #[test]
    fn gauges_equal_the_sums() {
        let draft = SchemaDraft {
            key: "id:u32".to_owned(),
            columns: vec![("name".to_owned(), "string".to_owned())],
            indexes: vec![("by_name".to_owned(), vec!["name".to_owned()], false)],
            bytes_max: Some(TABLE_BYTES_MIN),
            evict: Some("key".to_owned()),
            ..SchemaDraft::default()
        };
        let schema = draft.check().expect("a schema");
        assert_eq!(schema.evict, Evict::Key);
        let table = Store::default().table("t", Some(schema)).expect("a table");
        let none = table.gauges();
        assert_eq!((none.rows, none.evicted, none.is_loading), (0, 0, false));
        for id in 0..2_000 {
            let name = format!("somebody {id} with a name of some length");
            let row = [Cell::Bits(id), Cell::Text(name.as_bytes())];
            table.put(PutMode::Insert, &row, None, 0).expect("room");
        }
        let info = table.info();
        let figures = TableGauges {
            rows: info.rows,
            bytes: info.bytes,
            bytes_max: TABLE_BYTES_MIN,
            evicted: info.evicted,
            is_loading: false,
        };
        assert_eq!(table.gauges(), figures);
        assert!(figures.evicted > 0 && figures.rows > 0 && figures.bytes <= figures.bytes_max);
    }

    #[test]
    fn a_scan_of_no_rows_looks_at_none() {
        let draft = SchemaDraft {
            key: "id:u32".to_owned(),
            ..SchemaDraft::default()
        };
        let schema = draft.check().expect("a schema");
        let table = Store::default().table("t", Some(schema)).expect("a table");
        table
            .put(PutMode::Insert, &[Cell::Bits(1)], None, 0)
            .expect("room");
        for (rows_max, of_slice, more) in [(Some(0), 5, false), (None, 0, true)] {
            let options = crate::table::ScanOptions {
                rows_max,
                ..Default::default()
            };
            let mut scan = table.scan(None, &[], &options).expect("a scan");
            let next = table.next(&mut scan, of_slice, 0, |_| panic!("a row"));
            assert_eq!(next, Ok(more));
        }
    }

    #[test]
    fn a_scan_ends_behind_the_row_that_is_enough() {
        let draft = SchemaDraft {
            key: "id:u32".to_owned(),
            columns: vec![("mark".to_owned(), "u8".to_owned())],
            indexes: vec![("by_mark".to_owned(), vec!["mark".to_owned()], false)],
            ..SchemaDraft::default()
        };
        let schema = draft.check().expect("a schema");
        let table = Store::default().table("t", Some(schema)).expect("a table");
        for id in 0..10 {
            let row = [Cell::Bits(id), Cell::Bits(id % 2)];
            table.put(PutMode::Insert, &row, None, 0).expect("room");
        }
        for (index, expected) in [
            (None, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]),
            (Some(0), [0, 2, 4, 6, 8, 1, 3, 5, 7, 9]),
        ] {
            for is_reverse in [false, true] {
                let options = crate::table::ScanOptions {
                    is_reverse,
                    ..Default::default()
                };
                let mut scan = table.scan(index, &[], &options).expect("a scan");
                let mut seen = Vec::new();
                let mut slices = 0;
                let mut goes_on = true;
                while goes_on {
                    let mut of_slice = 0;
                    slices += 1;
                    let next = table.next_while(&mut scan, 100, 0, |row| {
                        let Cell::Bits(id) = row.get(0) else {
                            panic!("a key is a number here");
                        };
                        seen.push(id);
                        of_slice += 1;
                        of_slice < 4
                    });
                    goes_on = next.expect("not loading");
                }
                let mut expected = expected.to_vec();
                if is_reverse {
                    expected.reverse();
                }
                assert_eq!((seen, slices), (expected, 3), "{index:?} {is_reverse}");
            }
        }
    }
}
