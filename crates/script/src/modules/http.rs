//! Gives scripts access to HTTP requests, and converts the responses that scripts return.

mod answer;
mod parts;

use std::borrow::Cow;
use std::rc::Rc;

use mlua::{FromLua as _, Function, Lua, LuaString, MultiValue, Table, Value};

use super::{fault, json};
use crate::host_context::EndedRequest;
use crate::host_context::HostContext;
use answer::{Body, HttpAnswer};
use veche_runtime::Request;
use veche_runtime::{Effect, HandshakeReply};

/// A function that reads one field of a request.
type Read = fn(&Lua, &Request) -> mlua::Result<Value>;

/// The fields of a request.
pub(super) const FIELDS: &[(&str, Read)] = &[
    ("method", |lua, request| text(lua, request.method())),
    ("path", |lua, request| text(lua, request.path())),
    ("user", |lua, request| match request.user() {
        Some(user) => text(lua, user),
        None => Ok(Value::Nil),
    }),
    ("remote", |lua, request| {
        text(lua, &request.remote.to_string())
    }),
    ("query", query),
    ("headers", headers),
    ("cookies", cookies),
    ("params", |lua, request| {
        let table = lua.create_table()?;
        for (name, value) in request.params() {
            table.set(name, value)?;
        }
        Ok(Value::Table(table))
    }),
    ("body", |lua, request| {
        lua.create_string(&request.body).map(Value::String)
    }),
    ("json", |lua, request| {
        match json::decode(lua, &request.body) {
            Ok(value) => Ok(value),
            // An invalid JSON body is the client's mistake: the handler gets nil and can respond with 400.
            Err(_) => Ok(Value::Nil),
        }
    }),
];

fn text(lua: &Lua, text: &str) -> mlua::Result<Value> {
    lua.create_string(text).map(Value::String)
}

/// Returns the parsed query; if a name is repeated, its first value is used.
fn query(lua: &Lua, request: &Request) -> mlua::Result<Value> {
    let table = lua.create_table()?;
    for pair in request.query().split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let name = lua.create_string(&*decoded(name))?;
        if !table.contains_key(&name)? {
            table.set(name, lua.create_string(&*decoded(value))?)?;
        }
    }
    Ok(Value::Table(table))
}

/// Decodes `+` and percent escapes of a query.
fn decoded(text: &str) -> Cow<'_, [u8]> {
    if !text.contains(['+', '%']) {
        return Cow::Borrowed(text.as_bytes());
    }
    let spaced = text.replace('+', " ");
    Cow::Owned(percent_encoding::percent_decode_str(&spaced).collect())
}

/// Returns the headers. The values of headers with the same name are joined with commas (RFC 9110, section
/// 5.3).
fn headers(lua: &Lua, request: &Request) -> mlua::Result<Value> {
    let table = lua.create_table()?;
    for (name, value) in request.headers() {
        add_header(&table, name, value)?;
    }
    Ok(Value::Table(table))
}

pub(super) fn add_header(table: &Table, name: &str, value: &str) -> mlua::Result<()> {
    match table.get::<Option<LuaString>>(name)? {
        None => table.set(name, value),
        Some(before) => {
            let separator = if name == "cookie" { "; " } else { ", " };
            let joined = format!("{}{separator}{value}", before.to_string_lossy());
            table.set(name, joined)
        }
    }
}

fn cookies(lua: &Lua, request: &Request) -> mlua::Result<Value> {
    let table = lua.create_table()?;
    let lines = request.headers().filter(|(name, _)| *name == "cookie");
    for (_, line) in lines {
        add_cookies(&table, line)?;
    }
    Ok(Value::Table(table))
}

/// Adds the cookies of one header; if a name is repeated, its first value is used.
pub(super) fn add_cookies(table: &Table, line: &str) -> mlua::Result<()> {
    for pair in line.split(';') {
        if let Some((name, value)) = pair.trim().split_once('=')
            && !table.contains_key(name)?
        {
            table.set(name, value.trim_matches('"'))?;
        }
    }
    Ok(())
}

