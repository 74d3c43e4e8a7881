//! The properties of a connection: user, address, request, attributes and subscriptions.

use std::rc::Rc;

use mlua::{Lua, LuaString, Table, Value};

use veche_calls::WorkerConnection;
use veche_types::{Epoch, Position, Since};

use super::argument::{WHOLE_MAX, as_number};
use super::core::channel_name;
use super::{fault, http};
use crate::ConnectionId;
use crate::host_context::HostContext;
use veche_runtime::{
    ATTRIBUTE_BYTES_MAX, Attribute, AttributeError, Credential, Effect, PositionRequest,
};

/// Maximum number of bytes of a token that are examined; tokens that fit an HTTP head are shorter.
const CREDENTIAL_BYTES_MAX: usize = 64 << 10;

pub(super) fn install(lua: &Lua, context: &Rc<HostContext>, native: &Table) -> mlua::Result<()> {
    let fields = lua.create_table()?;
    let own = Rc::clone(context);
    fields.set(
        "id",
        lua.create_function(move |_, (index, generation): (u32, u32)| {
            let worker = own.worker;
            let place = WorkerConnection {
                worker,
                connection: ConnectionId { index, generation },
            };
            Ok(place.to_string())
        })?,
    )?;
    let own = Rc::clone(context);
    fields.set(
        "is_open",
        lua.create_function(move |_, (index, generation): (u32, u32)| {
            let id = ConnectionId { index, generation };
            Ok(own.world.connections.borrow().is_open(id))
        })?,
    )?;
    for (name, read) in http::FIELDS {
        if matches!(*name, "body" | "json" | "method") {
            continue;
        }
        let own = Rc::clone(context);
        let function = lua.create_function(move |lua, (index, generation): (u32, u32)| {
            let id = ConnectionId { index, generation };
            let connections = own.world.connections.borrow();
            let connection = connections.find(id);
            match connection.and_then(|connection| connection.request.as_ref()) {
                Some(request) => read(lua, request),
                None => Ok(Value::Nil),
            }
        })?;
        fields.set(*name, function)?;
    }
    let own = Rc::clone(context);
    let is_full = lua.create_function(move |_, (index, generation): (u32, u32)| {
        let id = ConnectionId { index, generation };
        let connections = own.world.connections.borrow();
        let is_full = connections.is_full(id).unwrap_or(false);
        Ok(is_full || connections.may_be_full(id, own.world.batch.get()))
    })?;
    fields.set("is_full", is_full)?;
    let own = Rc::clone(context);
    let may_be_full = lua.create_function(move |_, (index, generation): (u32, u32)| {
        let id = ConnectionId { index, generation };
        let batch = own.world.batch.get();
        Ok(own.world.connections.borrow().may_be_full(id, batch))
    })?;
    native.set("may_be_full", may_be_full)?;
    native.set("connection_fields", fields)?;
    attributes(lua, context, native)?;
    subscriptions(lua, context, native)
}

fn attributes(lua: &Lua, context: &Rc<HostContext>, native: &Table) -> mlua::Result<()> {
    let own = Rc::clone(context);
    let get = lua.create_function(
        move |lua, (index, generation, name): (u32, u32, LuaString)| {
            let id = ConnectionId { index, generation };
            let connections = own.world.connections.borrow();
            match connections.attribute(id, &name.to_str()?) {
                None => Ok(Value::Nil),
                Some(Attribute::Boolean(value)) => Ok(Value::Boolean(*value)),
                Some(Attribute::Number(value)) => Ok(Value::Number(*value)),
                Some(Attribute::Bytes(bytes)) => lua.create_string(bytes).map(Value::String),
            }
        },
    )?;
    native.set("attribute", get)?;
    let own = Rc::clone(context);
    let set = lua.create_function(
        move |_, (index, generation, name, value): (u32, u32, LuaString, Value)| {
            let id = ConnectionId { index, generation };
            let value = match value {
                Value::Nil => None,
                Value::Boolean(value) => Some(Attribute::Boolean(value)),
                Value::Integer(value) => Some(Attribute::Number(value as f64)),
                Value::Number(value) => Some(Attribute::Number(value)),
                Value::String(text) => {
                    let bytes = text.as_bytes();
                    // The length is checked before the value is copied.
                    if bytes.len() > ATTRIBUTE_BYTES_MAX {
                        return Err(fault(AttributeError::TooLarge.to_string()));
                    }
                    Some(Attribute::Bytes(bytes[..].into()))
                }
                other => {
                    return Err(fault(format!(
                        "an attribute must be a string, a number or a boolean, not a {}: attributes outlive a reload of the code",
                        other.type_name()
                    )));
                }
            };
            let mut connections = own.world.connections.borrow_mut();
            let result = connections.set_attribute(id, &name.to_str()?, value);
            result.map_err(|error| fault(error.to_string()))
        },
    )?;
    native.set("set_attribute", set)
}

