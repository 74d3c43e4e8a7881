//! `veche.time`: the time at the start of the turn, and formatting and parsing of dates in UTC.

use std::rc::Rc;
use std::time::{Duration, UNIX_EPOCH};

use jiff::Timestamp;
use mlua::{Lua, MultiValue, Table};

use super::argument::Arguments;
use super::fault;
use crate::host_context::HostContext;

/// The latest time that an HTTP date can represent, in seconds since 1970: the end of the year 9999.
const HTTP_MAX: f64 = 253_402_300_799.0;

/// The first and the last time, in seconds since 1970: the first second of the year 0, as in
/// RFC 3339, and the last second that is in the year 9999 in every time zone.
const ISO_LIMITS: [f64; 2] = [-62_167_219_200.0, 253_402_207_200.0];

pub(super) fn module(lua: &Lua, context: &Rc<HostContext>) -> mlua::Result<Table> {
    let module = lua.create_table()?;
    let own = Rc::clone(context);
    let now = lua.create_function(move |_, ()| Ok(wall(&own)))?;
    module.set("now", now)?;
    let own = Rc::clone(context);
    let monotonic =
        lua.create_function(move |_, ()| Ok(own.world.now.get().mono_ms as f64 / 1000.0))?;
    module.set("monotonic", monotonic)?;
    http(lua, context, &module)?;
    iso(lua, context, &module)?;
    Ok(module)
}

fn wall(context: &HostContext) -> f64 {
    context.world.now.get().wall_ms as f64 / 1000.0
}

/// The longest date in bytes: parsers examine all of it and repeat it in their errors.
const DATE_BYTES_MAX: usize = 256;

fn date_text(bytes: &[u8]) -> Result<&str, &'static str> {
    if bytes.len() > DATE_BYTES_MAX {
        return Err("the date is longer than 256 bytes");
    }
    std::str::from_utf8(bytes).map_err(|_| "it is not UTF-8")
}

fn http(lua: &Lua, context: &Rc<HostContext>, module: &Table) -> mlua::Result<()> {
    let own = Rc::clone(context);
    let write = lua.create_function(move |_, values: MultiValue| {
        let arguments = Arguments::new("time.http", values);
        let what = "a number of seconds from 0 to 253402300799";
        let seconds = arguments.number(1, [0.0, HTTP_MAX], what)?;
        let seconds = seconds.unwrap_or_else(|| wall(&own)).floor();
        let time = UNIX_EPOCH + Duration::from_secs(seconds as u64);
        Ok(httpdate::fmt_http_date(time))
    })?;
    module.set("http", write)?;
    let read = lua.create_function(|_, values: MultiValue| {
        let arguments = Arguments::new("time.parse_http", values);
        let bytes = arguments.bytes(1)?;
        let time = date_text(&bytes)
            .ok()
            .and_then(|text| httpdate::parse_http_date(text).ok());
        let seconds = time.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        Ok(match seconds {
            Some(seconds) => (Some(seconds.as_secs() as f64), None),
            None => (None, Some("the text is not an HTTP date of 1970 or later")),
        })
    })?;
    module.set("parse_http", read)
}

fn iso(lua: &Lua, context: &Rc<HostContext>, module: &Table) -> mlua::Result<()> {
    let own = Rc::clone(context);
    let write = lua.create_function(move |_, values: MultiValue| {
        let arguments = Arguments::new("time.iso", values);
        let what = "a number of seconds from -62167219200 to 253402207200";
        let seconds = arguments.number(1, ISO_LIMITS, what)?;
        let what = "a whole number from 0 to 6";
        let digits = arguments.whole(2, [0.0, 6.0], what)?.unwrap_or(3.0);
        let seconds = seconds.unwrap_or_else(|| wall(&own));
        // The error of a float is less than a microsecond for present dates, and up to 15 microseconds for the years 0
        // and 9999. Digits beyond the requested precision are truncated, never rounded up.
        let micros = (seconds * 1e6).round() as i64;
        let timestamp = Timestamp::from_microsecond(micros)
            .map_err(|error| fault(format!("time.iso: {error}")))?;
        Ok(format!("{timestamp:.*}", digits as usize))
    })?;
    module.set("iso", write)?;
    let read = lua.create_function(|_, values: MultiValue| {
        let arguments = Arguments::new("time.parse_iso", values);
        let bytes = arguments.bytes(1)?;
        let text = match date_text(&bytes) {
            Ok(text) => text,
            Err(why) => return Ok((None, Some(why.to_owned()))),
        };
        Ok(match text.parse::<Timestamp>() {
            Ok(timestamp) => (Some(timestamp.as_microsecond() as f64 / 1e6), None),
            Err(error) => (None, Some(error.to_string())),
        })
    })?;
    module.set("parse_iso", read)
}
