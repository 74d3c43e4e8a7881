//! The return values of request handlers, and `veche.file`.

use mlua::{Function, Lua, MultiValue, Table, Value};

use crate::modules::argument::Arguments;
use crate::modules::copy_limit::{CopyLimit, option_name, text_bytes};
use crate::modules::{fault, json};
use veche_runtime::is_file_path;

/// A complete response of a handler.
#[derive(Debug)]
pub(super) struct HttpAnswer {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Body,
}

/// The content of a response.
#[derive(Debug)]
pub(super) enum Body {
    Bytes(Vec<u8>),
    /// A file, by its path below the configured folder of files.
    File(String),
    /// A function that writes the body.
    Function(Function),
}

impl HttpAnswer {
    /// Converts the results `status, headers, body`; the status and the headers are optional. A
    /// body that is a table is encoded as JSON. `files` is the metatable of `veche.file` objects.
    pub(super) fn from_lua(lua: &Lua, files: &Table, results: MultiValue) -> mlua::Result<Self> {
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
                    "the handler request returned nothing: it must return a body, or a status, headers and a body",
                ));
            }
            None | Some(Value::Nil) => (None, Body::Bytes(Vec::new())),
            Some(Value::String(text)) => (
                Some("text/plain; charset=utf-8"),
                Body::Bytes(text.as_bytes().to_vec()),
            ),
            Some(Value::Table(table)) if table.metatable().as_ref() == Some(files) => {
                (None, file_body(&table, &mut headers)?)
            }
            Some(value @ Value::Table(_)) => (
                Some("application/json"),
                Body::Bytes(json::encode(lua, &value)?),
            ),
            Some(Value::Function(function)) => {
                (Some("application/octet-stream"), Body::Function(function))
            }
            Some(other) => {
                return Err(fault(format!(
                    "request: a body must be a string, a table for JSON, a file or a function that writes it, not a {}",
                    other.type_name()
                )));
            }
        };
        if let Some(kind) = kind {
            add(&mut headers, "Content-Type", kind);
        }
        Ok(Self {
            status: status.unwrap_or(200),
            headers,
            body,
        })
    }
}

/// Limit of the size of a response's headers in bytes: names, values and separators.
const HEADERS_BYTES_MAX: usize = 64 << 10;

/// The number of bytes of the separators of one header: `: ` and CRLF.
const SEPARATOR_BYTES: usize = 4;

/// Returns the headers in a table; a value that is a list gives one header line for each element.
fn pairs(table: &Table) -> mlua::Result<Vec<(String, String)>> {
    let limit = CopyLimit::new(HEADERS_BYTES_MAX);
    let mut headers = Vec::new();
    for pair in table.pairs::<Value, Value>() {
        let (name, value) = pair?;
        let name = match &name {
            Value::String(name) if name.as_bytes().len() <= HEADERS_BYTES_MAX => {
                let name = name.to_str();
                let name =
                    name.map_err(|_| fault("request: the name of a response header is not UTF-8"))?;
                name.to_owned()
            }
            Value::String(_) => return Err(too_long()),
            _ => {
                return Err(fault(
                    "request: the name of a response header must be a string",
                ));
            }
        };
        let mut add = |value: &Value| {
            if !limit.take(name.len() + text_bytes(value) + SEPARATOR_BYTES)? {
                return Err(too_long());
            }
            let text = match value {
                Value::String(text) => {
                    let text = text.to_str().map(|text| text.to_owned());
                    text.map_err(|_| fault(format!("request: header '{name}' is not UTF-8")))?
                }
                Value::Number(_) | Value::Integer(_) => value.to_string()?,
                other => {
                    return Err(fault(format!(
                        "request: header '{name}' is a {}; a string expected",
                        other.type_name()
                    )));
                }
            };
            headers.push((name.clone(), text));
            Ok(())
        };
        match value {
            Value::Table(values) => {
                for value in values.sequence_values::<Value>() {
                    add(&value?)?;
                }
            }
            value => add(&value)?,
        }
    }
    Ok(headers)
}

fn too_long() -> mlua::Error {
    fault("request: the headers are longer than 64 KiB")
}

