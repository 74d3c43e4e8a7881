//! Parses options that are durations.

use mlua::{Table, Value};

use super::argument::as_number;
use super::fault;

/// The longest timeout in seconds: a day.
const TIMEOUT_MAX_S: f64 = 86_400.0;

/// Reads the option `timeout` in seconds, or returns `default_s`.
pub(super) fn timeout(
    options: Option<&Table>,
    default_s: f64,
    what: &str,
) -> mlua::Result<std::time::Duration> {
    let given = options.map(|options| options.raw_get("timeout"));
    let given = given.transpose()?.unwrap_or(Value::Nil);
    seconds(&given, "timeout", default_s, what)
}

/// Converts the value of an option that is a duration in seconds; nil gives `default_s`.
pub(super) fn seconds(
    value: &Value,
    option: &str,
    default_s: f64,
    what: &str,
) -> mlua::Result<std::time::Duration> {
    let seconds = match value {
        Value::Nil => default_s,
        value => as_number(value).unwrap_or(f64::NAN),
    };
    if !(seconds > 0.0 && seconds <= TIMEOUT_MAX_S) {
        return Err(fault(format!(
            "bad option {option} to '{what}': more than 0 and at most {TIMEOUT_MAX_S} seconds expected"
        )));
    }
    Ok(std::time::Duration::from_secs_f64(seconds))
}
