//! `veche.redis`: Redis commands, and their replies as values. `lua/redis.lua` does the waiting.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use mlua::{Lua, LuaSerdeExt as _, MultiValue, Table, Value};
use veche_calls::redis::{Fate, RedisAction, RedisCommand, RedisDatabase, RedisReply, RedisValue};
use veche_calls::{Call, CallErrorKind, Databases, RedisCall};

use super::argument::{Arguments, WHOLE_MAX, as_number};
use super::copy_limit::text_bytes;
use super::growing_list::GrowingList;
use super::server::{self, NamedOptions, ServerKind};
use super::{fault, go_on, words};
use crate::host_context::HostContext;
use veche_runtime::Token;
use veche_runtime::call_errors::tagged;

const KIND: ServerKind = ServerKind {
    function: "redis.connect",
    schemes: ["redis", "rediss"],
    port: 6379,
    options: &["pool", "pool_name", "wait_timeout", "idle_timeout", "queue"],
};

/// Maximum number of Redis servers that one VM may use.
const KEYSPACES_MAX: usize = 256;

/// Limit of the size of one call's commands in bytes, including the length of each argument.
const COMMANDS_BYTES_MAX: usize = 16 << 20;

/// The number of bytes that the length of an argument occupies.
const LENGTH_BYTES: usize = 4;

/// Maximum number of commands in one pipeline.
const COMMANDS_MAX: usize = 10_000;

/// Maximum number of channels in one subscription.
const NAMES_MAX: usize = 1_000;

/// Maximum total length of the channel names in one subscription, in bytes.
const NAMES_BYTES_MAX: usize = 1 << 20;

/// The longest wait for a message in seconds: a year.
const WAIT_MAX_S: f64 = 31_536_000.0;

pub(super) fn install(
    lua: &Lua,
    context: &Rc<HostContext>,
    native: &Table,
    configured: &Arc<Databases>,
) -> mlua::Result<()> {
    let keyspaces = context.keyspaces.clone();
    let table = lua.create_table()?;
    let (known, configured) = (keyspaces.clone(), Arc::clone(configured));
    table.set(
        "connect",
        lua.create_function(move |_, argument: Value| connect(&known, &configured, &argument))?,
    )?;
    // Arguments: the number of a Redis server, then the command, whose name is in capitals.
    let (own, known) = (Rc::clone(context), keyspaces.clone());
    let run = lua.create_function(move |lua, mut values: MultiValue| {
        let keyspace = known.find_first(&mut values)?;
        let mut command = RedisCommand::default();
        let arguments = Arguments::new("redis:call", values);
        for number in 1..=arguments.count() {
            let bytes_max = COMMANDS_BYTES_MAX;
            push(lua, &mut command, arguments.at(number), bytes_max).map_err(|why| {
                // The error counts arguments from the first one after the command's name.
                let name = String::from_utf8_lossy(name_of(&command)).to_lowercase();
                fault(format!(
                    "bad argument #{} to 'redis:{name}': {why}",
                    number - 1
                ))
            })?;
        }
        let action = match command.fate() {
            Fate::Shared => RedisAction::Run(command),
            Fate::Blocking => RedisAction::Block(command),
            Fate::Refused(why) => {
                let name = String::from_utf8_lossy(name_of(&command));
                return Err(fault(format!("redis: {name} can't be called: {why}")));
            }
        };
        ask(&own, keyspace, action)
    })?;
    table.set("run", run)?;
    let (own, known) = (Rc::clone(context), keyspaces.clone());
    let pipeline = lua.create_function(move |lua, values: MultiValue| {
        let function = if values.get(1) == Some(&Value::Boolean(true)) {
            "redis:transaction"
        } else {
            "redis:pipeline"
        };
        let mut values = values;
        let keyspace = known.find_first(&mut values)?;
        let is_atomic = values.pop_front() == Some(Value::Boolean(true));
        let commands = commands(lua, &Arguments::new(function, values))?;
        let action = RedisAction::Pipeline {
            commands,
            is_atomic,
        };
        ask(&own, keyspace, action)
    })?;
    table.set("pipeline", pipeline)?;
    let (own, known) = (Rc::clone(context), keyspaces.clone());
    let subscribe = lua.create_function(move |_, mut values: MultiValue| {
        let keyspace = known.find_first(&mut values)?;
        let are_patterns = values.pop_front() == Some(Value::Boolean(true));
        let function = if are_patterns {
            "redis:psubscribe"
        } else {
            "redis:subscribe"
        };
        let arguments = Arguments::new(function, values);
        if arguments.count() > NAMES_MAX {
            return Err(arguments.bad(NAMES_MAX + 1, "at most 1000 channels expected"));
        }
        let (mut names, mut bytes) = (Vec::new(), 0);
        for number in 1..=arguments.count().max(1) {
            let name = arguments.bytes(number)?;
            bytes += name.len();
            if bytes > NAMES_BYTES_MAX {
                return Err(
                    arguments.bad(number, "channel names of at most 1 MiB in total expected")
                );
            }
            names.push(name.to_vec());
        }
        let action = RedisAction::Subscribe {
            names,
            are_patterns,
        };
        ask(&own, keyspace, action)
    })?;
    table.set("subscribe", subscribe)?;
    let own = Rc::clone(context);
    let receive = lua.create_function(move |_, mut values: MultiValue| {
        let keyspace = keyspaces.find_first(&mut values)?;
        let lease = values.pop_front().as_ref().and_then(as_number);
        let lease = lease.and_then(|lease| own.leases.get(lease));
        let lease = lease.ok_or_else(|| fault("redis: the subscription has ended"))?;
        let arguments = Arguments::new("subscription:receive", values);
        let what = "a number of seconds from 0 to 31536000";
        let within = arguments.number(1, [0.0, WAIT_MAX_S], what)?;
        let within = within.map(Duration::from_secs_f64);
        ask(&own, keyspace, RedisAction::Receive { lease, within })
    })?;
    table.set("receive", receive)?;
    native.set("redis", table)
}

