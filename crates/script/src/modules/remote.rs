//! `veche.connection` and `veche.connections`: connections by id and by user. A connection of
//! another worker can only be sent to and closed.

use std::rc::Rc;

use mlua::{Lua, MultiValue, Table, Value};
use veche_calls::WorkerConnection;
use veche_types::WorkerId;
use veche_types::codes::{CloseCode, REASON_BYTES_MAX};

use super::argument::{Arguments, as_number};
use super::copy_limit::option_name;
use super::{fault, go_on, is_utf8};
use crate::host_context::HostContext;
use crate::{ConnectionId, MessageKind};
use veche_runtime::close::is_close_code;
use veche_runtime::{Effect, MESSAGE_BYTES_MAX};

/// The default and the maximum number of connections that a search returns.
const LIMIT: usize = 1000;
const LIMIT_MAX: f64 = 10_000.0;

/// The maximum length, in bytes, of a user name to search for.
const USER_BYTES_MAX: usize = 4096;

pub(super) fn install(lua: &Lua, context: &Rc<HostContext>, native: &Table) -> mlua::Result<()> {
    let far = lua.create_table()?;
    // Returns worker, index and generation of an id; nothing if it is invalid.
    let parse = lua.create_function(|_, values: MultiValue| {
        let arguments = Arguments::new("connection", values);
        let id = arguments.bytes(1)?;
        let id = std::str::from_utf8(&id).unwrap_or_default();
        Ok(match id.parse() {
            Ok(WorkerConnection { worker, connection }) => (
                Some(worker.0),
                Some(connection.index),
                Some(connection.generation),
            ),
            Err(_) => (None, None, None),
        })
    })?;
    far.set("parse", parse)?;
    let own = Rc::clone(context);
    let send = lua.create_function(move |_, mut values: MultiValue| {
        let (worker, to) = place(&mut values)?;
        let arguments = Arguments::new("send", values);
        let data = arguments.bytes(1)?;
        let kind = match arguments.at(2) {
            Value::Nil => MessageKind::Text,
            Value::String(kind) if *kind == "text" => MessageKind::Text,
            Value::String(kind) if *kind == "binary" => MessageKind::Binary,
            _ => return Err(arguments.bad(2, "\"text\" or \"binary\" expected")),
        };
        if data.len() > MESSAGE_BYTES_MAX {
            return Err(arguments.bad(1, "a message may have at most 16 MiB"));
        }
        if kind == MessageKind::Text && !is_utf8(&data)? {
            return Err(arguments.bad(
                1,
                "it is not UTF-8, so it can't be a text message; send it as \"binary\"",
            ));
        }
        let mut effects = own.world.effects.borrow_mut();
        let Some(data) = effects.store(&data) else {
            return Err(fault(
                "too much data is sent at once: wait between messages",
            ));
        };
        effects.list.push(Effect::SendFar {
            worker,
            to,
            kind,
            data,
        });
        Ok(true)
    })?;
    far.set("send", send)?;
    let own = Rc::clone(context);
    let close = lua.create_function(move |_, mut values: MultiValue| {
        let (worker, of) = place(&mut values)?;
        let arguments = Arguments::new("close", values);
        let what = "a close code of 1000 to 1003, 1007 to 1014 or 3000 to 4999";
        let code = arguments
            .number(1, [0.0, 65_535.0], what)?
            .unwrap_or_else(|| CloseCode::Normal.code().into());
        if !is_close_code(code) {
            return Err(arguments.bad(1, &format!("{what} expected")));
        }
        let reason = match arguments.at(2) {
            Value::Nil => String::new(),
            _ => {
                let reason = arguments.bytes(2)?;
                match std::str::from_utf8(&reason) {
                    Ok(reason) if reason.len() <= REASON_BYTES_MAX => reason.to_owned(),
                    _ => return Err(arguments.bad(2, "at most 123 bytes of UTF-8 expected")),
                }
            }
        };
        own.effect(Effect::CloseFar {
            worker,
            of,
            code: code as u16,
            reason,
        });
        Ok(true)
    })?;
    far.set("close", close)?;
    let own = Rc::clone(context);
    let find = lua.create_function(move |_, options: Value| {
        let (user, limit) = wanted(&options)?;
        Ok(own.find(user, limit).0 as f64)
    })?;
    far.set("find", find)?;
    native.set("far", far)
}

/// Returns the user to search for and the maximum number of results.
fn wanted(options: &Value) -> mlua::Result<(String, usize)> {
    let Value::Table(options) = options else {
        return Err(fault(
            "bad argument #1 to 'connections': a table expected: { user = … }",
        ));
    };
    let (mut user, mut limit) = (None, LIMIT);
    for pair in options.pairs::<Value, Value>() {
        let (key, value) = pair?;
        let key = match &key {
            Value::String(key) => option_name(key),
            other => other.to_string()?,
        };
        match (key.as_str(), &value) {
            ("user", Value::String(name)) if name.as_bytes().len() <= USER_BYTES_MAX => {
                let name = String::from_utf8(name.as_bytes().to_vec()).ok();
                user = name.filter(|name| !name.is_empty());
            }
            ("user", _) => {}
            ("limit", value) => {
                let number = as_number(value).filter(|number| number.fract() == 0.0);
                let number = number.filter(|number| (1.0..=LIMIT_MAX).contains(number));
                let whole = number.ok_or_else(|| {
                    fault("bad option limit to 'connections': a whole number from 1 to 10000 expected")
                })?;
                limit = whole as usize;
            }
            (other, _) => {
                return Err(fault(format!(
                    "bad argument #1 to 'connections': there is no option '{other}'"
                )));
            }
        }
    }
    let user = user.ok_or_else(|| {
        fault(
            "bad option user to 'connections': the name of a user expected, at most 4096 bytes of UTF-8",
        )
    })?;
    Ok((user, limit))
}

/// Returns worker, index and generation of each connection, in a flat list.
pub(super) fn to_lua(lua: &Lua, places: &[WorkerConnection]) -> mlua::Result<Table> {
    let table = lua.create_table_with_capacity(places.len() * 3, 0)?;
    for place in places {
        go_on()?;
        table.raw_push(place.worker.0)?;
        table.raw_push(place.connection.index)?;
        table.raw_push(place.connection.generation)?;
    }
    Ok(table)
}

/// Takes the first three arguments, which `lua/connections.lua` passes: worker, index and generation of a connection.
fn place(values: &mut MultiValue) -> mlua::Result<(WorkerId, ConnectionId)> {
    let mut next = || {
        let value = values.pop_front();
        let number = value.as_ref().and_then(as_number);
        number.ok_or_else(|| fault("a connection expected (call it with a colon)"))
    };
    let (worker, index, generation) = (WorkerId(next()? as u16), next()? as u32, next()? as u32);
    Ok((worker, ConnectionId { index, generation }))
}
