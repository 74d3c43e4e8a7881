//! Tests that compare tables with a plain model: the same operations must have the same results, and the indexes must agree
//! with the rows.

mod memory;

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn visits() -> Table {
    let columns = ["location", "mark", "user", "visited_at"];
    let kinds = ["u32", "u8", "u32", "i32"];
    let pairs = columns.iter().zip(kinds);
    let draft = SchemaDraft {
        key: "id:u32".to_owned(),
        columns: pairs
            .map(|(name, kind)| ((*name).to_owned(), kind.to_owned()))
            .collect(),
        indexes: vec![
            (
                "by_user".to_owned(),
                vec!["user".to_owned(), "visited_at".to_owned()],
                false,
            ),
            ("by_location".to_owned(), vec!["location".to_owned()], false),
        ],
        ..SchemaDraft::default()
    };
    Table::new("visits", draft.check().expect("a schema"))
}

fn whole(value: i128) -> InputValue<'static> {
    InputValue::Whole(value)
}

fn row<'a>(table: &Table, values: &[InputValue<'a>]) -> Vec<Cell<'a>> {
    let columns = table.schema.visible().iter();
    let cells = columns
        .zip(values)
        .map(|(column, value)| column.cell(*value));
    cells.collect::<Result<_, _>>().expect("values that fit")
}

fn ids(
    table: &Table,
    index: &str,
    values: &[InputValue<'_>],
    options: &ScanOptions<'_>,
) -> Vec<u64> {
    let place = table.schema.index(index.as_bytes());
    let mut scan = table.scan(place, values, options).expect("a scan");
    let mut found = Vec::new();
    // Scans in slices of three rows; each slice continues where the last one ended.
    while table
        .next(&mut scan, 3, 0, |row| match row.get(0) {
            Cell::Bits(bits) => found.push(bits),
            other => panic!("{other:?}"),
        })
        .expect("not loading")
    {}
    found
}

#[test]
fn a_row_is_put_read_changed_and_deleted() {
    let table = visits();
    let first = row(&table, &[whole(1), whole(3), whole(5), whole(7), whole(-9)]);
    assert_eq!(table.put(PutMode::Insert, &first, None, 0), Ok(true));
    let error = table
        .put(PutMode::Insert, &first, None, 0)
        .expect_err("taken");
    assert_eq!(
        error.to_string(),
        "column id: a row with the key 1 already exists"
    );
    assert_eq!(table.put(PutMode::Add, &first, None, 0), Ok(false));
    let json = |key: u64| {
        table.read(Cell::Bits(key), 0, |row| {
            let mut out = Vec::new();
            row.write_json(&mut out);
            String::from_utf8(out).expect("UTF-8")
        })
    };
    let expected = r#"{"id":1,"location":3,"mark":5,"user":7,"visited_at":-9}"#;
    assert_eq!(json(1).as_deref(), Some(expected));
    let changes = [(3, Cell::Bits(8))];
    assert_eq!(
        table.update(Cell::Bits(1), &changes, None, 0),
        Ok(UpdateResult::Updated)
    );
    assert_eq!(
        table.update(Cell::Bits(2), &changes, None, 0),
        Ok(UpdateResult::NoRow)
    );
    assert_eq!(
        ids(&table, "by_user", &[whole(7)], &ScanOptions::default()),
        [0; 0]
    );
    assert_eq!(
        ids(&table, "by_user", &[whole(8)], &ScanOptions::default()),
        [1]
    );
    assert_eq!(table.incr(Cell::Bits(1), 2, whole(250), 0), Ok(Some(255)));
    let error = table
        .incr(Cell::Bits(1), 2, whole(1), 0)
        .expect_err("too much");
    assert_eq!(
        error.to_string(),
        "column mark: 256: out of range: must be from 0 to 255"
    );
    assert_eq!(table.delete(Cell::Bits(1), 0), Ok(true));
    assert_eq!(table.delete(Cell::Bits(1), 0), Ok(false));
    assert_eq!((json(1), table.count(0)), (None, 0));
    table.check();
}

#[test]
fn an_update_by_function_sees_other_changes() {
    let table = visits();
    let first = row(&table, &[whole(1), whole(3), whole(5), whole(7), whole(-9)]);
    table.put(PutMode::Insert, &first, None, 0).expect("room");
    let seen = table
        .read(Cell::Bits(1), 0, |row| row.snapshot())
        .expect("there");
    let mark = [(2, Cell::Bits(1))];
    assert_eq!(
        table.update(Cell::Bits(1), &mark, Some(&seen), 0),
        Ok(UpdateResult::Updated)
    );
    assert_eq!(
        table.update(Cell::Bits(1), &mark, Some(&seen), 0),
        Ok(UpdateResult::Conflict)
    );
}

fn people(more: impl FnOnce(&mut SchemaDraft)) -> Table {
    let mut draft = SchemaDraft {
        key: "name:string(20)".to_owned(),
        columns: vec![
            ("email".to_owned(), "string(100)?".to_owned()),
            ("age".to_owned(), "i8?".to_owned()),
            ("photo".to_owned(), "bytes?".to_owned()),
        ],
        indexes: vec![
            ("by_email".to_owned(), vec!["email".to_owned()], true),
            (
                "by_age".to_owned(),
                vec!["age".to_owned(), "name".to_owned()],
                false,
            ),
        ],
        ..SchemaDraft::default()
    };
    more(&mut draft);
    Table::new("people", draft.check().expect("a schema"))
}

/// Columns are in name order: age, email, photo.
fn person<'a>(
    table: &Table,
    name: &'a str,
    age: Option<i128>,
    email: Option<&'a str>,
) -> Vec<Cell<'a>> {
    let age = age.map_or(InputValue::Null, InputValue::Whole);
    let email = email.map_or(InputValue::Null, |email| InputValue::Text(email.as_bytes()));
    row(
        table,
        &[
            InputValue::Text(name.as_bytes()),
            age,
            email,
            InputValue::Null,
        ],
    )
}

