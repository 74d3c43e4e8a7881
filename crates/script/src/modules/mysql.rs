//! `veche.mysql`: SQL statements, and their results as tables. `lua/mysql.lua` waits for results.

use std::rc::Rc;
use std::sync::Arc;

use mlua::{Lua, LuaSerdeExt as _, LuaString, MultiValue, Table, Value};
use veche_calls::mysql::{self, Database, MysqlAction, MysqlReply, ResultMode, Rows};
use veche_calls::{Call, Databases, MysqlCall};

use super::argument::{Arguments, WHOLE_MAX, as_number};
use super::growing_list::GrowingList;
use super::server::{self, NamedOptions, ServerKind};
use super::{fault, go_on};
use crate::host_context::HostContext;

const KIND: ServerKind = ServerKind {
    function: "mysql.connect",
    schemes: ["mysql", "mysqls"],
    port: 3306,
    options: &[
        "pool",
        "pool_name",
        "wait_timeout",
        "idle_timeout",
        "rows_max",
        "bytes_max",
    ],
};

/// The maximum number of databases of one VM.
const DATABASES_MAX: usize = 256;

/// Limit of a statement and its values, in bytes.
const STATEMENT_BYTES_MAX: usize = 16 << 20;

/// The maximum number of placeholders in a statement: the limit of the MySQL protocol.
const VALUES_MAX: usize = 65_535;

pub(super) fn install(
    lua: &Lua,
    context: &Rc<HostContext>,
    native: &Table,
    configured: &Arc<Databases>,
) -> mlua::Result<()> {
    let databases = GrowingList::new("mysql: there is no database with that number");
    let table = lua.create_table()?;
    let (known, configured) = (databases.clone(), Arc::clone(configured));
    table.set(
        "connect",
        lua.create_function(move |_, argument: Value| connect(&known, &configured, &argument))?,
    )?;
    for (name, wanted) in [
        ("query", ResultMode::Rows),
        ("row", ResultMode::Row),
        ("value", ResultMode::Value),
        ("execute", ResultMode::Changes),
    ] {
        let (context, databases) = (Rc::clone(context), databases.clone());
        // Arguments: the number of the database; the number of a transaction's lease, or nil; the
        // statement; its values.
        let run = lua.create_function(move |lua, mut values: MultiValue| {
            let database = databases.find_first(&mut values)?;
            let within = match values.pop_front().as_ref().and_then(as_number) {
                None => None,
                Some(number) => Some(context.leases.get(number).ok_or_else(over)?),
            };
            let (sql, values) = statement(lua, &Arguments::new(name, values))?;
            let action = MysqlAction::Run {
                within,
                sql,
                values,
                wanted,
            };
            ask(&context, database, action)
        })?;
        table.set(name, run)?;
    }
    let own = Rc::clone(context);
    let known = databases.clone();
    let begin = lua.create_function(move |_, number: f64| {
        ask(&own, known.find(number)?, MysqlAction::Begin)
    })?;
    table.set("begin", begin)?;
    let own = Rc::clone(context);
    let finish = lua.create_function(move |_, (number, lease, commit): (f64, f64, bool)| {
        let database = databases.find(number)?;
        let lease = own.leases.take(lease).ok_or_else(over)?;
        ask(&own, database, MysqlAction::End { lease, commit })
    })?;
    table.set("finish", finish)?;
    native.set("mysql", table)
}

fn over() -> mlua::Error {
    fault("mysql: the transaction has ended")
}

fn ask(context: &HostContext, database: Arc<Database>, action: MysqlAction) -> mlua::Result<f64> {
    let token = context.call(Call::Mysql(MysqlCall { database, action }))?;
    Ok(token.0 as f64)
}

/// Returns the number of the database that the argument describes. Adds the database to `databases` if it is new.
fn connect(
    databases: &GrowingList<Database>,
    configured: &Databases,
    argument: &Value,
) -> mlua::Result<f64> {
    let database = match server::configured(&configured.mysql, argument) {
        Some(database) => database,
        None => described(argument)?,
    };
    let number = databases.keep_equal(database, DATABASES_MAX);
    number.ok_or_else(|| fault("mysql.connect: the limit of 256 different databases is reached"))
}

/// Returns the server that a URL or a table describes.
fn described(argument: &Value) -> mlua::Result<Database> {
    let mut options = NamedOptions::read(&KIND, argument)?;
    Ok(Database {
        server: options.server()?,
        name: options.text("database")?,
        pool_name: options.name("pool_name")?,
        pool: options.whole("pool", [1, 10_000], 10)?,
        connect_timeout: options.time("connect_timeout", 5.0)?,
        wait_timeout: options.time("wait_timeout", 10.0)?,
        timeout: options.time("timeout", 30.0)?,
        idle_timeout: options.time("idle_timeout", 300.0)?,
        rows_max: options.whole("rows_max", [1, 1_000_000], 10_000)?,
        bytes_max: options.whole("bytes_max", [1, 1 << 30], 16 << 20)?,
    })
}

