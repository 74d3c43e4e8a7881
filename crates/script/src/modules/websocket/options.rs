//! The options of an outgoing WebSocket.

use std::path::Path;

use mlua::Value;
use veche_calls::CertificateTrust;

use crate::modules::argument::{Arguments, as_number, is_token};
use crate::modules::copy_limit::{option_name, text_bytes};

/// The longest time that a script may set in an option, in seconds.
const TIMEOUT_MAX: f64 = 3600.0;
/// The default time limit for opening a connection, in milliseconds.
const TIMEOUT_MS: u64 = 10_000;

/// The smallest and the largest limit that a script may set for messages from the server, in bytes.
const MESSAGE_BYTES_LIMITS: [f64; 2] = [1.0, (1u64 << 30) as f64];
/// The default limit of a message from the server, in bytes.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// The default time without input after which a ping is sent, in milliseconds.
const PING_INTERVAL_MS: u64 = 25_000;
/// The default time limit for the pong that answers a ping, in milliseconds.
const PONG_TIMEOUT_MS: u64 = 10_000;

/// Limit of all additional headers in bytes.
const HEADERS_BYTES_MAX: usize = 8192;

/// Headers that the handshake sets itself, or that would change the meaning of the request.
const OWN_HEADERS: &[&str] = &[
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// The options of one connection. The fields have the same meaning as in [`Dial`](crate::Dial).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Options {
    pub(super) protocols: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) compresses: bool,
    pub(super) message_bytes_max: usize,
    pub(super) timeout_ms: u64,
    pub(super) ping_interval_ms: u64,
    pub(super) pong_timeout_ms: u64,
    pub(super) trust: CertificateTrust,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            protocols: String::new(),
            headers: Vec::new(),
            compresses: false,
            message_bytes_max: MESSAGE_BYTES_MAX,
            timeout_ms: TIMEOUT_MS,
            ping_interval_ms: PING_INTERVAL_MS,
            pong_timeout_ms: PONG_TIMEOUT_MS,
            trust: CertificateTrust::System,
        }
    }
}

impl Options {
    /// Reads the options from the second argument of a call. Their paths are relative to `folder`.
    pub(super) fn read(arguments: &Arguments, folder: &Path) -> mlua::Result<Self> {
        let mut options = Self::default();
        let table = match arguments.at(2) {
            Value::Nil => return Ok(options),
            Value::Table(table) => table,
            _ => return Err(arguments.expected(2, "a table of options")),
        };
        let mut is_insecure = false;
        for pair in table.pairs::<Value, Value>() {
            let (name, value) = pair?;
            let Value::String(name) = name else {
                return Err(arguments.bad(2, "the names of options must be strings"));
            };
            let name = option_name(&name);
            let wrong = |what: &str| arguments.bad(2, &format!("{name}: {what} expected"));
            let seconds = |least: f64| {
                let seconds = as_number(&value);
                let seconds = seconds.filter(|value| (least..=TIMEOUT_MAX).contains(value));
                let seconds = seconds.ok_or_else(|| {
                    wrong(&format!(
                        "a number of seconds from {least} to {TIMEOUT_MAX}"
                    ))
                })?;
                Ok::<_, mlua::Error>((seconds * 1000.0).ceil() as u64)
            };
            let flag = || match value {
                Value::Boolean(flag) => Ok(flag),
                _ => Err(wrong("true or false")),
            };
            match name.as_str() {
                "headers" => {
                    let bad = |why: String| arguments.bad(2, &format!("headers: {why}"));
                    options.headers = headers(&value).map_err(bad)?;
                }
                "protocols" => options.protocols = protocols(&value).map_err(|why| wrong(&why))?,
                "timeout" => options.timeout_ms = seconds(0.001)?,
                "ping_interval" => options.ping_interval_ms = seconds(0.0)?,
                "pong_timeout" => options.pong_timeout_ms = seconds(0.001)?,
                "compression" => options.compresses = flag()?,
                "insecure" => is_insecure = flag()?,
                "message_bytes_max" => {
                    let [least, most] = MESSAGE_BYTES_LIMITS;
                    let bytes = as_number(&value)
                        .filter(|value| (least..=most).contains(value) && value.fract() == 0.0)
                        .ok_or_else(|| wrong("a whole number from 1 to 1073741824"))?;
                    options.message_bytes_max = bytes as usize;
                }
                "ca_file" => match &value {
                    Value::String(path) if !path.as_bytes().contains(&0) => {
                        let path = path.to_str().map_err(|_| wrong("a path in UTF-8"))?;
                        options.trust = CertificateTrust::File(folder.join(&*path));
                    }
                    _ => return Err(wrong("the path of a PEM file")),
                },
                _ => {
                    return Err(arguments.bad(2, &format!("there is no option {name:?}")));
                }
            }
        }
        if is_insecure {
            options.trust = CertificateTrust::Insecure;
        }
        Ok(options)
    }
}

