//! `app.centrifuge`: converts hook requests to Lua values, and the results of handlers to responses.

use std::net::IpAddr;
use std::rc::Rc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mlua::{Lua, LuaString, MultiValue, Table, Value};
use veche_types::codes::APPLICATION_CODES;
use veche_types::{Payload, PayloadKind, PayloadRef};

use super::copy_limit::{COPIED_BYTES_MAX, CopyLimit, ENTRY_BYTES, option_name};
use super::{fault, go_on, http, json};
use crate::host_context::{HostContext, OpenHook, is_binary};
use crate::task::hook_path;
use veche_runtime::hooks::{
    AppHookCaller, AppHookRequest, Grant, Hook, HookResponse, ServerSubscription,
};

/// The maximum number of channels in a response; a client can't have more subscriptions.
const CHANNELS_MAX: usize = 1024;

/// The longest text of an error or a disconnect, in bytes.
const WORDS_BYTES_MAX: usize = 1024;

pub(super) fn install(lua: &Lua, context: &Rc<HostContext>, native: &Table) -> mlua::Result<()> {
    let own = Rc::clone(context);
    let rule = lua.create_function(move |lua, (number, results): (f64, MultiValue)| {
        let number = number as u64;
        // An expired request needs no response.
        if let Some(open) = own.hook_request(number) {
            let response = hook_response(lua, open, results.front().unwrap_or(&Value::Nil))?;
            own.set_hook_response(number, response);
        }
        Ok(())
    })?;
    native.set("rule", rule)
}

/// Returns the fields that the result of a hook may have.
const fn fields(hook: Hook) -> &'static [&'static str] {
    match hook {
        Hook::Connect => &[
            "user",
            "expire_at",
            "info",
            "b64info",
            "data",
            "b64data",
            "channels",
            "subs",
            "meta",
        ],
        Hook::Refresh | Hook::SubRefresh => &["expired", "expire_at", "info", "b64info"],
        Hook::Subscribe => &["info", "b64info", "data", "b64data", "expire_at"],
        Hook::Publish => &["data", "b64data", "skip_history"],
        Hook::Rpc => &["data", "b64data"],
        Hook::Message | Hook::Disconnect => &[],
    }
}

/// Returns the requesting client as a table.
pub(crate) fn client(lua: &Lua, asked: &AppHookRequest<'_>) -> mlua::Result<Table> {
    let AppHookCaller {
        id,
        user,
        transport,
        protocol,
        name,
        version,
        remote,
        headers,
        meta,
    } = asked.caller;
    let client = lua.create_table()?;
    let encoding = match is_binary(asked) {
        true => "binary",
        false => "json",
    };
    let texts = [
        ("id", id),
        ("user", user),
        ("transport", transport),
        ("protocol", protocol),
        ("encoding", encoding),
        ("name", name),
        ("version", version),
        ("token", asked.token),
    ];
    for (name, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
        client.raw_set(name, text)?;
    }
    let remote: IpAddr = remote.to_canonical();
    client.raw_set("remote", remote.to_string())?;
    let (header_table, cookies) = (lua.create_table()?, lua.create_table()?);
    for (name, value) in headers {
        // Values of repeated headers are joined, as in requests: RFC 9110, section 5.3.
        let text = String::from_utf8_lossy(value);
        http::add_header(&header_table, name, &text)?;
        if &**name == "cookie" {
            http::add_cookies(&cookies, &text)?;
        }
    }
    client.raw_set("headers", header_table)?;
    client.raw_set("cookies", cookies)?;
    if let Some(meta) = meta {
        client.raw_set("meta", json::decode(lua, meta)?)?;
    }
    if asked.hook == Hook::Connect {
        let channels = asked.channels.iter().map(|channel| &**channel);
        client.raw_set("channels", lua.create_sequence_from(channels)?)?;
    }
    Ok(client)
}

fn binary(bytes: Vec<u8>) -> Payload {
    Payload {
        kind: PayloadKind::Binary,
        bytes: bytes.into(),
    }
}

