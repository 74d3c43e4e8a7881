//! Mocked MySQL databases.

use veche_calls::mysql::{MysqlAction, MysqlReply, MysqlValue, ResultMode, Rows};
use veche_calls::{Lease, MysqlCall};
use veche_script::Plain;

use super::stub::{StubCall, StubKind, canonical};

/// Returns the query for which a stub is searched: a statement, or a transaction's begin, commit or rollback.
pub(super) fn stub_call(mysql: &MysqlCall) -> StubCall {
    let (sql, values): (&str, &[MysqlValue]) = match &mysql.action {
        MysqlAction::Run { sql, values, .. } => (sql, values),
        MysqlAction::Begin => ("BEGIN", &[]),
        MysqlAction::End { commit: true, .. } => ("COMMIT", &[]),
        MysqlAction::End { commit: false, .. } => ("ROLLBACK", &[]),
    };
    let mut arguments = vec![Plain::from(sql)];
    arguments.extend(values.iter().map(to_plain));
    StubCall {
        kind: StubKind::Mysql,
        method: String::new(),
        target: canonical(StubKind::Mysql, sql),
        arguments: Plain::List(arguments),
    }
}

/// Converts a call to a value for the test's script.
pub(super) fn call_value(mysql: &MysqlCall, stub_call: &StubCall) -> Plain {
    let arguments = stub_call.arguments.items();
    let (sql, values) = arguments.split_first().unwrap_or((&Plain::Nil, &[]));
    let database = mysql.database.name.as_deref();
    Plain::map([
        ("sql", sql.clone()),
        ("values", Plain::List(values.to_vec())),
        ("database", database.map_or(Plain::Nil, Plain::from)),
        ("host", Plain::from(mysql.database.server.host.as_str())),
    ])
}

/// Returns whether a call succeeds without a stub.
pub(super) fn by_itself(mysql: &MysqlCall) -> bool {
    !matches!(mysql.action, MysqlAction::Run { .. })
}

/// Builds the reply from a stub's answer; an error means that the test's answer is invalid.
pub(super) fn reply(mysql: &MysqlCall, answer: Plain) -> Result<MysqlReply, String> {
    let wanted = match &mysql.action {
        MysqlAction::Run { wanted, .. } => *wanted,
        MysqlAction::Begin => return Ok(MysqlReply::Begun(Lease::new(()))),
        MysqlAction::End { .. } => return Ok(MysqlReply::Done),
    };
    let answer = read(answer)?;
    Ok(match (wanted, answer) {
        (ResultMode::Rows, MysqlAnswer::Rows(rows)) => MysqlReply::Rows(rows),
        (ResultMode::Rows, MysqlAnswer::Changes { .. }) => MysqlReply::Rows(Rows::default()),
        (ResultMode::Row, MysqlAnswer::Rows(rows)) => MysqlReply::Row(first_of(rows)),
        (ResultMode::Row, MysqlAnswer::Changes { .. }) => MysqlReply::Row(Rows::default()),
        (ResultMode::Rows | ResultMode::Row, MysqlAnswer::One(_)) => {
            return Err(
                "expected a list of rows, each a table: only db:value can be answered with a single value"
                    .to_owned(),
            );
        }
        (ResultMode::Value, MysqlAnswer::One(value)) => MysqlReply::Value(Some(value)),
        (ResultMode::Value, MysqlAnswer::Changes { .. }) => MysqlReply::Value(None),
        (ResultMode::Value, MysqlAnswer::Rows(rows)) if rows.columns.len() > 1 => {
            return Err("db:value expects a single value, or rows with only one column".to_owned());
        }
        (ResultMode::Value, MysqlAnswer::Rows(rows)) => {
            MysqlReply::Value(rows.values.into_iter().next())
        }
        (ResultMode::Changes, MysqlAnswer::Changes { affected, last_id }) => MysqlReply::Changes {
            affected,
            last_id,
            rows: None,
        },
        (ResultMode::Changes, MysqlAnswer::Rows(rows)) => MysqlReply::Changes {
            affected: rows.count() as u64,
            last_id: None,
            rows: (!rows.values.is_empty()).then_some(rows),
        },
        (ResultMode::Changes, MysqlAnswer::One(_)) => {
            return Err(
                "db:execute expects { affected = …, last_id = … }, or a list of rows".to_owned(),
            );
        }
    })
}

