//! The Lua functions for time, tokens, publishing and logging.

use std::rc::Rc;

use mlua::{Lua, LuaString, Table, Value, Variadic};

use super::{fault, is_utf8, json};
use crate::MessageKind;
use crate::host_context::{HostContext, WakeReason};
use veche_runtime::call_errors::{FULL, tagged};
use veche_runtime::{Effect, Level, Token};
use veche_types::PayloadKind;

/// Maximum length of a sleep in seconds: a year.
const SLEEP_MAX_S: f64 = 31_536_000.0;

/// Maximum length of a log line in bytes.
const LINE_BYTES_MAX: usize = 16 << 10;

pub(super) fn install(lua: &Lua, context: &Rc<HostContext>, native: &Table) -> mlua::Result<()> {
    let own = Rc::clone(context);
    native.set(
        "token",
        lua.create_function(move |_, ()| Ok(own.token().0 as f64))?,
    )?;
    let own = Rc::clone(context);
    native.set(
        "wake",
        lua.create_function(move |_, token: f64| {
            own.wake(Token(token as u64), WakeReason::Up);
            Ok(())
        })?,
    )?;
    let own = Rc::clone(context);
    native.set(
        "cancel",
        lua.create_function(move |_, number: f64| {
            own.wake(Token(number as u64), WakeReason::Cancelled);
            Ok(())
        })?,
    )?;
    let own = Rc::clone(context);
    native.set(
        "sleep",
        lua.create_function(move |_, seconds: Value| {
            let seconds = match seconds {
                Value::Integer(seconds) => seconds as f64,
                Value::Number(seconds) => seconds,
                _ => f64::NAN,
            };
            if !(0.0..=SLEEP_MAX_S).contains(&seconds) {
                return Err(fault(
                    "bad argument #1 to 'sleep': a number of seconds from 0 to 31536000 expected",
                ));
            }
            if seconds == 0.0 {
                return Ok(own.yield_turn().0 as f64);
            }
            let now_ms = own.world.now.get().mono_ms;
            // Rounded up, so that the sleep never ends early.
            let at_ms = now_ms + (seconds * 1000.0).ceil() as u64;
            Ok(own.sleep_until(at_ms).0 as f64)
        })?,
    )?;
    let own = Rc::clone(context);
    native.set(
        "now",
        lua.create_function(move |_, ()| Ok(own.world.now.get().mono_ms as f64 / 1000.0))?,
    )?;
    let own = Rc::clone(context);
    native.set(
        "wall",
        lua.create_function(move |_, ()| Ok(own.world.now.get().wall_ms as f64 / 1000.0))?,
    )?;
    let own = Rc::clone(context);
    native.set(
        "is_retired",
        lua.create_function(move |_, ()| Ok(own.is_retired()))?,
    )?;
    native.set("publish", publish(lua, context, "publish")?)?;
    native.set("push", publish(lua, context, "push")?)?;
    native.set("log", log(lua, context)?)
}

/// The arguments of [`publish`]: target, data, kind, `may_wait`, and surplus arguments.
type PublishArguments = (Value, Value, Value, Option<bool>, Variadic<Value>);