/// Adds a header unless the script has set it.
fn add(headers: &mut Vec<(String, String)>, name: &str, value: &str) {
    let mut names = headers.iter().map(|(name, _)| name);
    if !names.any(|given| given.eq_ignore_ascii_case(name)) {
        headers.push((name.to_owned(), value.to_owned()));
    }
}

/// The longest download name in bytes.
const NAME_BYTES_MAX: usize = 255;

/// The error of `veche.file` if the application has no folder of files.
const WITHOUT_FOLDER: &str = "veche.file: this app has no folder of files; set files = \"FOLDER\" in its [[app]] or \
                              [[route]]";

/// Defines `file(path, options)`; returns the metatable of the tables that `file` returns.
pub(super) fn file(lua: &Lua, native: &Table, has_folder: bool) -> mlua::Result<Table> {
    let metatable = lua.create_table()?;
    metatable.set("__metatable", false)?;
    let own = metatable.clone();
    let file = lua.create_function(move |lua, values: MultiValue| {
        if !has_folder {
            return Err(fault(WITHOUT_FOLDER));
        }
        let arguments = Arguments::new("file", values);
        let path = arguments.string(1)?.to_str();
        let path = path.map_err(|_| arguments.bad(1, "it is not UTF-8"))?;
        if !is_file_path(&path) {
            return Err(arguments.bad(
                1,
                "expected a path below the folder of files, such as \"pages/a.html\"; '.', '..' and hidden names are not allowed",
            ));
        }
        let file = lua.create_table()?;
        file.raw_set("path", &*path)?;
        match arguments.at(2) {
            Value::Nil => {}
            Value::Table(options) => {
                for pair in options.pairs::<Value, Value>() {
                    file_option(&arguments, &file, pair?)?;
                }
            }
            _ => return Err(arguments.expected(2, "a table of options")),
        }
        file.set_metatable(Some(own.clone()))?;
        Ok(file)
    })?;
    native.set("file", file)?;
    Ok(metatable)
}

fn file_option(
    arguments: &Arguments,
    file: &Table,
    (name, value): (Value, Value),
) -> mlua::Result<()> {
    let name = match &name {
        Value::String(name) => option_name(name),
        _ => String::new(),
    };
    let text = match &value {
        Value::String(text) => text.to_str().ok(),
        _ => None,
    };
    let is_good = |text: &str| {
        (1..=NAME_BYTES_MAX).contains(&text.len()) && !text.chars().any(char::is_control)
    };
    match (name.as_str(), text.as_deref().filter(|text| is_good(text))) {
        ("download" | "content_type", Some(text)) => file.raw_set(name, text),
        ("download" | "content_type", None) => Err(arguments.bad(
            2,
            &format!("{name}: a string of 1 to 255 bytes without control characters expected"),
        )),
        _ => Err(arguments.bad(2, "the options are download and content_type")),
    }
}

/// Returns the file as a body, and adds the headers that its options ask for.
fn file_body(file: &Table, headers: &mut Vec<(String, String)>) -> mlua::Result<Body> {
    if let Some(name) = file.raw_get::<Option<String>>("download")? {
        add(headers, "Content-Disposition", &attachment(&name));
    }
    if let Some(kind) = file.raw_get::<Option<String>>("content_type")? {
        add(headers, "Content-Type", &kind);
    }
    let path: String = file.raw_get("path")?;
    if !is_file_path(&path) {
        return Err(fault(
            "request: the script has changed the path in the result of veche.file",
        ));
    }
    Ok(Body::File(path))
}

/// Formats `Content-Disposition` (RFC 6266), with an ASCII name for old clients and the full name.
fn attachment(name: &str) -> String {
    let plain: String = name
        .chars()
        .map(|one| match one {
            '"' | '\\' => '_',
            one if one.is_ascii() => one,
            _ => '_',
        })
        .collect();
    let encoded = percent_encoding::utf8_percent_encode(name, percent_encoding::NON_ALPHANUMERIC);
    format!("attachment; filename=\"{plain}\"; filename*=UTF-8''{encoded}")
}
