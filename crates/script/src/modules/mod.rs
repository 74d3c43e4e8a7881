//! The Rust side of `veche.*`, one file for each module.
//!
//! For a function that waits, the Rust side starts the operation and returns a token;
//! `lua/prelude.lua` waits for the token.

mod api;
mod argument;
mod base64;
mod calls;
mod channels;
mod connection;
mod cookie;
mod copy_limit;
mod core;
mod dict;
pub(crate) mod errors;
mod faults;
pub(crate) mod growing_list;
mod hash;
pub(crate) mod held_values;
pub(crate) mod hooks;
mod http;
mod http_client;
pub(crate) mod json;
pub(crate) mod lua;
mod metrics;
mod mysql;
mod password;
mod queue;
pub(crate) mod random;
mod redis;
mod remote;
mod resolve;
pub(crate) mod seeded;
mod server;
pub(crate) mod string;
mod table;
mod time;
mod timeouts;
mod websocket;

pub(crate) use calls::plain;
pub(crate) use faults::{fault, go_on, with_line, without_own_place, words};
pub(crate) use redis::begin_plain;

use std::path::Path;
use std::rc::Rc;

use mlua::{Lua, LuaSerdeExt as _, LuaString, Table};
use veche_types::WorkerId;

use crate::app::ScriptApp;
use crate::host_context::HostContext;
use faults::{OWN_PLACE, PLACE_BYTES_MAX, behind_own_place, is_utf8};

/// Adds the Rust functions from which the prelude builds `veche`.
pub(crate) fn install(
    lua: &Lua,
    context: &Rc<HostContext>,
    native: &Table,
    app: &ScriptApp,
    folder: &Path,
    worker: WorkerId,
) -> mlua::Result<()> {
    core::install(lua, context, native)?;
    connection::install(lua, context, native)?;
    calls::install(lua, context, native)?;
    errors::install(lua, native)?;
    remote::install(lua, context, native)?;
    channels::install(lua, context, native)?;
    api::install(lua, context, native)?;
    resolve::install(lua, context, native)?;
    mysql::install(lua, context, native, &app.databases)?;
    redis::install(lua, context, native, &app.databases)?;
    password::install(lua, context, native)?;
    http::install(lua, context, native, app.has_files)?;
    hooks::install(lua, context, native)?;
    http_client::install(lua, context, native, folder, app.limits.http_per_host)?;
    let own_words = lua.create_function(|lua, error: mlua::Value| {
        Ok(match &error {
            mlua::Value::Error(error) => lua.create_string(words(error))?,
            mlua::Value::String(text) if text.as_bytes().starts_with(OWN_PLACE.as_bytes()) => {
                lua.create_string(behind_own_place(&text.as_bytes()))?
            }
            mlua::Value::String(text) => text.clone(),
            other => lua.create_string(other.to_string()?)?,
        })
    })?;
    native.set("words", own_words)?;
    let placed = lua.create_function(|_, (words, traceback): (LuaString, LuaString)| {
        // Only the beginning of the message is needed: it contains the file and the line.
        let words = words.as_bytes();
        let words = String::from_utf8_lossy(&words[..words.len().min(PLACE_BYTES_MAX)]);
        Ok(with_line(&words, traceback.to_string_lossy()))
    })?;
    native.set("with_line", placed)?;
    let modules = lua.create_table()?;
    modules.set("base64", base64::module(lua, context)?)?;
    modules.set("cookie", cookie::function(lua)?)?;
    modules.set("hash", hash::hash(lua)?)?;
    modules.set("hmac", hash::hmac(lua)?)?;
    modules.set("json", json::module(lua)?)?;
    modules.set("null", lua.null())?;
    modules.set("random", random::random(lua, context)?)?;
    modules.set("time", time::module(lua, context)?)?;
    modules.set("uuid", random::uuid(lua, context)?)?;
    dict::install(lua, context, native)?;
    websocket::install(lua, context, native, folder, app.limits.clients_max)?;
    metrics::install(lua, context, native)?;
    queue::install(lua, context, native)?;
    table::install(lua, context, native, folder, &app.limits.snapshots)?;
    native.set("modules", modules)?;
    native.set("config", json::to_lua(lua, &app.options)?)?;
    native.set("worker", worker.0)
}
