//! `veche.queue`: passes values between coroutines of any worker and any application.

use std::rc::Rc;
use std::sync::Arc;

use mlua::{IntoLuaMulti as _, Lua, MultiValue, Table, Value};
use veche_store::{PushResult, Queue, QueueItem, QueueOptions, WaitSide};

use super::argument::{Arguments, WHOLE_MAX, as_number};
use super::copy_limit::option_name;
use super::held_values::HeldValues;
use super::{fault, json};
use crate::host_context::HostContext;
use veche_runtime::Token;

/// The largest capacity of a queue.
const CAPACITY_MAX: f64 = 1e6;

/// The longest wait in seconds: a year.
const TIMEOUT_MAX_S: f64 = 31_536_000.0;

pub(super) fn install(lua: &Lua, context: &Rc<HostContext>, native: &Table) -> mlua::Result<()> {
    let held = HeldValues::default();
    let table = lua.create_table()?;
    let (own, own_held) = (Rc::clone(context), held.clone());
    let open = lua.create_function(move |lua, values: MultiValue| {
        let queue = open(&own, &Arguments::new("queue", values))?;
        own_held.keep(lua, queue)
    })?;
    table.set("open", open)?;

    // If successful, `push` returns true, and `pop` returns true and the value. Otherwise both return false, followed
    // by the token of a new wait if `until_s` is not false.
    let (own, own_held) = (Rc::clone(context), held.clone());
    let push = lua.create_function(move |lua, (number, value, until_s): (f64, Value, Value)| {
        let queue = find(&own_held, number)?;
        let too_large = || {
            fault(format!(
                "bad argument #1 to 'queue:push': the value is larger than the queue's {} bytes",
                queue.options().bytes_max
            ))
        };
        // A string that is too large is rejected before it is copied.
        if matches!(&value, Value::String(text) if text.as_bytes().len() > queue.options().bytes_max)
        {
            return Err(too_large());
        }
        let item = queue_item(lua, &value)?;
        let token = until_s.as_boolean().is_none().then(|| own.token());
        let waiter = token.map(|token| own.world.queues.waiter(token));
        match queue.push(item, waiter) {
            PushResult::Pushed => true.into_lua_multi(lua),
            PushResult::TooLarge => Err(too_large()),
            PushResult::Full(_) => wait(lua, &own, token, queue, WaitSide::Push, &until_s),
        }
    })?;
    table.set("push", push)?;
    let (own, own_held) = (Rc::clone(context), held.clone());
    let pop = lua.create_function(move |lua, (number, until_s): (f64, Value)| {
        let queue = find(&own_held, number)?;
        let token = until_s.as_boolean().is_none().then(|| own.token());
        let waiter = token.map(|token| own.world.queues.waiter(token));
        match queue.pop(waiter) {
            Some(item) => (true, to_lua(lua, item)?).into_lua_multi(lua),
            None => wait(lua, &own, token, queue, WaitSide::Pop, &until_s),
        }
    })?;
    table.set("pop", pop)?;
    let own = Rc::clone(context);
    let leave = lua.create_function(move |_, (token, comes): (f64, bool)| {
        own.world.queues.end(Token(token as u64), comes);
        Ok(())
    })?;
    table.set("leave", leave)?;
    let count = lua.create_function(move |_, number: f64| Ok(find(&held, number)?.len() as f64))?;
    table.set("count", count)?;
    // Returns the time in seconds at which a wait of `timeout` seconds ends, or nil if there is no timeout.
    let own = Rc::clone(context);
    let deadline = lua.create_function(
        move |_, (function, place, timeout): (mlua::LuaString, usize, Value)| {
            let now_s = own.world.now.get().mono_ms as f64 / 1000.0;
            match as_number(&timeout) {
                None if timeout.is_nil() => Ok(None),
                Some(seconds) if (0.0..=TIMEOUT_MAX_S).contains(&seconds) => {
                    Ok(Some(now_s + seconds))
                }
                _ => Err(fault(format!(
                    "bad argument #{place} to '{}': a number of seconds from 0 to 31536000 expected",
                    function.to_string_lossy()
                ))),
            }
        },
    )?;
    table.set("deadline", deadline)?;
    native.set("queue", table)
}