/// Returns the client's data as a value; nil if there is none.
///
/// # Errors
/// The client's data has no Lua value, or its Lua value would be too large. The error is a message for the client.
pub(crate) fn data(lua: &Lua, data: Option<PayloadRef<'_>>) -> Result<Value, &'static str> {
    const NO_ROOM: &str = "not enough memory";
    let Some(PayloadRef { kind, bytes }) = data else {
        return Ok(Value::Nil);
    };
    match kind {
        PayloadKind::Json => {
            if containers(bytes) > CONTAINERS_MAX {
                return Err("too many arrays and objects");
            }
            json::decode(lua, bytes).map_err(|error| match error {
                mlua::Error::RuntimeError(_) => "invalid data",
                _ => NO_ROOM,
            })
        }
        PayloadKind::Text | PayloadKind::Binary => lua
            .create_string(bytes)
            .map(Value::String)
            .map_err(|_| NO_ROOM),
    }
}

/// Maximum number of arrays and objects in a client's data. As Lua values they take thirty times the memory of their
/// text, for as long as the handler is suspended.
const CONTAINERS_MAX: usize = 4096;

/// Returns the number of arrays and objects in a text that is JSON.
fn containers(text: &[u8]) -> usize {
    let (mut count, mut is_text) = (0, false);
    let mut rest = text.iter();
    while let Some(byte) = rest.next() {
        match byte {
            b'"' => is_text = !is_text,
            // The next byte may be an escaped quote.
            b'\\' => _ = rest.next(),
            b'[' | b'{' if !is_text => count += 1,
            _ => {}
        }
    }
    count
}

/// Converts a table that a handler raised as an error to the response that it describes; `None` if
/// it describes none.
pub(crate) fn raised(
    lua: &Lua,
    open: OpenHook,
    value: &Table,
) -> Option<mlua::Result<HookResponse>> {
    let is_meant = ["error", "disconnect"].into_iter().any(|name| {
        let value = value.raw_get::<Value>(name);
        value.is_ok_and(|value| !value.is_nil())
    });
    is_meant.then(|| hook_response(lua, open, &Value::Table(value.clone())))
}

/// Converts the return value of a handler to the response to a hook request.
fn hook_response(lua: &Lua, open: OpenHook, value: &Value) -> mlua::Result<HookResponse> {
    let hook = open.hook;
    let table = match value {
        Value::Table(table) => table,
        Value::Nil if matches!(hook, Hook::Message | Hook::Disconnect) => {
            return Ok(HookResponse::Granted(Box::default()));
        }
        other => {
            return Err(fault(format!(
                "{} returned {}: a table expected ({{}} if there is nothing to return)",
                hook_path(hook),
                match other {
                    Value::Nil => "nothing".to_owned(),
                    Value::Integer(_) => "a number".to_owned(),
                    other => format!("a {}", other.type_name()),
                }
            )));
        }
    };
    let limit = &CopyLimit::new(COPIED_BYTES_MAX);
    let result = ResponseTable {
        lua,
        open,
        table,
        limit,
    };
    if let Some(details) = result.table("error")? {
        result.alone("error")?;
        let error = ResponseTable {
            lua,
            open,
            table: &details,
            limit,
        };
        error.only("error", &["code", "message", "temporary"])?;
        return Ok(HookResponse::Error {
            code: error.code("error", 1, u32::MAX)?,
            message: error.words("message")?,
            is_temporary: error.flag("temporary")?,
        });
    }
    if let Some(details) = result.table("disconnect")? {
        result.alone("disconnect")?;
        let disconnect = ResponseTable {
            lua,
            open,
            table: &details,
            limit,
        };
        disconnect.only("disconnect", &["code", "reason"])?;
        let code = disconnect.code(
            "disconnect",
            (*APPLICATION_CODES.start()).into(),
            (*APPLICATION_CODES.end()).into(),
        )?;
        return Ok(HookResponse::Disconnect {
            code: u16::try_from(code).unwrap_or(u16::MAX),
            reason: disconnect.words("reason")?,
        });
    }
    result.only("a result", fields(hook))?;
    let mut granted = Grant {
        user: result.user()?,
        expires_at_s: result.time()?,
        is_expired: result.flag("expired")?,
        info: result.payload("info", "b64info")?,
        data: result.payload("data", "b64data")?,
        channels: Vec::new(),
        meta: result.json("meta")?,
        skips_history: result.flag("skip_history")?,
    };
    result.subs(&mut granted.channels)?;
    result.channels(&mut granted.channels)?;
    Ok(HookResponse::Granted(Box::new(granted)))
}

/// A table returned by a handler, or nested in one. Its metamethods are not called.
struct ResponseTable<'a> {
    lua: &'a Lua,
    open: OpenHook,
    table: &'a Table,
    /// The number of bytes that the response may still contain.
    limit: &'a CopyLimit,
}

