//! `veche.json`: tables to JSON and back.
//!
//! A table with the keys 1 to n is an array, any other an object; an empty one is an object unless it was made by
//! `json.array`. JSON's `null` is `json.null`, so that it survives a table.

use mlua::{Lua, LuaSerdeExt as _, LuaString, Table, Value};

use super::fault;
use super::seeded::Seeded;

/// Tables in tables.
const DEPTH_MAX: usize = 128;

/// Text that one call makes, about: nothing can end it while it does.
const TEXT_BYTES_MAX: usize = 8 << 20;

pub(super) fn module(lua: &Lua) -> mlua::Result<Table> {
    let module = lua.create_table()?;
    module.set("null", lua.null())?;
    module.set(
        "encode",
        lua.create_function(|lua, value: Value| lua.create_string(encode(lua, &value)?))?,
    )?;
    module.set(
        "decode",
        lua.create_function(|lua, text: LuaString| decode(lua, &text.as_bytes()))?,
    )?;
    module.set(
        "array",
        lua.create_function(|lua, table: Option<Table>| {
            let table = match table {
                Some(table) => table,
                None => lua.create_table()?,
            };
            table.set_metatable(Some(lua.array_metatable()))?;
            Ok(table)
        })?,
    )?;
    Ok(module)
}

/// JSON of a value.
///
/// # Errors
/// A function, a coroutine, NaN, a table with keys of both kinds, one in itself, or deeper than 128.
pub(crate) fn encode(lua: &Lua, value: &Value) -> mlua::Result<Vec<u8>> {
    let mut out = Vec::with_capacity(128);
    let at = At {
        depth: 0,
        sorts: lua.app_data_ref::<Seeded>().is_some(),
    };
    write(lua, value, &mut out, at)?;
    Ok(out)
}

/// Where in a text the writer is.
#[derive(Clone, Copy)]
struct At {
    depth: usize,
    /// Objects have their keys in order: in a test a text must not depend on Lua's order, which is another each time.
    sorts: bool,
}

fn write(lua: &Lua, value: &Value, out: &mut Vec<u8>, at: At) -> mlua::Result<()> {
    if out.len() > TEXT_BYTES_MAX {
        return Err(fault("json.encode: the text is longer than 8 MiB"));
    }
    match value {
        Value::Nil => out.extend_from_slice(b"null"),
        value if *value == lua.null() => out.extend_from_slice(b"null"),
        Value::Boolean(true) => out.extend_from_slice(b"true"),
        Value::Boolean(false) => out.extend_from_slice(b"false"),
        Value::Integer(number) => write_number(*number as f64, out)?,
        Value::Number(number) => write_number(*number, out)?,
        Value::String(text) => write_text(text, out)?,
        Value::Table(table) => {
            if at.depth == DEPTH_MAX {
                return Err(fault(
                    "json.encode: tables in tables deeper than 128, or one that holds itself",
                ));
            }
            let depth = at.depth + 1;
            write_table(lua, table, out, At { depth, ..at })?;
        }
        other => {
            return Err(fault(format!(
                "json.encode: a {} has no form in JSON",
                other.type_name()
            )));
        }
    }
    Ok(())
}

fn write_table(lua: &Lua, table: &Table, out: &mut Vec<u8>, at: At) -> mlua::Result<()> {
    let length = table.raw_len();
    let is_array = length > 0
        || table
            .metatable()
            .is_some_and(|metatable| metatable == lua.array_metatable());
    let mut count = 0;
    if is_array {
        out.push(b'[');
        for value in table.sequence_values::<Value>() {
            if count > 0 {
                out.push(b',');
            }
            write(lua, &value?, out, at)?;
            count += 1;
        }
        out.push(b']');
        if count != length || table.pairs::<Value, Value>().count() != length {
            return Err(fault(
                "json.encode: a table has keys besides 1 to n, or gaps: it is neither an array nor an object",
            ));
        }
        return Ok(());
    }
    out.push(b'{');
    if at.sorts {
        let pairs = table.pairs::<Value, Value>();
        let mut pairs = pairs.collect::<mlua::Result<Vec<_>>>()?;
        let text = |key: &Value| key.as_string().map(|key| key.as_bytes().to_vec());
        pairs.sort_by_cached_key(|(key, _)| text(key));
        for (key, value) in pairs {
            write_pair(lua, &key, &value, out, (at, count))?;
            count += 1;
        }
    } else {
        for pair in table.pairs::<Value, Value>() {
            let (key, value) = pair?;
            write_pair(lua, &key, &value, out, (at, count))?;
            count += 1;
        }
    }
    out.push(b'}');
    Ok(())
}

/// One of an object, with so many before it.
fn write_pair(
    lua: &Lua,
    key: &Value,
    value: &Value,
    out: &mut Vec<u8>,
    (at, before): (At, usize),
) -> mlua::Result<()> {
    if before > 0 {
        out.push(b',');
    }
    match key {
        Value::String(key) => write_text(key, out)?,
        other => {
            return Err(fault(format!(
                "json.encode: an object's keys are strings, this one is a {}",
                other.type_name()
            )));
        }
    }
    out.push(b':');
    write(lua, value, out, at)
}

fn write_number(number: f64, out: &mut Vec<u8>) -> mlua::Result<()> {
    /// Up to here all whole numbers are exact.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if !number.is_finite() {
        return Err(fault("json.encode: NaN and infinity have no form in JSON"));
    }
    let result = if number.fract() == 0.0 && number.abs() < EXACT {
        serde_json::to_writer(out, &(number as i64))
    } else {
        serde_json::to_writer(out, &number)
    };
    result.map_err(|error| fault(error.to_string()))
}

fn write_text(text: &LuaString, out: &mut Vec<u8>) -> mlua::Result<()> {
    let bytes = text.as_bytes();
    let text = simdutf8::basic::from_utf8(&bytes)
        .map_err(|_| fault("json.encode: a string is not UTF-8"))?;
    serde_json::to_writer(out, text).map_err(|error| fault(error.to_string()))
}

/// The value of a JSON text.
///
/// # Errors
/// It is none, with line and column; or deeper than 128.
pub(crate) fn decode(lua: &Lua, text: &[u8]) -> mlua::Result<Value> {
    let value: serde_json::Value =
        serde_json::from_slice(text).map_err(|error| fault(format!("json.decode: {error}")))?;
    to_lua(lua, &value)
}

/// A parsed text as a value.
pub(crate) fn to_lua(lua: &Lua, value: &serde_json::Value) -> mlua::Result<Value> {
    Ok(match value {
        serde_json::Value::Null => lua.null(),
        serde_json::Value::Bool(value) => Value::Boolean(*value),
        serde_json::Value::Number(number) => Value::Number(number.as_f64().unwrap_or(f64::NAN)),
        serde_json::Value::String(text) => Value::String(lua.create_string(text)?),
        serde_json::Value::Array(values) => {
            let table = lua.create_table_with_capacity(values.len(), 0)?;
            for (index, value) in values.iter().enumerate() {
                table.raw_set(index + 1, to_lua(lua, value)?)?;
            }
            table.set_metatable(Some(lua.array_metatable()))?;
            Value::Table(table)
        }
        serde_json::Value::Object(pairs) => {
            let table = lua.create_table_with_capacity(0, pairs.len())?;
            for (key, value) in pairs {
                table.raw_set(key.as_str(), to_lua(lua, value)?)?;
            }
            Value::Table(table)
        }
    })
}