fn find(held: &HeldValues<Arc<Queue>>, number: f64) -> mlua::Result<Arc<Queue>> {
    held.get(number)
        .ok_or_else(|| fault("there is no queue with that number"))
}

/// Begins a wait with `token`, and returns false and the token's number. If `token` is `None`, begins no wait and returns
/// only false. The wait ends at the time `until_s` in seconds, or has no time limit if `until_s` is not a number.
fn wait(
    lua: &Lua,
    context: &HostContext,
    token: Option<Token>,
    queue: Arc<Queue>,
    side: WaitSide,
    until_s: &Value,
) -> mlua::Result<MultiValue> {
    let Some(token) = token else {
        return false.into_lua_multi(lua);
    };
    context.world.queues.begin(token, queue, side);
    if let Some(until_s) = as_number(until_s) {
        context.wake_at((until_s * 1000.0).ceil() as u64, token);
    }
    (false, token.0 as f64).into_lua_multi(lua)
}

fn open(context: &HostContext, arguments: &Arguments) -> mlua::Result<Arc<Queue>> {
    let name = arguments.bytes(1)?;
    let options = match arguments.at(2) {
        Value::Nil => None,
        Value::Table(table) => Some(options(arguments, table)?),
        _ => return Err(arguments.expected(2, "a table of options")),
    };
    let queue = context.world.store.queue(&name, options);
    queue.map_err(|error| arguments.bad(1, &error.to_string()))
}

fn options(arguments: &Arguments, table: &Table) -> mlua::Result<QueueOptions> {
    let mut options = QueueOptions::default();
    for pair in table.pairs::<Value, Value>() {
        let (name, value) = pair?;
        let name = match &name {
            Value::String(name) => option_name(name),
            _ => String::new(),
        };
        let whole = |least: f64, most: f64| {
            as_number(&value).filter(|value| (least..=most).contains(value) && value.fract() == 0.0)
        };
        match name.as_str() {
            "capacity" => match whole(1.0, CAPACITY_MAX) {
                Some(capacity) => options.capacity = capacity as usize,
                None => {
                    let expected = "capacity: a whole number from 1 to 1000000 expected";
                    return Err(arguments.bad(2, expected));
                }
            },
            "bytes_max" => match whole(1024.0, WHOLE_MAX) {
                Some(bytes) => options.bytes_max = bytes as usize,
                None => {
                    let expected = "bytes_max: a whole number of at least 1024 expected";
                    return Err(arguments.bad(2, expected));
                }
            },
            _ => return Err(arguments.bad(2, "the options are capacity and bytes_max")),
        }
    }
    Ok(options)
}

fn queue_item(lua: &Lua, value: &Value) -> mlua::Result<QueueItem> {
    let mut is_json = false;
    let value = match value {
        Value::Boolean(value) => veche_store::Value::Boolean(*value),
        Value::Integer(value) => veche_store::Value::Number(*value as f64),
        Value::Number(value) => veche_store::Value::Number(*value),
        Value::String(text) => veche_store::Value::Bytes((&*text.as_bytes()).into()),
        Value::Table(_) => {
            is_json = true;
            veche_store::Value::Bytes(json::encode(lua, value)?.into())
        }
        other => {
            return Err(fault(format!(
                "bad argument #1 to 'queue:push': a string, a number, a boolean or a table for JSON expected, not {}",
                other.type_name()
            )));
        }
    };
    Ok(QueueItem { value, is_json })
}

fn to_lua(lua: &Lua, item: QueueItem) -> mlua::Result<Value> {
    Ok(match item.value {
        veche_store::Value::Boolean(value) => Value::Boolean(value),
        veche_store::Value::Number(value) => Value::Number(value),
        veche_store::Value::Bytes(text) if item.is_json => json::decode(lua, &text)?,
        veche_store::Value::Bytes(bytes) => Value::String(lua.create_string(bytes)?),
    })
}
