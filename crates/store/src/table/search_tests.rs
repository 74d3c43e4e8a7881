//! Tests that entries of an index are found, however far they are from the guessed position.

use super::*;

/// Returns a table with these values in an indexed column of type `kind`. The key of a row is the index of its value in the
/// list.
fn filled(kind: &str, values: &[u64]) -> Table {
    let draft = SchemaDraft {
        key: "id:u32".to_owned(),
        columns: vec![("value".to_owned(), kind.to_owned())],
        indexes: vec![("by_value".to_owned(), vec!["value".to_owned()], false)],
        ..SchemaDraft::default()
    };
    let table = Table::new("t", draft.check().expect("a schema"));
    // Rows are inserted in scattered order, so that leaves are split in the middle.
    for step in 0..values.len() {
        let id = step * 7919 % values.len();
        let text = format!("{:020}", values[id]);
        let cell = match kind {
            "string" => Cell::Text(text.as_bytes()),
            _ => Cell::Bits(values[id]),
        };
        let row = [Cell::Bits(id as u64), cell];
        assert_eq!(table.put(PutMode::Insert, &row, None, 0), Ok(true));
    }
    table
}

fn number(row: Row<'_>) -> u64 {
    match row.get(0) {
        Cell::Bits(bits) => bits,
        other => panic!("{other:?}"),
    }
}

fn check(kind: &str, values: &[u64]) {
    let table = filled(kind, values);
    table.check();
    let mut wanted: Vec<u64> = values.to_vec();
    wanted.sort_unstable();
    wanted.dedup();
    let beside: Vec<u64> = wanted.iter().map(|value| value.saturating_add(1)).collect();
    wanted.extend(beside);
    for value in wanted {
        let text = format!("{value:020}");
        let given = match kind {
            "string" => InputValue::Text(text.as_bytes()),
            _ => InputValue::Whole(value.into()),
        };
        for is_reverse in [false, true] {
            let options = ScanOptions {
                is_reverse,
                ..ScanOptions::default()
            };
            let mut scan = table.scan(Some(0), &[given], &options).expect("a scan");
            let ahead = table.count_ahead(&scan).expect("not loading");
            let mut found = Vec::new();
            while table
                .next(&mut scan, 100, 0, |row| found.push(number(row)))
                .expect("not loading")
            {}
            let rows = values.iter().enumerate();
            let same = rows.filter(|(_, other)| **other == value);
            let mut expected: Vec<u64> = same.map(|(id, _)| id as u64).collect();
            if is_reverse {
                expected.reverse();
            }
            assert_eq!(ahead, Some(expected.len()), "{kind} {value}");
            assert_eq!(found, expected, "{kind} {value}");
        }
    }
}