enum MysqlAnswer {
    Rows(Rows),
    One(MysqlValue),
    Changes { affected: u64, last_id: Option<u64> },
}

fn read(answer: Plain) -> Result<MysqlAnswer, String> {
    match answer {
        Plain::Nil => Ok(MysqlAnswer::Rows(Rows::default())),
        Plain::Map(pairs) if pairs.is_empty() => Ok(MysqlAnswer::Rows(Rows::default())),
        Plain::Map(pairs) => changes(&pairs),
        Plain::List(rows) => rows_of(rows).map(MysqlAnswer::Rows),
        value => value_of(value).map(MysqlAnswer::One),
    }
}

fn changes(pairs: &[(String, Plain)]) -> Result<MysqlAnswer, String> {
    let (mut affected, mut last_id) = (0, None);
    for (name, value) in pairs {
        let number = value
            .number()
            .filter(|number| *number >= 0.0 && number.fract() == 0.0);
        match (name.as_str(), number) {
            ("affected", Some(number)) => affected = number as u64,
            ("last_id", Some(number)) => last_id = Some(number as u64),
            _ => {
                return Err(format!(
                    "field {name:?} of a response: expected a list of rows, a value, or {{ affected = …, last_id = … }} with whole numbers"
                ));
            }
        }
    }
    Ok(MysqlAnswer::Changes { affected, last_id })
}

/// Builds rows from a list of tables. Columns that are missing in a row are NULL.
fn rows_of(items: Vec<Plain>) -> Result<Rows, String> {
    let mut columns: Vec<String> = Vec::new();
    let mut rows = Vec::with_capacity(items.len());
    for item in items {
        let Plain::Map(row) = item else {
            return Err("each row must be a table: { column = value }".to_owned());
        };
        columns.extend(row.iter().map(|(name, _)| name.clone()));
        columns.sort_unstable();
        columns.dedup();
        rows.push(row);
    }
    let mut values = Vec::with_capacity(rows.len() * columns.len());
    for row in rows {
        let mut cells = row.into_iter().peekable();
        for column in &columns {
            // Both the columns and the row's cells are sorted by name.
            match cells.next_if(|(name, _)| name == column) {
                Some((_, value)) => values.push(value_of(value)?),
                None => values.push(MysqlValue::Null),
            }
        }
    }
    Ok(Rows { columns, values })
}

fn first_of(mut rows: Rows) -> Rows {
    rows.values.truncate(rows.columns.len());
    rows
}

/// Converts a value as the server does, which represents booleans as 1 and 0.
fn value_of(value: Plain) -> Result<MysqlValue, String> {
    Ok(match value {
        Plain::Nil | Plain::Null => MysqlValue::Null,
        Plain::Boolean(value) => MysqlValue::Number(f64::from(u8::from(value))),
        Plain::Number(number) => MysqlValue::Number(number),
        Plain::Bytes(bytes) => MysqlValue::Bytes(bytes),
        Plain::List(_) | Plain::Map(_) => {
            return Err("a table is not a database value".to_owned());
        }
    })
}

fn to_plain(value: &MysqlValue) -> Plain {
    match value {
        MysqlValue::Null => Plain::Null,
        MysqlValue::Boolean(value) => Plain::Boolean(*value),
        MysqlValue::Number(number) => Plain::Number(*number),
        MysqlValue::Bytes(bytes) => Plain::Bytes(bytes.clone()),
    }
}