/// Returns the statement and its values.
fn statement(lua: &Lua, arguments: &Arguments) -> mlua::Result<(String, Vec<mysql::MysqlValue>)> {
    let sql = arguments.string(1)?;
    let too_long =
        |number| arguments.bad(number, "a statement and its values may have at most 16 MiB");
    if sql.as_bytes().len() > STATEMENT_BYTES_MAX {
        return Err(too_long(1));
    }
    let sql = String::from_utf8(sql.as_bytes().to_vec());
    let sql =
        sql.map_err(|_| arguments.bad(1, "a statement must be UTF-8; pass bytes as values"))?;
    let is_good = !sql.trim().is_empty() && !sql.contains('\0');
    if !is_good {
        return Err(arguments.bad(
            1,
            "expected a statement that is not empty and contains no NUL",
        ));
    }
    let count = arguments.count();
    if count > VALUES_MAX {
        return Err(arguments.bad(VALUES_MAX + 1, "a statement may have at most 65535 values"));
    }
    let mut bytes = sql.len();
    let mut values = Vec::with_capacity(count - 1);
    for number in 2..=count {
        if let Value::String(text) = arguments.at(number) {
            bytes += text.as_bytes().len();
        }
        if bytes > STATEMENT_BYTES_MAX {
            return Err(too_long(number));
        }
        values.push(value(lua, arguments, number)?);
    }
    Ok((sql, values))
}

fn value(lua: &Lua, arguments: &Arguments, number: usize) -> mlua::Result<mysql::MysqlValue> {
    let value = arguments.at(number);
    Ok(match value {
        Value::Boolean(value) => mysql::MysqlValue::Boolean(*value),
        Value::String(text) => mysql::MysqlValue::Bytes(text.as_bytes().to_vec()),
        Value::Nil => {
            return Err(arguments.bad(number, "nil is not a value: use veche.null for NULL"));
        }
        value if *value == lua.null() => mysql::MysqlValue::Null,
        value => match as_number(value) {
            Some(value) if value.is_finite() => mysql::MysqlValue::Number(value),
            Some(_) => return Err(arguments.bad(number, "NaN and infinity are not allowed")),
            None => {
                let what = "a string, a number, a boolean or veche.null";
                return Err(arguments.expected(number, what));
            }
        },
    })
}

/// Converts a reply to a Lua value.
pub(super) fn to_lua(lua: &Lua, reply: MysqlReply) -> mlua::Result<Value> {
    Ok(match reply {
        // The caller returns the number of the transaction's lease.
        MysqlReply::Done | MysqlReply::Begun(_) => Value::Nil,
        MysqlReply::Value(value) => match value {
            Some(value) => to_value(lua, value)?,
            None => Value::Nil,
        },
        MysqlReply::Changes {
            affected,
            last_id,
            rows,
        } => {
            let table = lua.create_table_with_capacity(0, 2)?;
            if let Some(rows) = rows {
                table.raw_set("rows", list(lua, rows)?)?;
            }
            table.raw_set("affected", affected as f64)?;
            table.raw_set("last_id", last_id.map(|id| whole(lua, id)).transpose()?)?;
            Value::Table(table)
        }
        MysqlReply::Row(rows) => {
            let mut row = Value::Nil;
            each_row(lua, rows, |table| {
                row = Value::Table(table);
                Ok(())
            })?;
            row
        }
        MysqlReply::Rows(rows) => Value::Table(list(lua, rows)?),
    })
}

fn list(lua: &Lua, rows: Rows) -> mlua::Result<Table> {
    let table = lua.create_table_with_capacity(rows.count(), 0)?;
    each_row(lua, rows, |row| table.raw_push(row))?;
    // An empty result has to be an array in JSON too.
    table.set_metatable(Some(lua.array_metatable()))?;
    Ok(table)
}

/// Converts each row to a Lua table and passes the table to `take`.
fn each_row(
    lua: &Lua,
    rows: Rows,
    mut take: impl FnMut(Table) -> mlua::Result<()>,
) -> mlua::Result<()> {
    let count = rows.count();
    let names = rows.columns.iter().map(|name| lua.create_string(name));
    let names: Vec<LuaString> = names.collect::<mlua::Result<_>>()?;
    let mut values = rows.values.into_iter();
    for _ in 0..count {
        go_on()?;
        let table = lua.create_table_with_capacity(0, names.len())?;
        for (name, value) in names.iter().zip(values.by_ref().take(names.len())) {
            table.raw_set(name, to_value(lua, value)?)?;
        }
        take(table)?;
    }
    Ok(())
}

fn to_value(lua: &Lua, value: mysql::MysqlValue) -> mlua::Result<Value> {
    go_on()?;
    Ok(match value {
        mysql::MysqlValue::Null => lua.null(),
        mysql::MysqlValue::Boolean(value) => Value::Boolean(value),
        mysql::MysqlValue::Number(value) => Value::Number(value),
        mysql::MysqlValue::Bytes(bytes) => Value::String(lua.create_string(bytes)?),
    })
}

/// Returns an integer as a Lua number if a Lua number represents it exactly, otherwise as text.
fn whole(lua: &Lua, value: u64) -> mlua::Result<Value> {
    if value as f64 <= WHOLE_MAX {
        return Ok(Value::Number(value as f64));
    }
    Ok(Value::String(lua.create_string(value.to_string())?))
}
