//! `veche.http`: requests to other servers. They are validated here and performed by `outbound`.

mod options;

use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

use mlua::{Lua, Table, Value};
use veche_calls::{Call, HttpCall, HttpReply, ReadBody, ReplyBody};

use super::{fault, go_on};
use crate::host_context::HostContext;

/// The registry key of the metatable of responses.
const ANSWERS: &str = "veche.http answers";

/// 2^53: integers of a smaller magnitude are exact in a Lua number.
const NUMBERS: f64 = 9_007_199_254_740_992.0;

/// Adds the functions of `veche.http` to `native`. Relative paths begin at `folder`, the script's folder. `per_host`
/// is the default of `max_per_host`.
pub(super) fn install(
    lua: &Lua,
    context: &Rc<HostContext>,
    native: &Table,
    folder: &Path,
    per_host: u32,
) -> mlua::Result<()> {
    let folder = folder.to_owned();
    let own = Rc::clone(context);
    let begin = lua.create_function(
        move |lua, (name, url, body, options): (String, Value, Value, Value)| {
            let fetch = options::read(lua, &folder, per_host, &name, &url, &body, &options)?;
            let body_bytes_max = fetch.body_bytes_max;
            let fetch = veche_calls::HttpRequest {
                // A body that is read as a whole can't be larger than the VM's memory.
                body_bytes_max: match fetch.is_stream {
                    true => body_bytes_max,
                    false => body_bytes_max.min(own.memory_bytes_max as u64),
                },
                ..fetch
            };
            let token = own.call(Call::Http(HttpCall::Fetch(Box::new(fetch))))?;
            Ok(token.0 as f64)
        },
    )?;
    native.set("http", begin)?;
    let own = Rc::clone(context);
    let read = lua.create_function(move |_, number: f64| {
        let stream = number_of(number).and_then(|number| own.streams.borrow().find(number));
        let stream = stream.ok_or_else(|| {
            fault(
                "the response is closed: it was cancelled, or the coroutine of the request has ended",
            )
        })?;
        let token = own.call(Call::Http(HttpCall::Read(ReadBody { stream })))?;
        Ok(token.0 as f64)
    })?;
    native.set("http_read", read)?;
    let own = Rc::clone(context);
    let close = lua.create_function(move |_, number: f64| {
        if let Some(number) = number_of(number) {
            own.streams.borrow_mut().close(number);
        }
        Ok(())
    })?;
    native.set("http_close", close)?;
    let answers = lua.create_function(|lua, metatable: Table| {
        lua.set_named_registry_value(ANSWERS, metatable)
    })?;
    native.set("http_answers", answers)
}

fn number_of(number: f64) -> Option<u64> {
    (0.0..NUMBERS).contains(&number).then_some(number as u64)
}

/// Converts a response to a Lua object.
pub(super) fn to_lua(lua: &Lua, context: &HostContext, reply: HttpReply) -> mlua::Result<Table> {
    let answer = lua.create_table()?;
    answer.raw_set("status", reply.status)?;
    answer.raw_set("url", reply.url)?;
    answer.raw_set("headers", headers(lua, &reply.headers)?)?;
    match reply.body {
        ReplyBody::Whole(body) => answer.raw_set("body", lua.create_string(body)?)?,
        ReplyBody::Stream(handle) => {
            let number = context.open_stream(handle);
            let number = number
                .ok_or_else(|| fault("http: the limit of a million open responses is reached"))?;
            answer.raw_set("stream", number as f64)?;
        }
    }
    let metatable: Table = lua.named_registry_value(ANSWERS)?;
    answer.set_metatable(Some(metatable))?;
    Ok(answer)
}

/// Returns the headers; values of a repeated name are joined with commas (RFC 9110, section 5.3), except cookies, which
/// are a list.
fn headers(lua: &Lua, headers: &[(String, Vec<u8>)]) -> mlua::Result<Table> {
    let mut joined: BTreeMap<&str, Vec<u8>> = BTreeMap::new();
    let mut cookies = Vec::new();
    for (name, value) in headers {
        go_on()?;
        if name == "set-cookie" {
            cookies.push(lua.create_string(value)?);
            continue;
        }
        let all = joined.entry(name).or_default();
        if !all.is_empty() {
            all.extend_from_slice(b", ");
        }
        all.extend_from_slice(value);
    }
    let table = lua.create_table_with_capacity(0, joined.len())?;
    for (name, value) in joined {
        table.raw_set(name, lua.create_string(value)?)?;
    }
    if !cookies.is_empty() {
        table.raw_set("set-cookie", lua.create_sequence_from(cookies)?)?;
    }
    Ok(table)
}