/// Returns the command's name, which is its first part.
fn name_of(command: &RedisCommand) -> &[u8] {
    command.parts().next().unwrap_or_default()
}

fn ask(
    context: &HostContext,
    keyspace: Arc<RedisDatabase>,
    action: RedisAction,
) -> mlua::Result<f64> {
    let token = context.call(Call::Redis(RedisCall { keyspace, action }))?;
    Ok(token.0 as f64)
}

/// Starts a command whose parts are all strings, if it can use the shared connection.
pub(crate) fn begin_plain<'a>(
    context: &HostContext,
    number: f64,
    parts: impl Iterator<Item = &'a [u8]> + Clone,
) -> Option<Token> {
    let keyspace = context.keyspaces.find(number).ok()?;
    let bytes = parts.clone().map(<[u8]>::len).sum();
    if bytes > COMMANDS_BYTES_MAX {
        return None;
    }
    let mut command = RedisCommand::with_capacity(parts.clone().count(), bytes);
    for part in parts {
        command.push(part);
    }
    if command.fate() != Fate::Shared {
        return None;
    }
    let action = RedisAction::Run(command);
    // If the call would exceed the limit of sent bytes, the caller gets `None` and uses the function for all other
    // commands, which reports the error.
    context
        .call(Call::Redis(RedisCall { keyspace, action }))
        .ok()
}

/// Returns the number of the Redis server that the argument describes. Adds the server to `keyspaces` if it is new.
fn connect(
    keyspaces: &GrowingList<RedisDatabase>,
    configured: &Databases,
    argument: &Value,
) -> mlua::Result<f64> {
    let keyspace = match server::configured(&configured.redis, argument) {
        Some(keyspace) => keyspace,
        None => described(argument)?,
    };
    let number = keyspaces.keep_equal(keyspace, KEYSPACES_MAX);
    number.ok_or_else(|| fault("redis.connect: the limit of 256 different servers is reached"))
}

/// Returns the Redis server that a URL or a table describes.
fn described(argument: &Value) -> mlua::Result<RedisDatabase> {
    let mut options = NamedOptions::read(&KIND, argument)?;
    Ok(RedisDatabase {
        server: options.server()?,
        database: options.whole("database", [0, 1_000_000], 0)? as u32,
        pool_name: options.name("pool_name")?,
        pool: options.whole("pool", [1, 10_000], 10)?,
        connect_timeout: options.time("connect_timeout", 5.0)?,
        wait_timeout: options.time("wait_timeout", 10.0)?,
        timeout: options.time("timeout", 5.0)?,
        idle_timeout: options.time("idle_timeout", 300.0)?,
        queue: options.whole("queue", [1, 1_000_000], 10_000)?,
    })
}

/// Adds an argument to `command`. Fails if the command would then have more than `bytes_max` bytes.
/// An error about the argument names the accepted types.
fn push(
    lua: &Lua,
    command: &mut RedisCommand,
    value: &Value,
    bytes_max: usize,
) -> Result<(), String> {
    go_on().map_err(|error| words(&error))?;
    if command.packed_bytes() + LENGTH_BYTES + text_bytes(value) > bytes_max {
        return Err("the commands of a call may have at most 16 MiB".to_owned());
    }
    let found = match value {
        Value::String(text) => {
            command.push(&text.as_bytes());
            return Ok(());
        }
        value if *value == lua.null() => "veche.null",
        value => match as_number(value) {
            // Integers are written without an exponent, and other numbers with all digits that are needed
            // to parse the same number.
            Some(number) if number.fract() == 0.0 && number.abs() <= WHOLE_MAX => {
                command.push((number as i64).to_string().as_bytes());
                return Ok(());
            }
            Some(number) if number.is_finite() => {
                command.push(number.to_string().as_bytes());
                return Ok(());
            }
            Some(_) => "NaN or infinity",
            None => value.type_name(),
        },
    };
    Err(format!("a string or a number expected, not {found}"))
}

