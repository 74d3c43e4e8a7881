//! `veche.json`: encodes and decodes JSON.
//!
//! A table with the keys 1 to n is an array, any other table an object. An empty table is an object unless it was made
//! by `json.array`. JSON's `null` is `json.null`, since a table can't hold nil. Integers that Lua can't represent
//! exactly are decoded as strings of their digits.

mod reading;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use mlua::{Lua, LuaSerdeExt as _, LuaString, Table, Value};

use super::argument::WHOLE_MAX;
use super::{fault, go_on};
use reading::read;

/// The deepest nesting of tables.
const DEPTH_MAX: usize = 128;

/// The approximate maximum length of the text that one call of `json.encode` writes, in bytes.
pub(super) const TEXT_BYTES_MAX: usize = 8 << 20;
const TOO_LONG: &str = "json.encode: the text is longer than 8 MiB";

/// The longest text to decode, in bytes. Decoding a string can need as many bytes again outside of Lua's memory.
const READ_BYTES_MAX: usize = 16 << 20;

/// The number of keys of an object that are sorted in one part.
const KEYS_AT_ONCE: usize = 1024;

/// The number of bytes of a string that are written between two checks of the CPU budget.
const PART_BYTES: usize = 64 << 10;

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

/// Encodes a value as JSON.
///
/// # Errors
/// The value contains a function, a coroutine, NaN, infinity, a string that is not UTF-8, or a table that is neither an
/// array nor an object with string keys. Or tables are nested deeper than 128, or the text is too long.
pub(crate) fn encode(lua: &Lua, value: &Value) -> mlua::Result<Vec<u8>> {
    let mut out = Vec::with_capacity(128);
    write(lua, value, &mut out, 0)?;
    Ok(out)
}

fn write(lua: &Lua, value: &Value, out: &mut Vec<u8>, depth: usize) -> mlua::Result<()> {
    go_on()?;
    if out.len() > TEXT_BYTES_MAX {
        return Err(fault(TOO_LONG));
    }
    match value {
        Value::Nil => out.extend_from_slice(b"null"),
        value if *value == lua.null() => out.extend_from_slice(b"null"),
        Value::Boolean(true) => out.extend_from_slice(b"true"),
        Value::Boolean(false) => out.extend_from_slice(b"false"),
        Value::Integer(number) => write_number(*number as f64, out)?,
        Value::Number(number) => write_number(*number, out)?,
        Value::String(text) => write_text(&text.as_bytes(), out)?,
        Value::Table(table) => {
            if depth == DEPTH_MAX {
                return Err(fault(
                    "json.encode: tables are nested deeper than 128 levels, or a table contains itself",
                ));
            }
            write_table(lua, table, out, depth + 1)?;
        }
        other => {
            return Err(fault(format!(
                "json.encode: a {} can't be represented in JSON",
                other.type_name()
            )));
        }
    }
    Ok(())
}

fn write_table(lua: &Lua, table: &Table, out: &mut Vec<u8>, depth: usize) -> mlua::Result<()> {
    let length = table.raw_len();
    let is_array = length > 0
        || table
            .metatable()
            .is_some_and(|metatable| metatable == lua.array_metatable());
    if is_array {
        let mut count = 0;
        out.push(b'[');
        for value in table.sequence_values::<Value>() {
            if count > 0 {
                out.push(b',');
            }
            write(lua, &value?, out, depth)?;
            count += 1;
        }
        out.push(b']');
        let mut keys = 0;
        for _ in table.pairs::<Value, Value>() {
            go_on()?;
            keys += 1;
        }
        if count != length || keys != length {
            return Err(fault(
                "json.encode: a table has keys besides 1 to n, or gaps: it is neither an array nor an object",
            ));
        }
        return Ok(());
    }
    // The order of `pairs` differs between VMs. Sorted keys make the text the same on every worker
    // and keep deltas between texts small.
    let mut pairs = Vec::new();
    for pair in table.pairs::<Value, Value>() {
        let (key, value) = pair?;
        go_on()?;
        pairs.push((object_key(key)?, value));
        if pairs.len() > KEYS_AT_ONCE {
            drop(pairs);
            return write_large_object(lua, table, out, depth);
        }
    }
    pairs.sort_unstable_by(|(one, _), (other, _)| {
        let (one, other) = (one.as_bytes(), other.as_bytes());
        one[..].cmp(&other[..])
    });
    out.push(b'{');
    for (place, (key, value)) in pairs.iter().enumerate() {
        if place > 0 {
            out.push(b',');
        }
        write_text(&key.as_bytes(), out)?;
        out.push(b':');
        write(lua, value, out, depth)?;
    }
    out.push(b'}');
    Ok(())
}

