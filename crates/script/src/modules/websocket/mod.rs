//! `veche.websocket`: validates outgoing connections. `lua/websocket.lua` implements everything
//! else.

mod options;
mod url;

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::rc::Rc;

use mlua::{Lua, LuaString, MultiValue, Table, Value};

use self::options::Options;
use self::url::Url;
use super::argument::{Arguments, as_number};
use super::fault;
use crate::ConnectionId;
use crate::host_context::HostContext;
use veche_runtime::Dial;
use veche_runtime::Effect;
use veche_runtime::close::is_close_code;
use veche_types::codes::REASON_BYTES_MAX;

pub(super) fn install(
    lua: &Lua,
    context: &Rc<HostContext>,
    native: &Table,
    folder: &Path,
    clients_max: usize,
) -> mlua::Result<()> {
    let client: Table = native.get("client")?;
    let folder: Rc<Path> = folder.into();

    // `check(name, url, options)` raises an error if an argument is invalid. Otherwise it returns the host, whether the
    // host is an IP address, and the total timeout in seconds.
    let own = Rc::clone(&folder);
    let check = lua.create_function(move |_, (name, values): (LuaString, MultiValue)| {
        let arguments = Arguments::new(function(&name), values);
        let (url, options) = read(&arguments, &own)?;
        let is_address = url.host.parse::<IpAddr>().is_ok();
        Ok((url.host, is_address, options.timeout_ms as f64 / 1000.0))
    })?;
    client.set("check", check)?;

    // `dial(address, seconds, url, options)` returns the token of the wait, or nil and the reason.
    let own = Rc::clone(context);
    let dial = lua.create_function(
        move |_, (address, seconds, values): (LuaString, f64, MultiValue)| {
            let arguments = Arguments::new("websocket.connect", values);
            let (url, options) = read(&arguments, &folder)?;
            let address = address.to_str()?;
            let address: IpAddr = address.parse().map_err(|_| {
                fault(format!(
                    "websocket.connect: '{address}' is not an IP address"
                ))
            })?;
            let clients = own.world.clients.get();
            if clients >= clients_max {
                let why =
                    format!("the limit of {clients_max} connections to other servers is reached");
                return Ok((None, Some(why)));
            }
            own.world.clients.set(clients + 1);
            let dial = Dial {
                address: SocketAddr::new(address, url.port),
                host: url.host,
                authority: url.authority,
                target: url.target,
                tls: url.is_tls.then_some(options.trust),
                protocols: options.protocols,
                headers: options.headers,
                compresses: options.compresses,
                message_bytes_max: options.message_bytes_max,
                // The remaining time was computed from floating-point seconds since boot. Its rounding error must not
                // add a millisecond.
                timeout_ms: (seconds * 1000.0 - 0.001).ceil().max(1.0) as u64,
                ping_interval_ms: options.ping_interval_ms,
                pong_timeout_ms: options.pong_timeout_ms,
            };
            let token = own.token();
            let dial = Box::new(dial);
            own.effect(Effect::Dial { token, dial });
            Ok((Some(token.0 as f64), None))
        },
    )?;
    client.set("dial", dial)?;

    let is_code =
        lua.create_function(|_, code: Value| Ok(as_number(&code).is_some_and(is_close_code)))?;
    client.set("is_close_code", is_code)?;
    client.set("reason_bytes_max", REASON_BYTES_MAX)?;

    let own = Rc::clone(context);
    let is_full = lua.create_function(move |_, (index, generation): (u32, u32)| {
        let id = ConnectionId { index, generation };
        Ok(own.world.connections.borrow().is_full(id))
    })?;
    client.set("is_full", is_full)?;
    let own = Rc::clone(context);
    let room = lua.create_function(move |_, (index, generation): (u32, u32)| {
        let id = ConnectionId { index, generation };
        Ok(own.wait_for_room(id).0 as f64)
    })?;
    client.set("room", room)
}

/// Returns the function's name for errors.
fn function(name: &LuaString) -> &'static str {
    match &*name.as_bytes() {
        b"open" => "websocket.open",
        _ => "websocket.connect",
    }
}

fn read(arguments: &Arguments, folder: &Path) -> mlua::Result<(Url, Options)> {
    let url = arguments.string(1)?.to_str();
    let url = url.map_err(|_| arguments.bad(1, "a URL is ASCII"))?;
    let url = Url::parse(&url).map_err(|why| arguments.bad(1, &why))?;
    Ok((url, Options::read(arguments, folder)?))
}
