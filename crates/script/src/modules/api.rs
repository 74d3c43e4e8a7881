//! `veche.api`, and `veche.publish` with options: the server API without HTTP.
//!
//! Parameters and results are JSON, as over HTTP. They are validated by the code that executes the method.

use std::rc::Rc;

use mlua::{IntoLuaMulti as _, Lua, LuaString, MultiValue, Table, Value};
use veche_calls::CallErrorKind;

use super::argument::Arguments;
use super::copy_limit::option_name;
use super::core::{channel_name, user_channel_name};
use super::{fault, go_on, json};
use crate::host_context::HostContext;
use veche_runtime::call_errors::{FULL, tagged};

/// Options of `veche.publish` and `veche.push`. They become parameters of the API methods `publish` and `push`.
const OPTIONS: [&str; 7] = [
    "delta",
    "idempotency_key",
    "kind",
    "skip_history",
    "tags",
    "version",
    "version_epoch",
];

pub(super) fn install(lua: &Lua, context: &Rc<HostContext>, native: &Table) -> mlua::Result<()> {
    let own = Rc::clone(context);
    let command = lua.create_function(move |lua, (method, mut values): (String, MultiValue)| {
        let object = values.pop_front().unwrap_or(Value::Nil);
        if !values.is_empty() {
            return Err(fault(format!(
                "bad argument #2 to 'api.{method}': expected a table as the only argument"
            )));
        }
        let body = match &object {
            Value::Nil => Vec::new(),
            Value::Table(object) => {
                check_channels(object)?;
                json::encode(lua, &Value::Table(object.clone()))?
            }
            other => {
                let kind = other.type_name();
                return Err(fault(format!(
                    "bad argument #1 to 'api.{method}': a table expected, not {kind}"
                )));
            }
        };
        begin(&own, &method, &body)
    })?;
    native.set("command", command)?;
    for (name, function, field) in [
        ("publish_with", "publish", "channel"),
        ("push_with", "push", "user"),
    ] {
        let own = Rc::clone(context);
        let publish = lua.create_function(move |lua, values: MultiValue| {
            let arguments = Arguments::new(function, values);
            let object = publication(lua, &arguments, field)?;
            let body = json::encode(lua, &Value::Table(object))?;
            begin(&own, function, &body)
        })?;
        native.set(name, publish)?;
    }
    Ok(())
}

fn begin(context: &HostContext, method: &str, body: &[u8]) -> mlua::Result<f64> {
    let token = context.command(method.to_owned(), body);
    let full = || {
        tagged(
            "too much data is sent at once: wait between messages",
            FULL,
            None,
        )
    };
    let token = token.ok_or_else(|| fault(full()))?;
    Ok(token.0 as f64)
}

/// Rejects personal channels, which must not be addressed by a name that a client may have chosen.
fn check_channels(object: &Table) -> mlua::Result<()> {
    if let Value::String(channel) = object.raw_get("channel")? {
        channel_name(&channel)?;
    }
    if let Value::Table(channels) = object.raw_get("channels")? {
        for channel in channels.sequence_values::<Value>() {
            go_on()?;
            if let Value::String(channel) = channel? {
                channel_name(&channel)?;
            }
        }
    }
    Ok(())
}

/// Returns the parameters of `publish(channel, data, options)` or `push(user, data, options)`.
fn publication(lua: &Lua, arguments: &Arguments, field: &str) -> mlua::Result<Table> {
    let object = lua.create_table()?;
    let to = arguments.string(1)?;
    match field {
        "channel" => channel_name(to)?,
        _ => user_channel_name(lua, to)?,
    };
    object.raw_set(field, to)?;
    let Value::Table(options) = arguments.at(3) else {
        return Err(arguments.expected(3, "a table of options"));
    };
    if arguments.count() > 3 {
        return Err(arguments.bad(4, "no further argument expected"));
    }
    let mut kind = None;
    for pair in options.pairs::<Value, Value>() {
        let (key, value) = pair?;
        let name = match &key {
            Value::String(key) => option_name(key),
            other => other.to_string()?,
        };
        match (name.as_str(), value) {
            ("kind", Value::String(value)) => kind = Some(value),
            (known, value) if known != "kind" && OPTIONS.contains(&known) => {
                object.raw_set(known, value)?;
            }
            ("kind", _) => return Err(arguments.bad(3, "kind: \"text\" or \"binary\" expected")),
            (other, _) => {
                return Err(arguments.bad(3, &format!("there is no option '{other}'")));
            }
        }
    }
    let data = arguments.at(2);
    let kind = kind.as_ref().map(LuaString::as_bytes);
    match (data, kind.as_deref()) {
        (Value::String(data), Some(b"binary")) => {
            let data = data.as_bytes();
            if data.len() > json::TEXT_BYTES_MAX / 4 * 3 {
                return Err(arguments.bad(2, "at most 6 MiB of binary data expected"));
            }
            object.raw_set("binary", super::base64::standard(&data))?;
        }
        (Value::Table(_), Some(b"binary")) => {
            return Err(arguments.bad(2, "a table can only be published as text (JSON)"));
        }
        (Value::String(_) | Value::Table(_), None | Some(b"text")) => {
            object.raw_set("data", data)?;
        }
        (Value::String(_) | Value::Table(_), Some(_)) => {
            return Err(arguments.bad(3, "kind: \"text\" or \"binary\" expected"));
        }
        _ => return Err(arguments.expected(2, "a string, or a table for JSON,")),
    }
    Ok(object)
}

/// Returns `true` and the result, or `false` with the message and the error table.
pub(super) fn to_lua(lua: &Lua, body: &[u8]) -> mlua::Result<MultiValue> {
    let Value::Table(answer) = json::decode(lua, body)? else {
        return Err(fault("the response is not an object"));
    };
    let result: Value = answer.raw_get("result")?;
    if let Value::Table(result) = result {
        return (true, result).into_lua_multi(lua);
    }
    let error: Table = answer.raw_get("error")?;
    let words: String = error.raw_get("message")?;
    let kind = CallErrorKind::Refused.name();
    (false, tagged(&words, kind, error.raw_get("code")?), kind).into_lua_multi(lua)
}
