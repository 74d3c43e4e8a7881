//! `veche.history`, `veche.presence`, `veche.presence_stats`, `veche.user_status`: queries that a channel's home worker
//! answers.

use std::rc::Rc;

use mlua::{Lua, MultiValue, Table, Value};
use veche_calls::channel::{AppChannelQuery, ChannelMember, ChannelPublication, ChannelReply};

use super::argument::{Arguments, as_number};
use super::copy_limit::option_name;
use super::core::{channel_name, user_channel_name};
use super::{fault, go_on};
use crate::host_context::HostContext;

/// The default and the maximum number of publications returned.
const LIMIT: usize = 100;
const LIMIT_MAX: f64 = 100_000.0;

pub(super) fn install(lua: &Lua, context: &Rc<HostContext>, native: &Table) -> mlua::Result<()> {
    let own = Rc::clone(context);
    let history = lua.create_function(move |_, values: MultiValue| {
        let arguments = Arguments::new("history", values);
        let channel = channel_name(arguments.string(1)?)?;
        let request = wanted(&arguments)?;
        Ok(own.query_channel(channel, request).0 as f64)
    })?;
    native.set("history", history)?;
    for (name, request) in [
        ("presence", AppChannelQuery::Presence),
        ("presence_stats", AppChannelQuery::PresenceStats),
    ] {
        let own = Rc::clone(context);
        let ask = lua.create_function(move |_, values: MultiValue| {
            let arguments = Arguments::new(name, values);
            let channel = channel_name(arguments.string(1)?)?;
            Ok(own.query_channel(channel, request.clone()).0 as f64)
        })?;
        native.set(name, ask)?;
    }
    let own = Rc::clone(context);
    let user_status = lua.create_function(move |lua, values: MultiValue| {
        let arguments = Arguments::new("user_status", values);
        let user = arguments.string(1)?;
        if user.as_bytes().is_empty() {
            return Err(arguments.bad(1, "the name of a user expected"));
        }
        let channel = user_channel_name(lua, user)?;
        Ok(own.query_channel(channel, AppChannelQuery::UserStatus).0 as f64)
    })?;
    native.set("user_status", user_status)
}

/// Parses which part of a history is requested.
fn wanted(arguments: &Arguments) -> mlua::Result<AppChannelQuery> {
    let (mut since, mut limit, mut is_reverse) = (None, LIMIT, false);
    let options = match arguments.at(2) {
        Value::Nil => None,
        Value::Table(options) => Some(options),
        _ => return Err(arguments.expected(2, "a table of options")),
    };
    for pair in options.into_iter().flat_map(Table::pairs::<Value, Value>) {
        let (key, value) = pair?;
        let key = match &key {
            Value::String(key) => option_name(key),
            other => other.to_string()?,
        };
        match (key.as_str(), &value) {
            ("since", Value::String(position)) => since = Some(option_name(position)),
            ("since", _) => {
                return Err(fault("bad option since to 'history': a position expected"));
            }
            ("limit", value) => {
                let number = as_number(value).filter(|number| number.fract() == 0.0);
                let number = number.filter(|number| (0.0..=LIMIT_MAX).contains(number));
                let number = number.ok_or_else(|| {
                    fault("bad option limit to 'history': a whole number from 0 to 100000 expected")
                })?;
                limit = number as usize;
            }
            ("reverse", Value::Boolean(value)) => is_reverse = *value,
            ("reverse", _) => {
                return Err(fault("bad option reverse to 'history': a boolean expected"));
            }
            (other, _) => {
                return Err(fault(format!(
                    "bad argument #2 to 'history': there is no option '{other}'"
                )));
            }
        }
    }
    Ok(AppChannelQuery::History {
        since,
        limit,
        is_reverse,
    })
}

pub(super) fn to_lua(lua: &Lua, reply: ChannelReply) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    match reply {
        ChannelReply::Joined {
            position,
            recovered,
        } => {
            if let Some((epoch, offset)) = position {
                table.raw_set("position", format!("{epoch}:{offset}"))?;
                table.raw_set("epoch", epoch)?;
                table.raw_set("offset", offset as f64)?;
            }
            table.raw_set("recovered", recovered)?;
        }
        ChannelReply::History {
            publications,
            position,
        } => {
            let list = lua.create_table_with_capacity(publications.len(), 0)?;
            for publication in publications {
                go_on()?;
                list.raw_push(published(lua, publication)?)?;
            }
            table.raw_set("publications", list)?;
            table.raw_set("position", position)?;
        }
        ChannelReply::Presence(members) => {
            for one in members {
                go_on()?;
                table.raw_push(member(lua, one)?)?;
            }
        }
        ChannelReply::PresenceStats { clients, users } => {
            table.raw_set("clients", clients)?;
            table.raw_set("users", users)?;
        }
        ChannelReply::UserStatus {
            connections,
            last_seen_ms,
        } => {
            table.raw_set("connections", connections)?;
            table.raw_set("last_seen", last_seen_ms.map(seconds))?;
        }
    }
    Ok(table)
}

fn published(lua: &Lua, published: ChannelPublication) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("data", lua.create_string(published.data)?)?;
    table.raw_set("kind", if published.is_text { "text" } else { "binary" })?;
    table.raw_set("position", published.position)?;
    table.raw_set("at", seconds(published.at_ms))?;
    if let Some(by) = published.by {
        table.raw_set("by", member(lua, by)?)?;
    }
    if !published.tags.is_empty() {
        let tags = lua.create_table()?;
        for (name, value) in published.tags {
            go_on()?;
            tags.raw_set(name, value)?;
        }
        table.raw_set("tags", tags)?;
    }
    Ok(table)
}

fn member(lua: &Lua, member: ChannelMember) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("user", member.user)?;
    table.raw_set("client", member.client)?;
    if let Some(info) = member.info {
        table.raw_set("info", lua.create_string(info)?)?;
    }
    Ok(table)
}

fn seconds(ms: u64) -> f64 {
    ms as f64 / 1000.0
}