/// Parses the options of `subscribe`. The only option is `since`, a position as text or as `{ offset, epoch }`.
fn wanted_place(options: &Value) -> mlua::Result<Option<PositionRequest>> {
    let options = match options {
        Value::Nil => return Ok(None),
        Value::Table(options) => options,
        other => {
            let what = other.type_name();
            return Err(fault(format!(
                "bad argument #2 to 'subscribe': a table of options expected, not {what}"
            )));
        }
    };
    let mut place = PositionRequest::default();
    for pair in options.pairs::<Value, Value>() {
        let (key, value) = pair?;
        match &key {
            Value::String(key) if *key == "since" => place.since = Some(since(&value)?),
            key => {
                let key = key.to_string()?;
                return Err(fault(format!(
                    "bad argument #2 to 'subscribe': there is no option '{key}'"
                )));
            }
        }
    }
    Ok(Some(place))
}

fn since(value: &Value) -> mlua::Result<Since> {
    let bad = |why: &str| fault(format!("bad option since to 'subscribe': {why}"));
    match value {
        Value::String(text) => {
            let position = text.to_string_lossy().parse::<Position>();
            Ok(position.map_err(|error| bad(&error.to_string()))?.into())
        }
        Value::Table(place) => {
            let offset: Value = place.raw_get("offset")?;
            let offset = as_number(&offset);
            let is_good =
                |number: &f64| number.fract() == 0.0 && (0.0..=WHOLE_MAX).contains(number);
            let offset = offset.filter(is_good);
            let offset = offset.ok_or_else(|| bad("offset: a whole number expected"))?;
            let epoch = match place.raw_get("epoch")? {
                Value::Nil => None,
                Value::String(epoch) => {
                    // An epoch in another format matches no channel's epoch.
                    let epoch = epoch.to_string_lossy().parse();
                    Some(epoch.unwrap_or(Epoch::UNKNOWN))
                }
                _ => return Err(bad("epoch: a string expected")),
            };
            Ok(Since {
                epoch,
                offset: offset as u64,
            })
        }
        _ => Err(bad("a position, or a table of offset and epoch, expected")),
    }
}

fn subscriptions(lua: &Lua, context: &Rc<HostContext>, native: &Table) -> mlua::Result<()> {
    let own = Rc::clone(context);
    let subscribe = lua.create_function(
        move |_, (index, generation, channel, options): (u32, u32, LuaString, Value)| {
            let connection = ConnectionId { index, generation };
            let channel = channel_name(&channel)?;
            let place = wanted_place(&options)?;
            if !own.world.connections.borrow().is_open(connection) {
                return Err(fault(veche_runtime::CLOSED));
            }
            let token = own.token();
            own.effect(Effect::Subscribe {
                connection,
                channel,
                place,
                token,
            });
            Ok(token.0 as f64)
        },
    )?;
    native.set("subscribe", subscribe)?;
    let own = Rc::clone(context);
    let unsubscribe = lua.create_function(
        move |_, (index, generation, channel): (u32, u32, LuaString)| {
            let connection = ConnectionId { index, generation };
            let channel = channel_name(&channel)?;
            own.effect(Effect::Unsubscribe {
                connection,
                channel,
            });
            Ok(())
        },
    )?;
    native.set("unsubscribe", unsubscribe)?;
    let own = Rc::clone(context);
    let renew = lua.create_function(
        move |_, (index, generation, credential): (u32, u32, Value)| {
            let connection = ConnectionId { index, generation };
            let Value::String(credential) = credential else {
                return Err(fault(format!(
                    "a token must be a string, not a {}",
                    credential.type_name()
                )));
            };
            if !own.world.connections.borrow().is_open(connection) {
                return Err(fault(veche_runtime::CLOSED));
            }
            let credential = credential.as_bytes();
            let begin = &credential[..credential.len().min(CREDENTIAL_BYTES_MAX)];
            let token = own.token();
            own.effect(Effect::Renew {
                connection,
                // Valid tokens are short and UTF-8, so truncation and lossy conversion affect no valid token.
                credential: Credential(String::from_utf8_lossy(begin).into_owned()),
                token,
            });
            Ok(token.0 as f64)
        },
    )?;
    native.set("renew", renew)
}
