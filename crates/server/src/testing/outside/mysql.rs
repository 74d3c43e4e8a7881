//! Mocked MySQL databases.

use veche_calls::mysql::{MysqlAction, MysqlReply, Rows, Value, Wanted};
use veche_calls::{Lease, Mysql};
use veche_script::Plain;

use super::stub::{Kind, Question, canonical};

/// Returns the query of a call: a statement, or a transaction's begin, commit or rollback.
pub(super) fn question(mysql: &Mysql) -> Question {
    let (sql, values): (&str, &[Value]) = match &mysql.action {
        MysqlAction::Run { sql, values, .. } => (sql, values),
        MysqlAction::Begin => ("BEGIN", &[]),
        MysqlAction::End { commit: true, .. } => ("COMMIT", &[]),
        MysqlAction::End { commit: false, .. } => ("ROLLBACK", &[]),
    };
    let mut arguments = vec![Plain::from(sql)];
    arguments.extend(values.iter().map(to_plain));
    Question {
        kind: Kind::Mysql,
        method: String::new(),
        target: canonical(Kind::Mysql, sql),
        arguments: Plain::List(arguments),
    }
}

/// Converts a call for the test.
pub(super) fn told(mysql: &Mysql, question: &Question) -> Plain {
    let arguments = question.arguments.items();
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
pub(super) fn by_itself(mysql: &Mysql) -> bool {
    !matches!(mysql.action, MysqlAction::Run { .. })
}

/// Builds the reply from a stub's answer; an error is the test's own mistake.
pub(super) fn reply(mysql: &Mysql, said: Plain) -> Result<MysqlReply, String> {
    let wanted = match &mysql.action {
        MysqlAction::Run { wanted, .. } => *wanted,
        MysqlAction::Begin => return Ok(MysqlReply::Begun(Lease::new(()))),
        MysqlAction::End { .. } => return Ok(MysqlReply::Done),
    };
    let said = read(said)?;
    Ok(match (wanted, said) {
        (Wanted::Rows, Said::Rows(rows)) => MysqlReply::Rows(rows),
        (Wanted::Rows, Said::Changes { .. }) => MysqlReply::Rows(Rows::default()),
        (Wanted::Row, Said::Rows(rows)) => MysqlReply::Row(first_of(rows)),
        (Wanted::Row, Said::Changes { .. }) => MysqlReply::Row(Rows::default()),
        (Wanted::Rows | Wanted::Row, Said::One(_)) => {
            return Err("a value alone answers db:value; rows are a list of tables".to_owned());
        }
        (Wanted::Value, Said::One(value)) => MysqlReply::Value(Some(value)),
        (Wanted::Value, Said::Changes { .. }) => MysqlReply::Value(None),
        (Wanted::Value, Said::Rows(rows)) if rows.columns.len() > 1 => {
            return Err("rows of several columns don't say which is the first: db:value wants the value alone".to_owned());
        }
        (Wanted::Value, Said::Rows(rows)) => MysqlReply::Value(rows.values.into_iter().next()),
        (Wanted::Changes, Said::Changes { affected, last_id }) => MysqlReply::Changes {
            affected,
            last_id,
            rows: None,
        },
        (Wanted::Changes, Said::Rows(rows)) => MysqlReply::Changes {
            affected: rows.count() as u64,
            last_id: None,
            rows: (!rows.values.is_empty()).then_some(rows),
        },
        (Wanted::Changes, Said::One(_)) => {
            return Err(
                "db:execute wants { affected = …, last_id = … }, or a list of rows".to_owned(),
            );
        }
    })
}

enum Said {
    Rows(Rows),
    One(Value),
    Changes { affected: u64, last_id: Option<u64> },
}

fn read(said: Plain) -> Result<Said, String> {
    match said {
        Plain::Nil => Ok(Said::Rows(Rows::default())),
        Plain::Map(pairs) if pairs.is_empty() => Ok(Said::Rows(Rows::default())),
        Plain::Map(pairs) => changes(&pairs),
        Plain::List(rows) => rows_of(rows).map(Said::Rows),
        value => value_of(value).map(Said::One),
    }
}

fn changes(pairs: &[(String, Plain)]) -> Result<Said, String> {
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
                    "{name:?} in an answer: it is a list of rows, a value, or whole numbers {{ affected = …, last_id = … }}"
                ));
            }
        }
    }
    Ok(Said::Changes { affected, last_id })
}

/// Missing columns of a row are NULL.
fn rows_of(items: Vec<Plain>) -> Result<Rows, String> {
    let mut columns: Vec<String> = Vec::new();
    let mut rows = Vec::with_capacity(items.len());
    for item in items {
        let Plain::Map(row) = item else {
            return Err("each row is a table: { column = value }".to_owned());
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
            // Both are sorted.
            match cells.next_if(|(name, _)| name == column) {
                Some((_, value)) => values.push(value_of(value)?),
                None => values.push(Value::Null),
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
fn value_of(value: Plain) -> Result<Value, String> {
    Ok(match value {
        Plain::Nil | Plain::Null => Value::Null,
        Plain::Boolean(value) => Value::Number(f64::from(u8::from(value))),
        Plain::Number(number) => Value::Number(number),
        Plain::Bytes(bytes) => Value::Bytes(bytes),
        Plain::List(_) | Plain::Map(_) => {
            return Err("a table is no value of a database".to_owned());
        }
    })
}

fn to_plain(value: &Value) -> Plain {
    match value {
        Value::Null => Plain::Null,
        Value::Boolean(value) => Plain::Boolean(*value),
        Value::Number(number) => Plain::Number(*number),
        Value::Bytes(bytes) => Plain::Bytes(bytes.clone()),
    }
}
