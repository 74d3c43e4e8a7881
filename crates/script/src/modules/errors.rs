//! `veche.error`: the classification of errors for Lua.

use mlua::{Lua, Table, Value};
use veche_runtime::call_errors::{CodeValue, ErrorInfo, SCRIPT, read};

/// The maximum number of bytes of an error text that are examined; the error texts of calls are
/// shorter.
const WORDS_BYTES_MAX: usize = 64 << 10;

pub(super) fn install(lua: &Lua, native: &Table) -> mlua::Result<()> {
    let about = lua.create_function(|lua, error: Value| {
        let table = lua.create_table_with_capacity(0, 4)?;
        let Value::String(words) = &error else {
            table.raw_set("kind", SCRIPT)?;
            table.raw_set("retryable", false)?;
            // The error is neither a text nor a number, so only its metatable could provide a text.
            let words = match &error {
                Value::Error(error) => super::words(error),
                Value::Table(_) | Value::UserData(_) => {
                    format!("an error object of type {}", error.type_name())
                }
                other => other.to_string()?,
            };
            table.raw_set("message", words)?;
            return Ok(table);
        };
        let words = words.as_bytes();
        let words = String::from_utf8_lossy(&words[..words.len().min(WORDS_BYTES_MAX)]);
        let ErrorInfo {
            kind,
            code,
            is_retryable,
            message,
        } = read(&words);
        table.raw_set("kind", kind)?;
        table.raw_set("retryable", is_retryable)?;
        table.raw_set("message", message)?;
        match code {
            None => {}
            Some(CodeValue::Number(number)) => table.raw_set("code", f64::from(number))?,
            Some(CodeValue::Name(name)) => table.raw_set("code", name)?,
        }
        Ok(table)
    })?;
    native.set("about_error", about)
}