fn names(
    table: &Table,
    index: &str,
    values: &[InputValue<'_>],
    options: &ScanOptions<'_>,
) -> Vec<String> {
    let place = table.schema.index(index.as_bytes());
    let mut scan = table.scan(place, values, options).expect("a scan");
    let mut found = Vec::new();
    while table
        .next(&mut scan, 2, 0, |row| match row.get(0) {
            Cell::Text(text) => found.push(String::from_utf8_lossy(text).into_owned()),
            other => panic!("{other:?}"),
        })
        .expect("not loading")
    {}
    found
}

#[test]
fn unique_values_stay_unique() {
    let table = people(|_| {});
    let put = |name, email| table.put(PutMode::Insert, &person(&table, name, None, email), None, 0);
    assert_eq!(put("ann", Some("a@x")), Ok(true));
    let error = put("bob", Some("a@x")).expect_err("taken").to_string();
    assert_eq!(
        error,
        r#"index by_email is unique and another row has email "a@x""#
    );
    assert_eq!(put("bob", None), Ok(true));
    assert_eq!(put("cid", None), Ok(true), "no value is none that is taken");
    let email = [(2, Cell::Text(b"a@x"))];
    let taken = table.update(Cell::Text(b"bob"), &email, None, 0);
    assert!(matches!(taken, Err(TableError::UniqueViolation { .. })));
    assert_eq!(
        table.update(Cell::Text(b"ann"), &email, None, 0),
        Ok(UpdateResult::Updated)
    );
    table.check();
}

#[test]
fn scans_have_limits_of_all_kinds() {
    let table = people(|_| {});
    for (name, age) in [
        ("ann", Some(-5)),
        ("bob", Some(10)),
        ("cid", Some(10)),
        ("dan", Some(127)),
        ("eve", None),
    ] {
        let row = person(&table, name, age, None);
        table.put(PutMode::Insert, &row, None, 0).expect("room");
    }
    let range = |from, to, above, below| ScanOptions {
        range: Range {
            from,
            to,
            above,
            below,
        },
        ..ScanOptions::default()
    };
    let number = |value: f64| Some(InputValue::Number(value));
    for (options, expected) in [
        (ScanOptions::default(), "eve ann bob cid dan"),
        (range(number(10.0), None, None, None), "bob cid dan"),
        (range(None, None, number(10.0), None), "dan"),
        (range(None, number(10.0), None, None), "ann bob cid"),
        (range(None, None, None, number(10.0)), "ann"),
        (
            range(number(-1e9), number(f64::INFINITY), None, None),
            "ann bob cid dan",
        ),
        (range(number(9.5), number(10.5), None, None), "bob cid"),
        (range(number(128.0), None, None, None), ""),
        (range(None, number(-200.0), None, None), ""),
        (range(number(11.0), number(9.0), None, None), ""),
    ] {
        assert_eq!(names(&table, "by_age", &[], &options).join(" "), expected);
        let backwards = ScanOptions {
            is_reverse: true,
            ..options
        };
        let mut found = names(&table, "by_age", &[], &backwards);
        found.reverse();
        assert_eq!(found.join(" "), expected, "backwards");
        let scan = table
            .scan(table.schema.index(b"by_age"), &[], &options)
            .expect("a scan");
        let count = table.count_ahead(&scan).expect("not loading");
        assert_eq!(count, Some(expected.split_whitespace().count()));
    }
    let ten = [InputValue::Whole(10)];
    assert_eq!(
        names(&table, "by_age", &ten, &ScanOptions::default()),
        ["bob", "cid"]
    );
    assert_eq!(
        names(
            &table,
            "by_age",
            &[InputValue::Null],
            &ScanOptions::default()
        ),
        ["eve"]
    );
    assert_eq!(
        names(
            &table,
            "by_age",
            &[InputValue::Whole(999)],
            &ScanOptions::default()
        ),
        [""; 0]
    );
    let some = range(Some(InputValue::Text(b"bz")), None, None, None);
    assert_eq!(names(&table, "by_age", &ten, &some), ["cid"]);
    assert_eq!(names(&table, "key", &[], &some), ["cid", "dan", "eve"]);
    let last = ScanOptions {
        is_reverse: true,
        rows_max: Some(2),
        ..ScanOptions::default()
    };
    assert_eq!(names(&table, "key", &[], &last), ["eve", "dan"]);
    let words = |values: &[InputValue<'_>], options| {
        let scan = table.scan(table.schema.index(b"by_age"), values, &options);
        scan.expect_err("a mistake").to_string()
    };
    assert!(
        words(&[InputValue::Text(b"x")], some)
            .contains("column age: \"x\": expected a whole number (i8)")
    );
    assert!(
        words(&[InputValue::Whole(1), InputValue::Text(b"x")], some)
            .contains("the index has no further")
    );
    assert!(
        words(&[], range(number(1.0), None, number(1.0), None))
            .contains("only one of from and above")
    );
}

#[test]
fn numbers_add_up_over_a_scan() {
    let table = visits();
    for id in 0..100 {
        let values = [
            whole(id),
            whole(id % 2),
            whole(id % 5),
            whole(1),
            whole(-id),
        ];
        table
            .put(PutMode::Insert, &row(&table, &values), None, 0)
            .expect("room");
    }
    let place = table.schema.index(b"by_location");
    let mut scan = table
        .scan(place, &[whole(1)], &ScanOptions::default())
        .expect("a scan");
    let mut sums = Aggregate::default();
    while table
        .aggregate(4, &mut scan, 7, 0, &mut sums)
        .expect("numbers")
    {}
    assert_eq!((sums.count, sums.sum()), (50, -2500.0));
    assert_eq!(
        (sums.min_max(), sums.mean()),
        (Some([-99.0, -1.0]), Some(-50.0))
    );
}

#[test]
fn expired_rows_are_absent() {
    let table = people(|draft| draft.has_ttl = true);
    let put = |name, ttl_ms, now_ms| {
        let row = person(&table, name, None, Some(name));
        table.put(PutMode::Insert, &row, ttl_ms, now_ms)
    };
    put("ann", Some(10), 0).expect("room");
    put("bob", None, 0).expect("room");
    assert_eq!((table.count(9), table.count(10)), (2, 1));
    let has = |name: &str, now_ms| {
        table
            .read(Cell::Text(name.as_bytes()), now_ms, |_| ())
            .is_some()
    };
    assert!(has("ann", 9) && !has("ann", 10) && has("bob", 1 << 40));
    put("ann", Some(5), 10).expect("the old one has expired");
    assert_eq!(table.info().rows, 2);
    table.check();
}

#[test]
fn a_full_table_rejects_or_evicts() {
    let fill = |table: &Table| -> Result<(), TableError> {
        for number in 0..5000 {
            let name = format!("{number:05}");
            let row = person(table, &name, Some(number % 100), None);
            table.put(PutMode::Insert, &row, None, 0)?;
        }
        Ok(())
    };
    let small = |draft: &mut SchemaDraft| draft.bytes_max = Some(65_536);
    let table = people(small);
    let words = fill(&table).expect_err("full").to_string();
    assert!(words.contains("exceed its limit of 65536"), "{words}");
    assert!(
        table.count(0) > 500 && table.info().bytes <= 70_000,
        "{:?}",
        table.info()
    );
    let table = people(|draft| {
        small(draft);
        draft.evict = Some("key".to_owned());
    });
    fill(&table).expect("the first ones go");
    let info = table.info();
    assert!(
        info.bytes <= 70_000 && info.evicted as usize + info.rows == 5000,
        "{info:?}"
    );
    let first = names(
        &table,
        "key",
        &[],
        &ScanOptions {
            rows_max: Some(1),
            ..ScanOptions::default()
        },
    );
    assert_eq!(first, [format!("{:05}", 5000 - info.rows)]);
    table.check();
}

#[test]
fn a_batch_is_done_whole_or_not_at_all() {
    let table = people(|_| {});
    let put = |batch: &mut Batch, name, email| {
        batch
            .put(
                PutMode::Insert,
                &person(&table, name, None, Some(email)),
                None,
            )
            .expect("not long");
    };
    let mut batch = Batch::default();
    put(&mut batch, "ann", "a@x");
    put(&mut batch, "bob", "b@x");
    table.apply(&batch, 0).expect("all of it");
    let changes = table.watch(10);
    let mut batch = Batch::default();
    batch.delete(Cell::Text(b"ann")).expect("not long");
    put(&mut batch, "ann", "c@x");
    batch
        .update(Cell::Text(b"bob"), &[(1, Cell::Bits(30))])
        .expect("not long");
    put(&mut batch, "cid", "c@x");
    let error = table.apply(&batch, 0).expect_err("c@x is taken");
    assert!(
        matches!(error, TableError::UniqueViolation { .. }),
        "{error}"
    );
    assert_eq!(
        names(&table, "by_email", &[], &ScanOptions::default()),
        ["ann", "bob"]
    );
    let ann = table.read(Cell::Text(b"ann"), 0, |row| {
        row.get(2) == Cell::Text(b"a@x")
    });
    let bob = table.read(Cell::Text(b"bob"), 0, |row| row.get(1) == Cell::Null);
    assert_eq!((ann, bob), (Some(true), Some(true)));
    assert_eq!(changes.next(None), None, "nothing has happened");
    let mut batch = Batch::default();
    batch.update(Cell::Text(b"nobody"), &[]).expect("not long");
    let error = table.apply(&batch, 0).expect_err("an error").to_string();
    assert_eq!(error, "there is no row with the key \"nobody\"");
    table.check();
}

#[test]
fn watchers_receive_each_change_or_the_number_missed() {
    let table = visits();
    let changes = table.watch(2);
    for id in 0..4 {
        let values = [whole(id), whole(1), whole(1), whole(1), whole(1)];
        table
            .put(PutMode::Insert, &row(&table, &values), None, 0)
            .expect("room");
    }
    let next = || match changes.next(None)?.value {
        crate::Value::Bytes(text) => Some(String::from_utf8_lossy(&text).into_owned()),
        other => panic!("{other:?}"),
    };
    let first =
        r#"{"kind":"insert","key":0,"row":{"id":0,"location":1,"mark":1,"user":1,"visited_at":1}}"#;
    assert_eq!(next().as_deref(), Some(first));
    assert!(next().is_some_and(|text| text.contains("\"key\":1")));
    assert_eq!(next().as_deref(), Some(r#"{"kind":"missed","count":2}"#));
    assert_eq!(next(), None);
    table.delete(Cell::Bits(3), 0).expect("there");
    assert_eq!(next().as_deref(), Some(r#"{"kind":"delete","key":3}"#));
}

#[derive(Clone, Debug)]
enum Action {
    Put(PutMode, u16, Option<i8>, Option<String>, Option<Vec<u8>>),
    Update(u16, Option<Option<i8>>, Option<Option<String>>),
    Delete(u16),
    Incr(u16, i8),
}

fn action() -> impl Strategy<Value = Action> {
    let key = 0_u16..300;
    let email = proptest::option::of("[a-c]{1,2}");
    let photo = proptest::option::of(proptest::collection::vec(any::<u8>(), 0..300));
    let how = prop_oneof![
        Just(PutMode::Insert),
        Just(PutMode::Add),
        Just(PutMode::Upsert)
    ];
    prop_oneof![
        4 => (how, key.clone(), any::<Option<i8>>(), email.clone(), photo)
            .prop_map(|(how, key, age, email, photo)| Action::Put(how, key, age, email, photo)),
        2 => (key.clone(), any::<Option<Option<i8>>>(), proptest::option::of(email))
            .prop_map(|(key, age, email)| Action::Update(key, age, email)),
        2 => key.clone().prop_map(Action::Delete),
        1 => (key, any::<i8>()).prop_map(|(key, by)| Action::Incr(key, by)),
    ]
}

/// Returns a table with the given key column and otherwise always the same schema. The type of the
/// key decides whether the key is also the row number.
fn mixed(key: &str) -> Table {
    let draft = SchemaDraft {
        key: key.to_owned(),
        columns: [("age", "i8?"), ("email", "string?"), ("photo", "bytes?")]
            .iter()
            .map(|(name, kind)| ((*name).to_owned(), (*kind).to_owned()))
            .collect(),
        indexes: vec![
            ("by_email".to_owned(), vec!["email".to_owned()], true),
            ("by_age".to_owned(), vec!["age".to_owned()], false),
            (
                "by_photo".to_owned(),
                vec!["photo".to_owned(), "age".to_owned()],
                false,
            ),
        ],
        ..SchemaDraft::default()
    };
    Table::new("mixed", draft.check().expect("a schema"))
}

type Model = BTreeMap<u16, (Option<i8>, Option<String>, Option<Vec<u8>>)>;

fn is_taken(model: &Model, key: u16, email: Option<&String>) -> bool {
    let mut others = model.iter().filter(|(other, _)| **other != key);
    email.is_some_and(|email| others.any(|(_, (_, other, _))| other.as_ref() == Some(email)))
}

fn number(value: Option<i8>) -> InputValue<'static> {
    value.map_or(InputValue::Null, |value| whole(value.into()))
}

fn text(value: Option<&[u8]>) -> InputValue<'_> {
    value.map_or(InputValue::Null, InputValue::Text)
}

/// Performs an action on the table and on the model. Returns both results as texts.
fn carry_out(table: &Table, model: &mut Model, action: &Action) -> [String; 2] {
    let key_of = |key: u16| Cell::Bits(key.into());
    let ours = |result: Result<String, TableError>| match result {
        Ok(done) => done,
        Err(TableError::DuplicateKey { .. }) => "key taken".to_owned(),
        Err(TableError::UniqueViolation { .. }) => "taken".to_owned(),
        Err(TableError::Value { .. }) => "value".to_owned(),
        Err(other) => panic!("{other}"),
    };
    match action {
        Action::Put(how, key, age, email, photo) => {
            let values = [
                whole((*key).into()),
                number(*age),
                text(email.as_ref().map(String::as_bytes)),
                text(photo.as_deref()),
            ];
            let result = table.put(*how, &row(table, &values), None, 0);
            let is_there = model.contains_key(key);
            let expected = match how {
                PutMode::Insert if is_there => "key taken".to_owned(),
                PutMode::Add if is_there => "false".to_owned(),
                _ if is_taken(model, *key, email.as_ref()) => "taken".to_owned(),
                _ => {
                    model.insert(*key, (*age, email.clone(), photo.clone()));
                    (!is_there).to_string()
                }
            };
            [ours(result.map(|new| new.to_string())), expected]
        }
        Action::Update(key, age, email) => {
            let mut changes = Vec::new();
            let columns = table.schema.visible();
            if let Some(age) = age {
                changes.push((1, columns[1].cell(number(*age)).expect("fits")));
            }
            if let Some(email) = email {
                let email = text(email.as_ref().map(String::as_bytes));
                changes.push((2, columns[2].cell(email).expect("fits")));
            }
            let result = table.update(key_of(*key), &changes, None, 0);
            let taken = email
                .as_ref()
                .is_some_and(|email| is_taken(model, *key, email.as_ref()));
            let expected = match model.get_mut(key) {
                None => "NoRow",
                Some(_) if taken => "taken",
                Some(row) => {
                    row.0 = age.unwrap_or(row.0);
                    row.1 = email.clone().unwrap_or_else(|| row.1.clone());
                    "Updated"
                }
            };
            [
                ours(result.map(|done| format!("{done:?}"))),
                expected.to_owned(),
            ]
        }
        Action::Delete(key) => {
            let result = table.delete(key_of(*key), 0);
            [
                ours(result.map(|done| done.to_string())),
                model.remove(key).is_some().to_string(),
            ]
        }
        Action::Incr(key, by) => {
            let result = table.incr(key_of(*key), 1, whole((*by).into()), 0);
            let expected = match model.get_mut(key) {
                None => "None".to_owned(),
                Some(row) => match row.0.unwrap_or(0).checked_add(*by) {
                    Some(sum) => {
                        row.0 = Some(sum);
                        format!("{:?}", Some(i64::from(sum) as u64))
                    }
                    None => "value".to_owned(),
                },
            };
            [ours(result.map(|sum| format!("{sum:?}"))), expected]
        }
    }
}

fn rows_of(table: &Table, index: Option<usize>, is_reverse: bool) -> Vec<(u16, Vec<u8>)> {
    let options = ScanOptions {
        is_reverse,
        ..ScanOptions::default()
    };
    let mut scan = table.scan(index, &[], &options).expect("a scan");
    let mut found = Vec::new();
    while table
        .next(&mut scan, 5, 0, |row| {
            let Cell::Bits(key) = row.get(0) else {
                panic!("a key")
            };
            let mut out = Vec::new();
            row.write_json(&mut out);
            found.push((key as u16, out));
        })
        .expect("not loading")
    {}
    found
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn tables_answer_as_a_plain_map_does(
        actions in proptest::collection::vec(action(), 1..600),
        is_wide in any::<bool>(),
    ) {
        let table = mixed(if is_wide { "id:u64" } else { "id:u16" });
        let mut model = Model::new();
        for action in &actions {
            let [ours, expected] = carry_out(&table, &mut model, action);
            prop_assert_eq!(ours, expected, "{:?}", action);
        }
        table.check();
        prop_assert_eq!(table.count(0), model.len());
        let rows = rows_of(&table, None, false);
        let keys: Vec<u16> = rows.iter().map(|(key, _)| *key).collect();
        prop_assert_eq!(&keys, &model.keys().copied().collect::<Vec<_>>());
        for (key, json) in &rows {
            let (age, email, _) = &model[key];
            let json = String::from_utf8_lossy(json);
            let age = age.map_or("null".to_owned(), |age| age.to_string());
            let email = email.as_ref().map_or("null".to_owned(), |email| format!("\"{email}\""));
            let start = format!("{{\"id\":{key},\"age\":{age},\"email\":{email},");
            prop_assert!(json.starts_with(&start), "{} {}", json, start);
        }
        // Each index must contain all rows in its order, in both directions.
        let mut by_age: Vec<(Option<i8>, u16)> = model.iter().map(|(key, row)| (row.0, *key)).collect();
        by_age.sort();
        for index in 0..3 {
            let rising: Vec<u16> = rows_of(&table, Some(index), false).into_iter().map(|row| row.0).collect();
            let mut falling: Vec<u16> = rows_of(&table, Some(index), true).into_iter().map(|row| row.0).collect();
            falling.reverse();
            prop_assert_eq!(&rising, &falling);
            prop_assert_eq!(rising.len(), model.len());
            if index == 0 && !is_wide {
                prop_assert_eq!(rising, by_age.iter().map(|(_, key)| *key).collect::<Vec<_>>());
            }
        }
    }
}
