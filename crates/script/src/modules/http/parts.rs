//! Responses that a function of the script writes in parts.

use std::rc::Rc;

use mlua::{Lua, LuaString, Table, Value};

use crate::host_context::{BodyWrite, EndedRequest, HostContext};
use crate::modules::core::channel_name;
use crate::modules::fault;
use veche_runtime::Effect;

pub(super) fn install(lua: &Lua, context: &Rc<HostContext>, native: &Table) -> mlua::Result<()> {
    let own = Rc::clone(context);
    // `write` returns the token of a wait if there is too little room for more data.
    let write = lua.create_function(move |_, (number, data): (f64, Value)| {
        let Value::String(data) = data else {
            return Err(fault("bad argument #1 to 'write': a string expected"));
        };
        let data = data.as_bytes();
        let writing = own.requests().write(number as u64, data.len());
        let Some(BodyWrite { to, must_wait }) = writing else {
            return Err(fault(veche_runtime::GONE));
        };
        if data.is_empty() {
            return Ok(None);
        }
        let token = must_wait.then(|| own.token());
        let mut effects = own.world.effects.borrow_mut();
        let Some(data) = effects.store(&data) else {
            return Err(fault(
                "too much data is written at once: write parts of less than 64 MiB",
            ));
        };
        effects.list.push(Effect::Part { to, data, token });
        Ok(token.map(|token| token.0 as f64))
    })?;
    native.set("write", write)?;
    let own = Rc::clone(context);
    let finish = lua.create_function(move |_, number: f64| {
        if let Some(EndedRequest { id: to, .. }) = own.requests().end(number as u64) {
            let is_whole = true;
            own.effect(Effect::End { to, is_whole });
        }
        Ok(())
    })?;
    native.set("finish", finish)?;
    let own = Rc::clone(context);
    let listen = lua.create_function(move |_, (number, channel): (f64, LuaString)| {
        let channel = channel_name(&channel)?;
        let Some(connection) = own.requests().writer(number as u64) else {
            return Err(fault(veche_runtime::GONE));
        };
        let token = own.token();
        own.effect(Effect::Subscribe {
            connection,
            channel,
            place: None,
            token,
        });
        Ok(token.0 as f64)
    })?;
    native.set("listen", listen)?;
    let own = Rc::clone(context);
    let unlisten = lua.create_function(move |_, (number, channel): (f64, LuaString)| {
        let channel = channel_name(&channel)?;
        if let Some(connection) = own.requests().writer(number as u64) {
            own.effect(Effect::Unsubscribe {
                connection,
                channel,
            });
        }
        Ok(())
    })?;
    native.set("unlisten", unlisten)
}