/// Implements `publish(channel, data, kind, may_wait)` and `push(user, data, kind, may_wait)`. Returns nothing on success. If
/// there is no room, the result depends on `may_wait`: if true, the token of a wait after which the caller has to retry; if
/// false, an error; if absent, `true`.
fn publish(
    lua: &Lua,
    context: &Rc<HostContext>,
    what: &'static str,
) -> mlua::Result<mlua::Function> {
    let context = Rc::clone(context);
    lua.create_function(
        move |lua, (to, data, kind, may_wait, more): PublishArguments| {
            if !more.is_empty() {
                return Err(fault(format!(
                    "bad argument #4 to '{what}': no further argument expected"
                )));
            }
            let Value::String(to) = to else {
                return Err(fault(format!("bad argument #1 to '{what}': a string expected")));
            };
            let kind = match &kind {
                Value::Nil => MessageKind::Text,
                Value::String(kind) if *kind == "text" => MessageKind::Text,
                Value::String(kind) if *kind == "binary" => MessageKind::Binary,
                _ => {
                    return Err(fault(format!(
                        "bad argument #3 to '{what}': \"text\", \"binary\" or a table of options expected"
                    )));
                }
            };
            let kind = match (kind, data.is_table()) {
                (MessageKind::Text, true) => PayloadKind::Json,
                (MessageKind::Binary, true) => {
                    return Err(fault(format!(
                        "bad argument #2 to '{what}': a table can only be published as text (JSON)"
                    )));
                }
                (kind, false) => kind.into(),
            };
            let (borrowed, made);
            let data: &[u8] = match &data {
                Value::String(data) => {
                    borrowed = data.as_bytes();
                    &borrowed
                }
                Value::Table(_) => {
                    made = json::encode(lua, &data)?;
                    &made
                }
                _ => {
                    return Err(fault(format!(
                        "bad argument #2 to '{what}': a string, or a table for JSON, expected"
                    )));
                }
            };
            if kind == PayloadKind::Text && !is_utf8(data)? {
                return Err(fault(format!(
                    "bad argument #2 to '{what}': it is not UTF-8, so it can't be text; {what} it as \"binary\""
                )));
            }
            let channel = match what {
                "push" if to.as_bytes().is_empty() => {
                    return Err(fault("bad argument #1 to 'push': the user's name is empty"));
                }
                "push" => user_channel_name(lua, &to)?,
                _ => channel_name(&to)?,
            };
            let is_refused = context.refuses(&channel);
            let has_room = !is_refused && !context.world.effects.borrow().is_large();
            match may_wait {
                _ if has_room => {}
                None => return Ok(Value::Boolean(true)),
                Some(true) => {
                    let token = match is_refused {
                        true => context.wait_to_publish(channel),
                        false => context.yield_turn(),
                    };
                    return Ok(Value::Number(token.0 as f64));
                }
                Some(false) if is_refused => {
                    let words =
                        format!("too many publications to {channel:?} are waiting: try again later");
                    return Err(fault(tagged(&words, FULL, None)));
                }
                Some(false) => {}
            }
            let mut effects = context.world.effects.borrow_mut();
            let Some(data) = effects.store(data) else {
                let words = "too much data is published at once: wait between messages";
                return Err(fault(tagged(words, FULL, None)));
            };
            effects.list.push(Effect::Publish {
                channel,
                kind,
                data,
            });
            Ok(Value::Nil)
        },
    )
}

/// Maximum length of a channel name in bytes.
const CHANNEL_BYTES_MAX: usize = 255;

/// Validates a channel name. Personal channels are rejected, since they must not be addressed by a name that a client
/// may have chosen.
pub(super) fn channel_name(name: &LuaString) -> mlua::Result<String> {
    if name.as_bytes().starts_with(b"#") {
        return Err(fault(
            "bad channel name: '#' marks personal channels; use veche.push",
        ));
    }
    any_channel_name(name)
}

pub(super) fn any_channel_name(name: &LuaString) -> mlua::Result<String> {
    const BAD: &str = "bad channel name: 1 to 255 bytes without control characters";
    // The length is checked before the bytes are examined one by one.
    if name.as_bytes().len() > CHANNEL_BYTES_MAX {
        return Err(fault(BAD));
    }
    let name = name
        .to_str()
        .map_err(|_| fault("bad channel name: it is not UTF-8"))?;
    if name.is_empty() || name.bytes().any(|byte| byte.is_ascii_control()) {
        return Err(fault(BAD));
    }
    Ok(name.to_owned())
}

/// Returns the name of a user's personal channel.
pub(super) fn user_channel_name(lua: &Lua, user: &LuaString) -> mlua::Result<String> {
    let user = user.as_bytes();
    let user = &user[..user.len().min(CHANNEL_BYTES_MAX)];
    any_channel_name(&lua.create_string([b"#", user].concat())?)
}

/// Appends a text, cut to one byte more than the maximum length of a log line, so that the caller notices the excess.
fn push_start(line: &mut String, text: &[u8]) {
    let shown = &text[..text.len().min(LINE_BYTES_MAX + 1)];
    line.push_str(&String::from_utf8_lossy(shown));
}

fn log(lua: &Lua, context: &Rc<HostContext>) -> mlua::Result<mlua::Function> {
    let context = Rc::clone(context);
    lua.create_function(move |lua, (level, values): (LuaString, Variadic<Value>)| {
        let level = match &*level.as_bytes() {
            b"debug" => Level::Debug,
            b"warn" => Level::Warn,
            b"error" => Level::Error,
            _ => Level::Info,
        };
        let mut line = String::new();
        for (index, value) in values.iter().enumerate() {
            // Further arguments would be cut off, so they are not even converted.
            if line.len() > LINE_BYTES_MAX {
                break;
            }
            if index > 0 {
                line.push('\t');
            }
            match value {
                Value::String(text) => push_start(&mut line, &text.as_bytes()),
                Value::Table(_) => match json::encode(lua, value) {
                    Ok(text) => push_start(&mut line, &text),
                    Err(_) => line.push_str(&value.to_string()?),
                },
                other => line.push_str(&other.to_string()?),
            }
        }
        if line.len() > LINE_BYTES_MAX {
            line.truncate(line.floor_char_boundary(LINE_BYTES_MAX));
            line.push('…');
        }
        context.log(level, line);
        Ok(())
    })
}
