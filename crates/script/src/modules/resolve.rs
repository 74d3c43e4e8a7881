//! `veche.resolve`: the addresses of a host.

use std::net::IpAddr;
use std::rc::Rc;

use mlua::{Lua, Table, Value};
use veche_calls::{Call, ResolveCall};

use super::{fault, timeouts};
use crate::host_context::HostContext;

/// The default timeout in seconds.
const TIMEOUT_S: f64 = 10.0;

/// Maximum length of a host name in bytes (RFC 1035, section 2.3.4, as text).
const HOST_BYTES_MAX: usize = 253;

pub(super) fn install(lua: &Lua, context: &Rc<HostContext>, native: &Table) -> mlua::Result<()> {
    let context = Rc::clone(context);
    let begin = lua.create_function(move |_, (host, options): (Value, Value)| {
        let Value::String(host) = host else {
            return Err(fault("bad argument #1 to 'resolve': a string expected"));
        };
        let options = match &options {
            Value::Nil => None,
            Value::Table(options) => Some(options),
            _ => {
                return Err(fault(
                    "bad argument #2 to 'resolve': a table of options expected",
                ));
            }
        };
        let timeout = timeouts::timeout(options, TIMEOUT_S, "resolve")?;
        let host = host.as_bytes();
        let is_good = |host: &&str| !host.is_empty() && !host.chars().any(char::is_control);
        let host = Some(&host[..]).filter(|host| host.len() <= HOST_BYTES_MAX);
        let host = host.and_then(|host| std::str::from_utf8(host).ok());
        let Some(host) = host.filter(is_good) else {
            return Err(fault(
                "bad argument #1 to 'resolve': a host name of 1 to 253 bytes expected",
            ));
        };
        let host = host.to_owned();
        let token = context.call(Call::Resolve(ResolveCall { host, timeout }))?;
        Ok(token.0 as f64)
    })?;
    native.set("resolve", begin)
}

/// Returns a list of addresses as text.
pub(super) fn to_lua(lua: &Lua, addresses: &[IpAddr]) -> mlua::Result<Table> {
    lua.create_sequence_from(addresses.iter().map(ToString::to_string))
}
