//! Converts outcomes of calls to Lua values.

use std::rc::Rc;

use mlua::{IntoLuaMulti as _, Lua, MultiValue, Table};
use veche_calls::mysql::MysqlReply;
use veche_calls::redis::{RedisReply, RedisValue};
use veche_calls::{CallOutcome, CallReply};

use super::{api, channels, fault, http_client, mysql, password, redis, remote, resolve};
use crate::host_context::HostContext;
use crate::raw::Argument;
use veche_runtime::Token;
use veche_runtime::call_errors::tagged;

pub(super) fn install(lua: &Lua, context: &Rc<HostContext>, native: &Table) -> mlua::Result<()> {
    let own = Rc::clone(context);
    let outcome = lua.create_function(move |lua, token: f64| {
        let outcome = own.take_outcome(Token(token as u64));
        let outcome = outcome.ok_or_else(|| fault("the response of this call was already read"))?;
        to_lua(lua, &own, outcome)
    })?;
    native.set("outcome", outcome)?;
    let leases = context.leases.clone();
    let drop_lease = lua.create_function(move |_, number: f64| {
        drop(leases.take(number));
        Ok(())
    })?;
    native.set("drop_lease", drop_lease)
}

/// Returns the outcome as an argument for the waiting coroutine if it is a plain value, otherwise
/// `None`.
pub(crate) fn plain(outcome: &CallOutcome) -> Option<Argument<'_>> {
    let Ok(CallReply::Redis(RedisReply::Value(value))) = outcome else {
        return None;
    };
    Some(match value {
        RedisValue::Nil => Argument::Nil,
        RedisValue::Boolean(value) => Argument::Boolean(*value),
        RedisValue::Number(value) => Argument::Number(*value),
        RedisValue::Bytes(bytes) => Argument::Bytes(bytes),
        RedisValue::List(_) | RedisValue::Map(_) | RedisValue::Error(_) => return None,
    })
}

/// Returns `true` and the reply, or `false` with the message and the error table.
fn to_lua(lua: &Lua, context: &HostContext, outcome: CallOutcome) -> mlua::Result<MultiValue> {
    let reply = match outcome {
        Err(fault) => {
            let kind = fault.kind.name();
            return (false, tagged(&fault.words, kind, None), kind).into_lua_multi(lua);
        }
        Ok(reply) => reply,
    };
    match reply {
        CallReply::Addresses(addresses) => {
            (true, resolve::to_lua(lua, &addresses)?).into_lua_multi(lua)
        }
        CallReply::Http(reply) => {
            (true, http_client::to_lua(lua, context, *reply)?).into_lua_multi(lua)
        }
        CallReply::Chunk(bytes) => {
            let bytes = bytes.map(|bytes| lua.create_string(bytes)).transpose()?;
            (true, bytes).into_lua_multi(lua)
        }
        // A resource that is held across calls is returned as a number and a guard.
        CallReply::Mysql(MysqlReply::Begun(lease))
        | CallReply::Redis(RedisReply::Subscribed(lease)) => {
            let (number, guard) = context.leases.keep(lua, lease)?;
            (true, number, guard).into_lua_multi(lua)
        }
        CallReply::Mysql(reply) => (true, mysql::to_lua(lua, reply)?).into_lua_multi(lua),
        CallReply::Places(places) => (true, remote::to_lua(lua, &places)?).into_lua_multi(lua),
        CallReply::Channel(reply) => (true, channels::to_lua(lua, reply)?).into_lua_multi(lua),
        CallReply::Api(body) => api::to_lua(lua, &body),
        CallReply::Redis(reply) => (true, redis::to_lua(lua, reply)?).into_lua_multi(lua),
        CallReply::Password(reply) => (true, password::to_lua(lua, reply)?).into_lua_multi(lua),
        // Scripts make no FastCGI requests, so this reply does not occur.
        CallReply::Fastcgi(_) => true.into_lua_multi(lua),
    }
}