fn object_key(key: Value) -> mlua::Result<LuaString> {
    match key {
        Value::String(key) => Ok(key),
        other => Err(fault(format!(
            "json.encode: an object's keys must be strings, not a {}",
            other.type_name()
        ))),
    }
}

/// Writes an object of any size. Its keys are sorted in parts, which are merged while writing.
/// Values are read from the table only when they are written, since `mlua` can hold references to
/// only a few thousand.
fn write_large_object(
    lua: &Lua,
    table: &Table,
    out: &mut Vec<u8>,
    depth: usize,
) -> mlua::Result<()> {
    let (mut bytes, mut keys) = (Vec::new(), Vec::<Range<u32>>::new());
    for pair in table.pairs::<Value, Value>() {
        go_on()?;
        let from = bytes.len() as u32;
        bytes.extend_from_slice(&object_key(pair?.0)?.as_bytes());
        if bytes.len() > TEXT_BYTES_MAX {
            return Err(fault(TOO_LONG));
        }
        keys.push(from..bytes.len() as u32);
    }
    let text = |key: &Range<u32>| &bytes[key.start as usize..key.end as usize];
    let mut parts = Vec::with_capacity(keys.len().div_ceil(KEYS_AT_ONCE));
    for part in keys.chunks_mut(KEYS_AT_ONCE) {
        go_on()?;
        part.sort_unstable_by(|one, other| text(one).cmp(text(other)));
        parts.push(part.iter());
    }
    let mut next = BinaryHeap::with_capacity(parts.len());
    for (place, part) in parts.iter_mut().enumerate() {
        next.extend(part.next().map(|key| Reverse((text(key), place))));
    }
    let mut separator = b'{';
    while let Some(Reverse((key, place))) = next.pop() {
        out.push(std::mem::replace(&mut separator, b','));
        write_text(key, out)?;
        out.push(b':');
        let value: Value = table.raw_get(lua.create_string(key)?)?;
        write(lua, &value, out, depth)?;
        next.extend(parts[place].next().map(|key| Reverse((text(key), place))));
    }
    out.push(b'}');
    Ok(())
}

fn write_number(number: f64, out: &mut Vec<u8>) -> mlua::Result<()> {
    /// Integers below this limit are written without an exponent, as in JavaScript.
    const DIGITS_BELOW: f64 = 1e21;
    if !number.is_finite() {
        return Err(fault(
            "json.encode: NaN and infinity can't be represented in JSON",
        ));
    }
    let result = if number.fract() == 0.0 && number.abs() <= WHOLE_MAX {
        serde_json::to_writer(out, &(number as i64))
    } else if number.fract() == 0.0 && number.abs() < DIGITS_BELOW {
        serde_json::to_writer(out, &(number as i128))
    } else {
        serde_json::to_writer(out, &number)
    };
    result.map_err(|error| fault(error.to_string()))
}

