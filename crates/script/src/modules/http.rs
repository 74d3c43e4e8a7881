//! Requests as scripts read them, and what they answer.

use std::borrow::Cow;
use std::rc::Rc;

use mlua::{Lua, LuaString, MultiValue, Table, Value};

use super::{fault, json};
use crate::desk::Desk;
use crate::effects::{Effect, Verdict};
use crate::request::Request;

/// Reads one field of a request.
type Read = fn(&Lua, &Request) -> mlua::Result<Value>;

/// All of them.
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
            // A body that is no JSON is the client's mistake: the handler finds nil and answers 400.
            Err(_) => Ok(Value::Nil),
        }
    }),
];

fn text(lua: &Lua, text: &str) -> mlua::Result<Value> {
    lua.create_string(text).map(Value::String)
}

/// Of a name that comes more than once the first counts.
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

/// `+` and percent signs of a query decoded.
fn decoded(text: &str) -> Cow<'_, [u8]> {
    if !text.contains(['+', '%']) {
        return Cow::Borrowed(text.as_bytes());
    }
    let spaced = text.replace('+', " ");
    Cow::Owned(percent_encoding::percent_decode_str(&spaced).collect())
}

/// Values of one name that came in several lines stand in one, with commas: RFC 9110, section 5.3.
fn headers(lua: &Lua, request: &Request) -> mlua::Result<Value> {
    let table = lua.create_table()?;
    for (name, value) in request.headers() {
        match table.get::<Option<LuaString>>(name)? {
            None => table.set(name, value)?,
            Some(before) => {
                let separator = if name == "cookie" { "; " } else { ", " };
                let joined = format!("{}{separator}{value}", before.to_string_lossy());
                table.set(name, joined)?;
            }
        }
    }
    Ok(Value::Table(table))
}

fn cookies(lua: &Lua, request: &Request) -> mlua::Result<Value> {
    let table = lua.create_table()?;
    let lines = request.headers().filter(|(name, _)| *name == "cookie");
    for pair in lines.flat_map(|(_, value)| value.split(';')) {
        if let Some((name, value)) = pair.trim().split_once('=')
            && !table.contains_key(name)?
        {
            table.set(name, value.trim_matches('"'))?;
        }
    }
    Ok(Value::Table(table))
}

pub(super) fn install(lua: &Lua, desk: &Rc<Desk>, native: &Table) -> mlua::Result<()> {
    let fields = lua.create_table()?;
    for (name, read) in FIELDS {
        let own = Rc::clone(desk);
        let function = lua.create_function(move |lua, number: f64| {
            own.with_request(number as u64, |request| read(lua, request))
                .unwrap_or_else(|| {
                    Err(fault(format!(
                        "the request is over: read request.{name} before it is answered"
                    )))
                })
        })?;
        fields.set(*name, function)?;
    }
    native.set("request_fields", fields)?;
    let own = Rc::clone(desk);
    let respond = lua.create_function(move |lua, (number, results): (f64, MultiValue)| {
        let answer = HttpAnswer::from_lua(lua, results)?;
        let Some(to) = own.end_request(number as u64) else {
            return Ok(());
        };
        let mut effects = own.world.effects.borrow_mut();
        let body = effects.keep(&answer.body).unwrap_or_default();
        effects.list.push(Effect::Respond {
            to,
            status: answer.status,
            headers: answer.headers,
            body,
        });
        Ok(())
    })?;
    native.set("respond", respond)?;
    let own = Rc::clone(desk);
    let judge = lua.create_function(move |lua, (number, results): (f64, MultiValue)| {
        let verdict = verdict(lua, results)?;
        if let Some(of) = own.end_request(number as u64) {
            own.effect(Effect::Verdict { of, verdict });
        }
        Ok(())
    })?;
    native.set("judge", judge)
}