/// Defines the native functions for requests and responses. `has_files` is true if a folder for
/// `veche.file` is configured.
pub(super) fn install(
    lua: &Lua,
    context: &Rc<HostContext>,
    native: &Table,
    has_files: bool,
) -> mlua::Result<()> {
    let fields = lua.create_table()?;
    for (name, read) in FIELDS {
        let own = Rc::clone(context);
        let function = lua.create_function(move |lua, number: f64| {
            own.requests()
                .with(number as u64, |request| read(lua, request))
                .unwrap_or_else(|| {
                    Err(fault(format!(
                        "the request has ended: read request.{name} before the response"
                    )))
                })
        })?;
        fields.set(*name, function)?;
    }
    native.set("request_fields", fields)?;
    let files = answer::file(lua, native, has_files)?;
    let (own, own_files) = (Rc::clone(context), files.clone());
    let respond = lua.create_function(move |lua, (number, results): (f64, MultiValue)| {
        let answer = HttpAnswer::from_lua(lua, &own_files, results)?;
        respond(&own, number as u64, answer)
    })?;
    native.set("respond", respond)?;
    let own = Rc::clone(context);
    let decide = lua.create_function(move |lua, (number, results): (f64, MultiValue)| {
        let reply = handshake_reply(lua, &files, results)?;
        if let Some(EndedRequest { id: of, .. }) = own.requests().end(number as u64) {
            own.effect(Effect::Handshake { of, reply });
        }
        Ok(())
    })?;
    native.set("decide", decide)?;
    parts::install(lua, context, native)
}

/// Responds to a request. Returns the function that writes the body, if there is one.
fn respond(
    context: &HostContext,
    number: u64,
    answer: HttpAnswer,
) -> mlua::Result<Option<Function>> {
    let HttpAnswer {
        status,
        headers,
        body,
    } = answer;
    let mut requests = context.requests();
    let Some(is_head) = requests.with(number, |request| request.method() == "HEAD") else {
        return Ok(None);
    };
    let function = match body {
        Body::Function(function) => function,
        Body::Bytes(body) => {
            let mut effects = context.world.effects.borrow_mut();
            let Some(kept) = effects.store(&body) else {
                let bytes = body.len();
                return Err(fault(format!(
                    "the body of the response, {bytes} bytes, is too large: at most 64 MiB can be sent at once; write it in parts, by a function as the body, or respond with a file"
                )));
            };
            if let Some(EndedRequest { id: to, .. }) = requests.end(number) {
                effects.list.push(Effect::Respond {
                    to,
                    status,
                    headers,
                    body: kept,
                });
            }
            return Ok(None);
        }
        Body::File(path) => {
            if let Some(EndedRequest { id: to, .. }) = requests.end(number) {
                context.effect(Effect::RespondFile {
                    to,
                    status,
                    headers,
                    path,
                });
            }
            return Ok(None);
        }
    };
    let Some(to) = requests.begin_response(number) else {
        return Ok(None);
    };
    context.effect(Effect::Begin {
        to,
        status,
        headers,
    });
    if is_head || matches!(status, 204 | 304) {
        // A response to HEAD, or with the status 204 or 304, is sent without a body, so the function is not called.
        requests.end(number);
        let is_whole = true;
        context.effect(Effect::End { to, is_whole });
        return Ok(None);
    }
    Ok(Some(function))
}

/// The longest name of a user or a subprotocol in bytes.
const FIELD_BYTES_MAX: usize = 64 << 10;

fn handshake_field(lua: &Lua, table: &Table, name: &str) -> mlua::Result<Option<String>> {
    match table.get(name)? {
        Value::Nil => Ok(None),
        Value::String(text) if text.as_bytes().len() > FIELD_BYTES_MAX => {
            Err(fault(format!("handshake: {name} may have at most 64 KiB")))
        }
        value => Option::from_lua(value, lua),
    }
}

/// Returns the result of a handshake handler: `nil` or `true` accepts, a table accepts with
/// details, `false` or an HTTP response refuses.
fn handshake_reply(lua: &Lua, files: &Table, results: MultiValue) -> mlua::Result<HandshakeReply> {
    match results.front() {
        None | Some(Value::Nil | Value::Boolean(true)) => Ok(HandshakeReply::Accept {
            user: None,
            protocol: None,
        }),
        Some(Value::Boolean(false)) => Ok(HandshakeReply::Refuse {
            status: 403,
            headers: vec![("Content-Type".into(), "text/plain; charset=utf-8".into())],
            body: b"refused\n".to_vec(),
        }),
        Some(Value::Table(table)) => Ok(HandshakeReply::Accept {
            user: handshake_field(lua, table, "user")?,
            protocol: handshake_field(lua, table, "protocol")?,
        }),
        Some(_) => {
            let answer = HttpAnswer::from_lua(lua, files, results)?;
            if answer.status < 300 {
                return Err(fault(
                    "handshake: a refusal must have a status from 300 to 599; return true to accept",
                ));
            }
            let Body::Bytes(body) = answer.body else {
                return Err(fault(
                    "handshake: the body of a refusal must be a string, or a table for JSON",
                ));
            };
            Ok(HandshakeReply::Refuse {
                status: answer.status,
                headers: answer.headers,
                body,
            })
        }
    }
}