#[test]
fn entries_are_found_however_keys_are_spread() {
    const ROWS: u64 = 3000;
    type Spread = (&'static str, fn(u64) -> u64);
    let spread: [Spread; 7] = [
        ("even", |id| id),
        ("the same", |_| 5),
        ("few", |id| id % 3),
        ("doubling", |id| 1 << (id % 64)),
        (
            "at both ends",
            |id| if id % 2 == 0 { id } else { u64::MAX - id },
        ),
        ("one far away", |id| if id == 77 { u64::MAX } else { id }),
        ("squares", |id| id * id),
    ];
    for (name, value) in spread {
        let values: Vec<u64> = (0..ROWS).map(value).collect();
        // Each value is searched among all rows. If all values differ, fewer rows suffice for the test.
        let values = if name == "even" {
            &values[..700]
        } else {
            &values
        };
        check("u64", values);
    }
    let texts: Vec<u64> = (0..ROWS).map(|id| id % 400).collect();
    check("string", &texts);
}

#[test]
fn rows_that_follow_each_other_or_do_not_are_found() {
    // Consecutive numbers, then numbers far apart, then some very near the maximum.
    let runs = (0..5000).chain((0..3000).map(|step| 1_000_000 + step * 977));
    let numbers: Vec<u64> = runs
        .chain(u64::from(u32::MAX) - 2000..=u64::from(u32::MAX))
        .collect();
    let draft = SchemaDraft {
        key: "id:u32".to_owned(),
        columns: vec![("value".to_owned(), "u64".to_owned())],
        ..SchemaDraft::default()
    };
    let table = Table::new("t", draft.check().expect("a schema"));
    for step in 0..numbers.len() {
        let id = numbers[step * 7919 % numbers.len()];
        let row = [Cell::Bits(id), Cell::Bits(id * 3)];
        assert_eq!(table.put(PutMode::Insert, &row, None, 0), Ok(true));
    }
    table.check();
    for id in &numbers {
        let value = table.read(Cell::Bits(*id), 0, |row| row.get(1) == Cell::Bits(id * 3));
        assert_eq!(value, Some(true), "{id}");
    }
    for id in [
        5000,
        999_999,
        1_000_001,
        3_931_000,
        u64::from(u32::MAX) - 2001,
    ] {
        assert_eq!(table.read(Cell::Bits(id), 0, |_| ()), None, "{id}");
    }
    let mut scan = table
        .scan(None, &[], &ScanOptions::default())
        .expect("a scan");
    let mut found = Vec::new();
    while table
        .next(&mut scan, 1000, 0, |row| found.push(number(row)))
        .expect("not loading")
    {}
    assert_eq!(found, numbers);
}

#[test]
fn strings_of_a_row_stay_its_own_while_others_come_go_and_change() {
    let draft = SchemaDraft {
        key: "id:u32".to_owned(),
        columns: ["a", "b", "c"]
            .map(|name| (name.to_owned(), "string?".to_owned()))
            .to_vec(),
        ..SchemaDraft::default()
    };
    let table = Table::new("t", draft.check().expect("a schema"));
    let text = |id: u64, column: u64, round: u64| -> Option<String> {
        let seed = id * 31 + column * 7 + round * 13;
        (!seed.is_multiple_of(5))
            .then(|| format!("{id}.{column}.{round}.").repeat((seed % 11) as usize))
    };
    const ROWS: u64 = 4000;
    for step in 0..ROWS {
        let id = step * 7919 % ROWS;
        let texts: Vec<_> = (0..3).map(|column| text(id, column, 0)).collect();
        let cells = texts.iter().map(|text| {
            text.as_ref()
                .map_or(Cell::Null, |text| Cell::Text(text.as_bytes()))
        });
        let row: Vec<_> = std::iter::once(Cell::Bits(id)).chain(cells).collect();
        assert_eq!(table.put(PutMode::Insert, &row, None, 0), Ok(true));
    }
    let gone = |id: u64| id % 7 == 3;
    let changed = |id: u64| id % 3 == 1;
    for id in 0..ROWS {
        if gone(id) {
            assert_eq!(table.delete(Cell::Bits(id), 0), Ok(true));
        } else if changed(id) {
            let new = text(id, 1, 1);
            let cell = new
                .as_ref()
                .map_or(Cell::Null, |text| Cell::Text(text.as_bytes()));
            let updated = table.update(Cell::Bits(id), &[(2, cell)], None, 0);
            assert_eq!(updated, Ok(UpdateResult::Updated));
        }
    }
    table.check();
    let mut bytes = [0; 3];
    for id in 0..ROWS {
        let found = table.read(Cell::Bits(id), 0, |row| {
            for column in 0..3 {
                let round = u64::from(column == 1 && changed(id));
                let expected = text(id, column, round);
                bytes[column as usize] += expected.as_ref().map_or(0, String::len);
                let expected = expected
                    .as_ref()
                    .map_or(Cell::Null, |text| Cell::Text(text.as_bytes()));
                assert_eq!(row.get(column as usize + 1), expected, "{id} {column}");
            }
        });
        assert_eq!(found.is_some(), !gone(id), "{id}");
    }
    // Each string takes four additional bytes for its end, and there may be spare capacity.
    let rows = table.count(0);
    for (reported, bytes) in table.info().columns[1..].iter().zip(bytes) {
        assert!(
            (bytes + 4 * rows..=bytes + 6 * rows).contains(reported),
            "{reported} {bytes} {rows}"
        );
    }
}

#[test]
fn many_rows_that_have_expired_are_passed_by_in_slices() {
    const ROWS: u64 = 5000;
    let draft = SchemaDraft {
        key: "id:u32".to_owned(),
        columns: vec![("value".to_owned(), "u32".to_owned())],
        indexes: vec![("by_value".to_owned(), vec!["value".to_owned()], false)],
        has_ttl: true,
        ..SchemaDraft::default()
    };
    let table = Table::new("t", draft.check().expect("a schema"));
    for id in 0..=ROWS {
        let ttl_ms = (id < ROWS).then_some(10);
        let row = [Cell::Bits(id), Cell::Bits(id)];
        assert_eq!(table.put(PutMode::Insert, &row, ttl_ms, 0), Ok(true));
    }
    for index in [None, Some(0)] {
        for is_reverse in [false, true] {
            let options = ScanOptions {
                is_reverse,
                ..ScanOptions::default()
            };
            let mut scan = table.scan(index, &[], &options).expect("a scan");
            let (mut found, mut slices) = (Vec::new(), 1);
            while table
                .next(&mut scan, 10, 1000, |row| found.push(number(row)))
                .expect("not loading")
            {
                slices += 1;
            }
            assert_eq!(found, [ROWS]);
            assert!((5..=7).contains(&slices), "{slices}");
        }
    }
}