fn write_text(text: &[u8], out: &mut Vec<u8>) -> mlua::Result<()> {
    if out.len() + text.len() > TEXT_BYTES_MAX {
        return Err(fault(TOO_LONG));
    }
    let text = simdutf8::basic::from_utf8(text)
        .map_err(|_| fault("json.encode: a string is not UTF-8"))?;
    let quote = |text: &str, out: &mut Vec<u8>| {
        serde_json::to_writer(out, text).map_err(|error| fault(error.to_string()))
    };
    if text.len() <= PART_BYTES {
        return quote(text, out);
    }
    out.push(b'"');
    let mut rest = text;
    while !rest.is_empty() {
        go_on()?;
        let (part, behind) = rest.split_at(rest.floor_char_boundary(PART_BYTES));
        let begin = out.len();
        quote(part, out)?;
        // Removes the quotes that were written around this part.
        out.remove(begin);
        out.pop();
        // The length is checked after escaping, which can make the text six times as long.
        if out.len() > TEXT_BYTES_MAX {
            return Err(fault(TOO_LONG));
        }
        rest = behind;
    }
    out.push(b'"');
    Ok(())
}

/// Decodes a JSON text.
///
/// # Errors
/// The text is invalid (the error contains line and column), is nested deeper than 128, or is
/// longer than 16 MiB.
pub(crate) fn decode(lua: &Lua, text: &[u8]) -> mlua::Result<Value> {
    if text.len() > READ_BYTES_MAX {
        return Err(fault("json.decode: the text is longer than 16 MiB"));
    }
    let (value, has_huge) = read(lua, text)?;
    // The text may have an integer beyond 64 bits, for which the parser has returned the nearest float. So the text is
    // read again, with long integers as strings.
    match has_huge {
        true => Ok(read(lua, &quote_long_numbers(text)?)?.0),
        false => Ok(value),
    }
}

/// Replaces integers of 19 digits or more in a valid text by strings.
fn quote_long_numbers(text: &[u8]) -> mlua::Result<Vec<u8>> {
    const DIGITS_MIN: usize = 19;
    let mut quoted = Vec::with_capacity(text.len() + 64);
    let (mut rest, mut is_text, mut looked_at) = (text, false, text.len());
    while let Some(&byte) = rest.first() {
        if looked_at - rest.len() >= PART_BYTES {
            looked_at = rest.len();
            go_on()?;
        }
        let length = match byte {
            b'\\' if is_text => 2,
            b'-' | b'0'..=b'9' if !is_text => {
                let is_part =
                    |byte: &u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
                rest.iter()
                    .position(|byte| !is_part(byte))
                    .unwrap_or(rest.len())
            }
            _ => 1,
        };
        let (token, behind) = rest.split_at(length.min(rest.len()));
        is_text ^= token == b"\"";
        let digits = token.strip_prefix(b"-").unwrap_or(token);
        if digits.len() >= DIGITS_MIN && digits.iter().all(u8::is_ascii_digit) {
            quoted.push(b'"');
            quoted.extend_from_slice(token);
            quoted.push(b'"');
        } else {
            quoted.extend_from_slice(token);
        }
        rest = behind;
    }
    Ok(quoted)
}

/// Converts a parsed value to Lua.
pub(crate) fn to_lua(lua: &Lua, value: &serde_json::Value) -> mlua::Result<Value> {
    Ok(match value {
        serde_json::Value::Null => lua.null(),
        serde_json::Value::Bool(value) => Value::Boolean(*value),
        serde_json::Value::Number(number) => number_to_lua(lua, number)?,
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

fn number_to_lua(lua: &Lua, number: &serde_json::Number) -> mlua::Result<Value> {
    if number.is_f64() {
        return Ok(Value::Number(number.as_f64().unwrap_or(f64::NAN)));
    }
    match number.as_i64() {
        Some(whole) => whole_to_lua(lua, whole),
        None => lua.create_string(number.to_string()).map(Value::String),
    }
}

/// Converts an integer to a Lua number, which is exact up to ±2^53. An integer beyond that becomes a string of digits.
/// Integers from tables and databases are converted in the same way.
fn whole_to_lua<N: Into<i128>>(lua: &Lua, number: N) -> mlua::Result<Value> {
    let whole = number.into();
    match whole.unsigned_abs() <= WHOLE_MAX as u128 {
        true => Ok(Value::Number(whole as f64)),
        false => lua.create_string(whole.to_string()).map(Value::String),
    }
}