/// Returns the subprotocols, joined with commas in order of preference. `value` is one name or a list of names.
fn protocols(value: &Value) -> Result<String, String> {
    const WHAT: &str = "a list of subprotocol names without spaces and commas";
    let mut joined = String::new();
    let mut add = |name: &Value| {
        let Value::String(name) = name else {
            return Err(WHAT.to_owned());
        };
        let name = name.as_bytes();
        if joined.len() + 2 + name.len() > HEADERS_BYTES_MAX {
            return Err(format!(
                "subprotocol names of at most {HEADERS_BYTES_MAX} bytes in total"
            ));
        }
        if name.is_empty() || !name.iter().copied().all(is_token) {
            return Err(WHAT.to_owned());
        }
        if !joined.is_empty() {
            joined.push_str(", ");
        }
        // The name is a token, and so ASCII.
        joined.push_str(&String::from_utf8_lossy(&name));
        Ok(())
    };
    match value {
        Value::Table(list) => {
            for name in list.sequence_values::<Value>() {
                add(&name.map_err(|_| WHAT.to_owned())?)?;
            }
        }
        name => add(name)?,
    }
    Ok(joined)
}

fn headers(value: &Value) -> Result<Vec<(String, String)>, String> {
    const WHAT: &str = "a table of header names and values expected";
    let Value::Table(table) = value else {
        return Err(WHAT.into());
    };
    let too_long =
        || format!("names and values may have at most {HEADERS_BYTES_MAX} bytes in total");
    let mut headers = Vec::new();
    let mut bytes = 0;
    for pair in table.pairs::<Value, Value>() {
        let Ok((Value::String(name), value)) = pair else {
            return Err(WHAT.into());
        };
        if name.as_bytes().len() > HEADERS_BYTES_MAX {
            return Err(too_long());
        }
        let name = name.to_string_lossy();
        let own = name.to_ascii_lowercase();
        if OWN_HEADERS.contains(&&*own) || own.starts_with("sec-websocket-") {
            return Err(format!("{name} is set by the client itself"));
        }
        if name.is_empty() || !name.bytes().all(is_token) {
            return Err(format!("{name:?} is not a header name"));
        }
        let mut add = |value: &Value| {
            bytes += name.len() + text_bytes(value) + 4;
            if bytes > HEADERS_BYTES_MAX {
                return Err(too_long());
            }
            let text = text(value);
            let text =
                text.ok_or_else(|| format!("{name}: a string or a list of strings expected"))?;
            let is_good = |byte: u8| byte == b'\t' || !byte.is_ascii_control();
            if !text.bytes().all(is_good) {
                return Err(format!(
                    "{name}: line breaks and control characters are not allowed"
                ));
            }
            headers.push((name.clone(), text));
            Ok(())
        };
        match &value {
            Value::Table(list) => {
                // A list may contain only strings.
                for value in list.sequence_values::<Value>() {
                    let value = value.ok().filter(Value::is_string);
                    add(&value.unwrap_or(Value::Nil))?;
                }
            }
            value => add(value)?,
        }
    }
    // Sorted, since the order of a Lua table is arbitrary.
    headers.sort();
    Ok(headers)
}

/// Returns the value of a header.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.to_str().ok()?.to_owned()),
        Value::Integer(_) | Value::Number(_) => value.to_string().ok(),
        _ => None,
    }
}