/// What a handler has returned, made whole.
#[derive(Debug)]
struct HttpAnswer {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl HttpAnswer {
    /// `status, headers, body`; each but the last may be left out. A table as the body is JSON.
    fn from_lua(lua: &Lua, results: MultiValue) -> mlua::Result<Self> {
        let mut results: Vec<Value> = results.into_iter().collect();
        while results.last().is_some_and(Value::is_nil) {
            results.pop();
        }
        let mut results = results.into_iter();
        let mut next = results.next();
        let mut status = None;
        let number = match next {
            Some(Value::Integer(number)) => Some(number as f64),
            Some(Value::Number(number)) => Some(number),
            _ => None,
        };
        if let Some(number) = number {
            if !(200.0..=599.0).contains(&number) || number.fract() != 0.0 {
                return Err(fault(format!(
                    "request: a status from 200 to 599 expected, not {number}"
                )));
            }
            status = Some(number as u16);
            next = results.next();
        }
        let mut headers = Vec::new();
        let second = results.next();
        let body = match (next, second) {
            (first, Some(body)) => {
                match first {
                    Some(Value::Table(table)) => headers = pairs(&table)?,
                    None | Some(Value::Nil) => {}
                    Some(other) => {
                        return Err(fault(format!(
                            "request: a table of headers expected before the body, not a {}",
                            other.type_name()
                        )));
                    }
                }
                Some(body)
            }
            (first, None) => first,
        };
        let (kind, body) = match body {
            None | Some(Value::Nil) if status.is_none() => {
                return Err(fault(
                    "request returned nothing: return a body, or a status, headers and a body",
                ));
            }
            None | Some(Value::Nil) => (None, Vec::new()),
            Some(Value::String(text)) => {
                (Some("text/plain; charset=utf-8"), text.as_bytes().to_vec())
            }
            Some(value @ Value::Table(_)) => (Some("application/json"), json::encode(lua, &value)?),
            Some(other) => {
                return Err(fault(format!(
                    "request: a body is a string, or a table for JSON, not a {}",
                    other.type_name()
                )));
            }
        };
        if let Some(kind) = kind
            && !headers
                .iter()
                .any(|(name, _)| name.eq_ignore_ascii_case("content-type"))
        {
            headers.push(("Content-Type".to_owned(), kind.to_owned()));
        }
        Ok(Self {
            status: status.unwrap_or(200),
            headers,
            body,
        })
    }
}

/// Headers of a table; a list as the value gives several lines.
fn pairs(table: &Table) -> mlua::Result<Vec<(String, String)>> {
    let mut headers = Vec::new();
    for pair in table.pairs::<String, Value>() {
        let (name, value) = pair.map_err(|_| fault("request: a header's name is a string"))?;
        match value {
            Value::Table(values) => {
                for value in values.sequence_values::<String>() {
                    headers.push((name.clone(), value?));
                }
            }
            Value::String(_) | Value::Number(_) | Value::Integer(_) => {
                headers.push((name, value.to_string()?));
            }
            other => {
                return Err(fault(format!(
                    "request: header '{name}' is a {}; a string expected",
                    other.type_name()
                )));
            }
        }
    }
    Ok(headers)
}

/// `nil` or `true` accepts, a table says more, `false` or a response refuses.
fn verdict(lua: &Lua, results: MultiValue) -> mlua::Result<Verdict> {
    match results.front() {
        None | Some(Value::Nil | Value::Boolean(true)) => Ok(Verdict::Accept {
            user: None,
            protocol: None,
        }),
        Some(Value::Boolean(false)) => Ok(Verdict::Refuse {
            status: 403,
            headers: vec![("Content-Type".into(), "text/plain; charset=utf-8".into())],
            body: b"refused\n".to_vec(),
        }),
        Some(Value::Table(table)) => Ok(Verdict::Accept {
            user: table.get("user")?,
            protocol: table.get("protocol")?,
        }),
        Some(_) => {
            let answer = HttpAnswer::from_lua(lua, results)?;
            if answer.status < 300 {
                return Err(fault(
                    "handshake: a refusal has a status from 300 to 599; return true to accept",
                ));
            }
            Ok(Verdict::Refuse {
                status: answer.status,
                headers: answer.headers,
                body: answer.body,
            })
        }
    }
}