/// Returns the commands of a pipeline.
fn commands(lua: &Lua, arguments: &Arguments) -> mlua::Result<Vec<RedisCommand>> {
    const WHAT: &str =
        "a list of commands expected, such as { { \"set\", \"key\", 1 }, { \"get\", \"key\" } }";
    let Value::Table(list) = arguments.at(1) else {
        return Err(arguments.bad(1, WHAT));
    };
    let count = list.raw_len();
    if count == 0 {
        return Err(arguments.bad(1, WHAT));
    }
    if count > COMMANDS_MAX {
        return Err(arguments.bad(1, "a pipeline may have at most 10000 commands"));
    }
    let mut commands = Vec::with_capacity(count);
    let mut bytes = 0;
    for place in 1..=count {
        let bad = |why: &str| arguments.bad(1, &format!("command {place}: {why}"));
        let Value::Table(parts) = list.raw_get(place)? else {
            return Err(bad("a table expected"));
        };
        let mut command = RedisCommand::default();
        let mut is_named = false;
        for part in 1..=parts.raw_len() {
            let value: Value = parts.raw_get(part)?;
            if part == 1 {
                is_named = matches!(&value, Value::String(text) if !text.as_bytes().is_empty());
            }
            push(lua, &mut command, &value, COMMANDS_BYTES_MAX - bytes)
                .map_err(|why| bad(&format!("argument {}: {why}", part - 1)))?;
        }
        if !is_named {
            return Err(bad(
                "the first element of a command must be its name, a string",
            ));
        }
        match command.fate() {
            Fate::Shared => {}
            Fate::Blocking => {
                return Err(bad(
                    "this command would block those after it: call it separately",
                ));
            }
            Fate::Refused(why) => return Err(bad(why)),
        }
        bytes += command.packed_bytes();
        commands.push(command);
    }
    Ok(commands)
}

/// Converts a reply to a Lua value.
pub(super) fn to_lua(lua: &Lua, reply: RedisReply) -> mlua::Result<Value> {
    Ok(match reply {
        RedisReply::Value(RedisValue::Nil)
        | RedisReply::Values(None)
        | RedisReply::Message(None)
        // The caller returns the subscription's number.
        | RedisReply::Subscribed(_) => Value::Nil,
        RedisReply::Value(value) => to_value(lua, value)?,
        RedisReply::Values(Some(values)) => {
            let failed = values
                .iter()
                .enumerate()
                .find_map(|(place, value)| match value {
                    RedisValue::Error(words) => Some((place + 1, words)),
                    _ => None,
                });
            if let Some((place, words)) = failed {
                let words = format!("redis: command {place}: {words}");
                return Err(fault(tagged(&words, CallErrorKind::Refused.name(), None)));
            }
            to_value(lua, RedisValue::List(values))?
        }
        RedisReply::Message(Some(message)) => {
            let table = lua.create_table_with_capacity(0, 3)?;
            table.raw_set("channel", lua.create_string(message.channel)?)?;
            if let Some(pattern) = message.pattern {
                table.raw_set("pattern", lua.create_string(pattern)?)?;
            }
            table.raw_set("data", lua.create_string(message.data)?)?;
            Value::Table(table)
        }
    })
}

fn to_value(lua: &Lua, value: RedisValue) -> mlua::Result<Value> {
    go_on()?;
    Ok(match value {
        // Nil would leave a gap in a list, so `null` is used.
        RedisValue::Nil => lua.null(),
        RedisValue::Boolean(value) => Value::Boolean(value),
        RedisValue::Number(value) => Value::Number(value),
        RedisValue::Bytes(bytes) => Value::String(lua.create_string(bytes)?),
        RedisValue::Error(words) => Value::String(lua.create_string(words)?),
        RedisValue::List(values) => {
            let table = lua.create_table_with_capacity(values.len(), 0)?;
            for value in values {
                table.raw_push(to_value(lua, value)?)?;
            }
            table.set_metatable(Some(lua.array_metatable()))?;
            Value::Table(table)
        }
        RedisValue::Map(pairs) => {
            let table = lua.create_table_with_capacity(0, pairs.len())?;
            for (key, value) in pairs {
                table.raw_set(to_value(lua, key)?, to_value(lua, value)?)?;
            }
            Value::Table(table)
        }
    })
}
