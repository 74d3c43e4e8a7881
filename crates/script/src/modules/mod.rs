//! What scripts can call, one file each: the Rust side of `veche.*`.
//!
//! A module that must wait begins something here, which gives a token, and waits for it in `lua/prelude.lua`.

mod api;
mod argument;
mod base64;
mod calls;
mod channels;
mod connection;
mod cookie;
mod core;
mod dict;
pub(crate) mod errors;
mod far;
mod hash;
pub(crate) mod held;
pub(crate) mod hooks;
mod http;
mod http_client;
pub(crate) mod json;
pub(crate) mod kept;
pub(crate) mod lua;
mod metrics;
mod mysql;
mod password;
mod queue;
pub(crate) mod random;
mod redis;
mod resolve;
pub(crate) mod seeded;
mod server;
pub(crate) mod string;
mod table;
mod time;
mod websocket;

pub(crate) use calls::plain;
pub(crate) use redis::begin_plain;

use std::path::Path;
use std::rc::Rc;

use mlua::{Lua, LuaSerdeExt as _, LuaString, Table};

use crate::app::App;
use crate::desk::Desk;
use crate::{raw, utf8};

/// Adds what Rust gives to the functions that the prelude builds `veche` from.
pub(crate) fn install(
    lua: &Lua,
    desk: &Rc<Desk>,
    native: &Table,
    app: &App,
    folder: &Path,
    worker: u16,
) -> mlua::Result<()> {
    core::install(lua, desk, native)?;
    connection::install(lua, desk, native)?;
    calls::install(lua, desk, native)?;
    errors::install(lua, native)?;
    far::install(lua, desk, native)?;
    channels::install(lua, desk, native)?;
    api::install(lua, desk, native)?;
    resolve::install(lua, desk, native)?;
    mysql::install(lua, desk, native)?;
    redis::install(lua, desk, native)?;
    password::install(lua, desk, native)?;
    http::install(lua, desk, native, app.has_files)?;
    hooks::install(lua, desk, native)?;
    http_client::install(lua, desk, native, folder, app.limits.http_per_host)?;
    let own_words = lua.create_function(|lua, error: mlua::Value| {
        Ok(match &error {
            mlua::Value::Error(error) => lua.create_string(words(error))?,
            mlua::Value::String(text) if text.as_bytes().starts_with(OWN_PLACE.as_bytes()) => {
                lua.create_string(without_own_place(&text.to_string_lossy()))?
            }
            mlua::Value::String(text) => text.clone(),
            other => lua.create_string(other.to_string()?)?,
        })
    })?;
    native.set("words", own_words)?;
    let placed = lua.create_function(|_, (words, traceback): (LuaString, LuaString)| {
        let traceback = traceback.to_string_lossy();
        Ok(with_line(&words.to_string_lossy(), traceback))
    })?;
    native.set("with_line", placed)?;
    let modules = lua.create_table()?;
    modules.set("base64", base64::module(lua)?)?;
    modules.set("cookie", cookie::function(lua)?)?;
    modules.set("hash", hash::hash(lua)?)?;
    modules.set("hmac", hash::hmac(lua)?)?;
    modules.set("json", json::module(lua)?)?;
    modules.set("null", lua.null())?;
    modules.set("random", random::random(lua, desk)?)?;
    modules.set("time", time::module(lua, desk)?)?;
    modules.set("uuid", random::uuid(lua, desk)?)?;
    dict::install(lua, desk, native)?;
    websocket::install(lua, desk, native, folder, app.limits.clients_max)?;
    metrics::install(lua, desk, native)?;
    queue::install(lua, desk, native)?;
    table::install(lua, desk, native, folder, &app.limits.snapshots)?;
    native.set("modules", modules)?;
    native.set("config", json::to_lua(lua, &app.options)?)?;
    native.set("worker", worker)
}

/// An error of a script, in its words.
pub(crate) fn fault(words: impl Into<String>) -> mlua::Error {
    mlua::Error::RuntimeError(words.into())
}

/// Fails if the run that is under way is to end. Long operations call it now and then: nothing else ends them.
pub(crate) fn go_on() -> mlua::Result<()> {
    match raw::is_run_over() {
        false => Ok(()),
        true => Err(fault(raw::why_over().to_string_lossy())),
    }
}

/// Returns whether a text is UTF-8.
pub(super) fn is_utf8(text: &[u8]) -> mlua::Result<bool> {
    match utf8::check(text) {
        Some(is_utf8) => Ok(is_utf8),
        None => go_on().map(|()| false),
    }
}

/// What an error of a Rust function says to a script: its innermost reason, and the script's line that called it.
pub(crate) fn words(error: &mlua::Error) -> String {
    match error {
        mlua::Error::CallbackError { cause, traceback } => {
            let reason = words(cause);
            match script_line(traceback) {
                Some(line) if !reason.starts_with(line) => format!("{line}: {reason}"),
                _ => reason,
            }
        }
        mlua::Error::RuntimeError(words) => words.clone(),
        mlua::Error::ExternalError(cause) => cause.to_string(),
        mlua::Error::MemoryError(words) => words.clone(),
        other => other.to_string(),
    }
}

/// What errors that the prelude raised begin with.
const OWN_PLACE: &str = "veche:";

/// A message without the line of the prelude that raised it: scripts care for theirs.
pub(crate) fn without_own_place(message: &str) -> &str {
    let behind = message.strip_prefix(OWN_PLACE);
    let behind = behind.and_then(|place| place.split_once(": "));
    behind.map_or(message, |(_, message)| message)
}

/// A traceback whose first place has its line. LuaJIT does not know it where an instruction of its own failed, but the
/// error's words begin with it.
pub(crate) fn with_line(words: &str, traceback: String) -> String {
    const HEAD: &str = "stack traceback:\n\t";
    let placed = || {
        let start = traceback.find(HEAD)? + HEAD.len();
        let (file, rest) = traceback[start..].split_once(": in ")?;
        let line = words.strip_prefix(file)?.strip_prefix(':')?;
        let (line, _) = line.split_once(':')?;
        let is_line = !line.is_empty() && line.bytes().all(|byte| byte.is_ascii_digit());
        let head = &traceback[..start];
        is_line.then(|| format!("{head}{file}:{line}: in {rest}"))
    };
    placed().unwrap_or(traceback)
}

/// The first `file:line` of a traceback that is a script's.
fn script_line(traceback: &str) -> Option<&str> {
    traceback
        .lines()
        .filter_map(|line| line.strip_prefix('\t'))
        .filter(|line| !line.starts_with("[C]") && !line.starts_with("veche:"))
        .find_map(|line| line.split_once(": in ").map(|(place, _)| place))
}