impl ResponseTable<'_> {
    fn path(&self) -> &'static str {
        hook_path(self.open.hook)
    }

    fn bad(&self, name: &str, expected: &str, found: &Value) -> mlua::Error {
        let path = self.path();
        let found = match found {
            Value::Nil => "nothing".to_owned(),
            Value::Integer(number) => number.to_string(),
            Value::Number(number) => number.to_string(),
            other => format!("a {}", other.type_name()),
        };
        fault(format!(
            "{path}: {name}: {expected} expected, found {found}"
        ))
    }

    fn get(&self, name: &str) -> mlua::Result<Value> {
        self.table.raw_get(name)
    }

    /// Rejects unknown fields, which are usually typing mistakes.
    fn only(&self, what: &str, names: &[&str]) -> mlua::Result<()> {
        for pair in self.table.pairs::<Value, Value>() {
            go_on()?;
            let (key, _) = pair?;
            let is_known = match &key {
                Value::String(key) => names.iter().any(|name| key.as_bytes() == name.as_bytes()),
                _ => false,
            };
            if !is_known {
                let key = match &key {
                    Value::String(key) => option_name(key),
                    Value::Integer(_) => "[number]".to_owned(),
                    other => format!("[{}]", other.type_name()),
                };
                let path = self.path();
                let has = match names {
                    [] => "no fields".to_owned(),
                    names => names.join(", "),
                };
                let why = format!("{path}: unknown field {key:?} in {what}: expected {has}");
                return Err(fault(why));
            }
        }
        Ok(())
    }

    fn alone(&self, name: &str) -> mlua::Result<()> {
        self.only(&format!("a result with {name:?}"), &[name])
    }

    fn table(&self, name: &str) -> mlua::Result<Option<Table>> {
        match self.get(name)? {
            Value::Nil => Ok(None),
            Value::Table(table) => Ok(Some(table)),
            other => Err(self.bad(name, "a table", &other)),
        }
    }

    fn flag(&self, name: &str) -> mlua::Result<bool> {
        match self.get(name)? {
            Value::Nil => Ok(false),
            Value::Boolean(flag) => Ok(flag),
            other => Err(self.bad(name, "true or false", &other)),
        }
    }

    fn words(&self, name: &str) -> mlua::Result<String> {
        let value = self.get(name)?;
        match &value {
            Value::Nil => Ok(String::new()),
            Value::String(text) if text.as_bytes().len() <= WORDS_BYTES_MAX => {
                Ok(text.to_string_lossy())
            }
            other => Err(self.bad(name, "a string of at most 1024 bytes", other)),
        }
    }

    fn code(&self, what: &str, min: u32, max: u32) -> mlua::Result<u32> {
        let value = self.get("code")?;
        let code = whole(&value).and_then(|number| u32::try_from(number).ok());
        match code.filter(|code| (min..=max).contains(code)) {
            Some(code) => Ok(code),
            None => {
                let expected = format!("a whole number from {min} to {max}");
                Err(self.bad(&format!("{what}.code"), &expected, &value))
            }
        }
    }

    fn user(&self) -> mlua::Result<String> {
        let value = self.get("user")?;
        match &value {
            Value::Nil => Ok(String::new()),
            Value::String(text) => self.text("user", text),
            value => match whole(value) {
                Some(number) => Ok(number.to_string()),
                None => Err(self.bad("user", "a string or a whole number", value)),
            },
        }
    }

    /// Counts bytes of the response before they are copied.
    fn take(&self, bytes: usize) -> mlua::Result<()> {
        match self.limit.take(bytes + ENTRY_BYTES)? {
            true => Ok(()),
            false => {
                let path = self.path();
                Err(fault(format!("{path}: the result is larger than 16 MiB")))
            }
        }
    }

    fn text(&self, name: &str, text: &LuaString) -> mlua::Result<String> {
        self.take(text.as_bytes().len())?;
        match text.to_str() {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => Err(fault(format!("{}: {name} is not UTF-8", self.path()))),
        }
    }

    /// Returns the field `expire_at`, a time in seconds since 1970. `None` means "never", which a script writes as nil
    /// or 0. A negative number is an error: a script that computed it from a remaining time did not mean "never".
    fn time(&self) -> mlua::Result<Option<u64>> {
        match self.get("expire_at")? {
            Value::Nil => Ok(None),
            Value::Integer(0) => Ok(None),
            Value::Integer(seconds) if seconds > 0 => Ok(u64::try_from(seconds).ok()),
            Value::Number(0.0) => Ok(None),
            Value::Number(seconds) if seconds.is_finite() && seconds >= 1.0 => {
                Ok(Some(seconds as u64))
            }
            other => Err(self.bad("expire_at", "seconds since 1970", &other)),
        }
    }

    fn json(&self, name: &str) -> mlua::Result<Option<Payload>> {
        match self.get(name)? {
            Value::Nil => Ok(None),
            value => self.encoded(name, &value).map(Some),
        }
    }

    fn encoded(&self, name: &str, value: &Value) -> mlua::Result<Payload> {
        let encoded = json::encode(self.lua, value).map_err(|error| {
            let why = super::words(&error);
            let why = why.strip_prefix("json.encode: ").unwrap_or(&why);
            fault(format!("{}: {name}: {why}", self.path()))
        })?;
        self.take(encoded.len())?;
        // The payload may be kept as long as the connection, so it gets no spare memory.
        let (kind, bytes) = (PayloadKind::Json, &*encoded);
        Ok(PayloadRef { kind, bytes }.to_payload())
    }

    /// Returns the decoded bytes of the field whose name is `base64`. If this field is missing, returns the field whose
    /// name is `name`, as JSON; but if the client's data was binary, a string is returned as bytes.
    fn payload(&self, name: &str, base64: &str) -> mlua::Result<Option<Payload>> {
        match self.get(base64)? {
            Value::Nil => {}
            Value::String(text) => {
                self.take(text.as_bytes().len())?;
                let bytes = STANDARD.decode(&*text.as_bytes());
                let bytes = bytes.map_err(|error| {
                    let path = self.path();
                    fault(format!("{path}: {base64} is not base64: {error}"))
                })?;
                return Ok(Some(binary(bytes)));
            }
            other => return Err(self.bad(base64, "a string", &other)),
        }
        match self.get(name)? {
            Value::Nil => Ok(None),
            Value::String(bytes) if self.open.is_binary => {
                self.take(bytes.as_bytes().len())?;
                Ok(Some(binary(bytes.as_bytes().to_vec())))
            }
            value => self.encoded(name, &value).map(Some),
        }
    }

    fn channel(&self, name: &str, channel: &Value) -> mlua::Result<String> {
        match channel {
            Value::String(channel) => self.text(name, channel),
            other => Err(self.bad(name, "names of channels", other)),
        }
    }

    fn subs(&self, channels: &mut Vec<ServerSubscription>) -> mlua::Result<()> {
        let Some(subs) = self.table("subs")? else {
            return Ok(());
        };
        for pair in subs.pairs::<Value, Value>() {
            let (channel, sub) = pair?;
            self.room_for(channels)?;
            let channel = self.channel("subs", &channel)?;
            let (lua, open, limit) = (self.lua, self.open, self.limit);
            channels.push(match sub {
                Value::Table(table) => {
                    let table = &table;
                    let sub = ResponseTable {
                        lua,
                        open,
                        table,
                        limit,
                    };
                    sub.only("one of subs", fields(Hook::Subscribe))?;
                    ServerSubscription {
                        channel,
                        info: sub.payload("info", "b64info")?,
                        data: sub.payload("data", "b64data")?,
                        expires_at_s: sub.time()?,
                    }
                }
                other => return Err(self.bad("subs", "a table for each channel", &other)),
            });
        }
        // Sorted, since the order of a Lua table is arbitrary.
        channels.sort_by(|one, other| one.channel.cmp(&other.channel));
        Ok(())
    }

    fn channels(&self, channels: &mut Vec<ServerSubscription>) -> mlua::Result<()> {
        let Some(list) = self.table("channels")? else {
            return Ok(());
        };
        for index in 1..=list.raw_len() {
            let channel: Value = list.raw_get(index)?;
            self.room_for(channels)?;
            let channel = self.channel("channels", &channel)?;
            channels.push(ServerSubscription {
                channel,
                ..ServerSubscription::default()
            });
        }
        Ok(())
    }

    fn room_for(&self, channels: &[ServerSubscription]) -> mlua::Result<()> {
        match channels.len() < CHANNELS_MAX {
            true => Ok(()),
            false => {
                let path = self.path();
                let why = format!("{path}: the result has more than {CHANNELS_MAX} channels");
                Err(fault(why))
            }
        }
    }
}

fn whole(value: &Value) -> Option<i64> {
    match *value {
        Value::Integer(number) => Some(number),
        Value::Number(number) if number.fract() == 0.0 && number.abs() < 9e15 => {
            Some(number as i64)
        }
        _ => None,
    }
}
