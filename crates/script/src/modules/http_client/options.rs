//! Validation of a script's HTTP request: none of its parts can inject another header line.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::Path;
use std::time::Duration;

use mlua::{Lua, Table, Value};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use veche_calls::{CertificateTrust, HttpRequest};

use super::super::argument::{as_number, is_token};
use super::super::copy_limit::{CopyLimit, option_name};
use super::super::{fault, go_on, json, timeouts};

/// The default timeout in seconds.
const TIMEOUT_S: f64 = 30.0;
const CONNECT_TIMEOUT_S: f64 = 10.0;

const REDIRECTS: [f64; 3] = [5.0, 0.0, 100.0];
const PER_HOST: [f64; 3] = [100.0, 1.0, 65_536.0];
const BODY_BYTES: [f64; 3] = [(16 << 20) as f64, 0.0, 9_007_199_254_740_992.0];

/// The longest URL in bytes, including its query.
const URL_BYTES_MAX: usize = 16 << 10;

/// Limit of the names and values of all headers, in bytes.
const HEADERS_BYTES_MAX: usize = 64 << 10;

/// The longest form in bytes, the same as the limit for JSON.
const FORM_BYTES_MAX: usize = 8 << 20;

/// Maximum number of names in a form or a query string.
const NAMES_MAX: usize = 100_000;

/// The number of bytes that are encoded between two checks of the CPU budget.
const PART_BYTES: usize = 16 << 10;

/// The longest path of a file in bytes.
const PATH_BYTES_MAX: usize = 4096;

/// Headers that are set by the HTTP client itself.
const OWN_HEADERS: &[&str] = &[
    "connection",
    "content-length",
    "expect",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Characters that a form escapes (URL standard, "application/x-www-form-urlencoded percent-encode set"). The space is
/// not among them, since a form writes it as `+`.
const FORM: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'*')
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b' ');

/// A request under construction.
struct Draft<'a> {
    lua: &'a Lua,
    /// The folder that paths are relative to.
    folder: &'a Path,
    /// The name of the called function.
    name: &'a str,
    fetch: HttpRequest,
    query: Option<String>,
    has_body: bool,
    content_type: Option<&'static str>,
}

/// Reads the arguments of a function of `veche.http`. `request` has only options; the other
/// functions also have a URL, and some a body.
pub(super) fn read(
    lua: &Lua,
    folder: &Path,
    per_host: u32,
    name: &str,
    url: &Value,
    body: &Value,
    options: &Value,
) -> mlua::Result<HttpRequest> {
    let is_request = name == "request";
    let has_body = matches!(name, "post" | "put" | "patch");
    let mut draft = Draft {
        lua,
        folder,
        name,
        fetch: HttpRequest {
            method: match is_request {
                true => "GET".to_owned(),
                false => name.to_ascii_uppercase(),
            },
            url: String::new(),
            headers: Vec::new(),
            body: Vec::new(),
            timeout: Duration::from_secs_f64(TIMEOUT_S),
            connect_timeout: Duration::from_secs_f64(CONNECT_TIMEOUT_S),
            redirects_max: REDIRECTS[0] as u32,
            body_bytes_max: 0,
            connections_max: per_host,
            trust: CertificateTrust::System,
            is_stream: false,
        },
        query: None,
        has_body: false,
        content_type: None,
    };
    if !is_request {
        draft.fetch.url = draft.url(url, "argument #1")?;
    }
    let options_at = match (is_request, has_body) {
        (true, _) => 1,
        (_, false) => 2,
        (_, true) => 3,
    };
    let mut body_bytes_max = None;
    match body {
        Value::Nil => {}
        Value::String(text) => draft.body(text.as_bytes().to_vec(), None)?,
        Value::Table(table) => draft.options(table, &mut body_bytes_max)?,
        _ => {
            return Err(draft.bad(
                "argument #2",
                "a string, or a table with json, form or body, expected",
            ));
        }
    }
    match options {
        Value::Nil if !is_request => {}
        Value::Table(table) => draft.options(table, &mut body_bytes_max)?,
        _ => {
            return Err(draft.bad(
                &format!("argument #{options_at}"),
                "a table of options expected",
            ));
        }
    }
    if draft.fetch.url.is_empty() {
        return Err(draft.bad("option url", "a URL string expected"));
    }
    draft.finish(body_bytes_max)
}

impl Draft<'_> {
    fn bad(&self, what: &str, why: &str) -> mlua::Error {
        fault(format!("bad {what} to '{}': {why}", self.name))
    }

    fn options(&mut self, table: &Table, body_bytes_max: &mut Option<u64>) -> mlua::Result<()> {
        let mut is_insecure = false;
        for pair in table.pairs::<Value, Value>() {
            let (key, value) = pair?;
            let Value::String(key) = &key else {
                return Err(self.bad("options", "option names must be strings"));
            };
            let key = option_name(key);
            let expected =
                |what: &str| self.bad(&format!("option {key}"), &format!("{what} expected"));
            let flag = || match value {
                Value::Boolean(flag) => Ok(flag),
                _ => Err(expected("true or false")),
            };
            let whole = |[_, least, most]: [f64; 3]| {
                let number = as_number(&value)
                    .filter(|number| (least..=most).contains(number) && number.fract() == 0.0);
                number.ok_or_else(|| expected(&format!("a whole number from {least} to {most}")))
            };
            match key.as_str() {
                "timeout" => {
                    self.fetch.timeout = timeouts::seconds(&value, &key, TIMEOUT_S, self.name)?;
                }
                "connect_timeout" => {
                    let seconds = timeouts::seconds(&value, &key, CONNECT_TIMEOUT_S, self.name)?;
                    self.fetch.connect_timeout = seconds;
                }
                "redirects" => self.fetch.redirects_max = whole(REDIRECTS)? as u32,
                "max_per_host" => self.fetch.connections_max = whole(PER_HOST)? as u32,
                "max_body" => *body_bytes_max = Some(whole(BODY_BYTES)? as u64),
                "stream" => self.fetch.is_stream = flag()?,
                "insecure" => is_insecure = flag()?,
                "ca_file" => match &value {
                    Value::String(path) if is_path(&path.as_bytes()) => {
                        let path = self.folder.join(path.to_string_lossy());
                        self.fetch.trust = CertificateTrust::File(path);
                    }
                    _ => return Err(expected("the path of a PEM file")),
                },
                "headers" => self.headers(&value)?,
                "query" => {
                    let query = match &value {
                        Value::String(query) => text(&query.as_bytes()),
                        Value::Table(fields) => {
                            let too_long = "the URL is longer than 16384 bytes";
                            Some(self.form(fields, "query", URL_BYTES_MAX, too_long)?)
                        }
                        _ => None,
                    };
                    let query = query.ok_or_else(|| {
                        expected("a table of fields, or a string without spaces,")
                    })?;
                    self.query = Some(query);
                }
                "url" if self.name == "request" => {
                    self.fetch.url = self.url(&value, "option url")?
                }
                "method" if self.name == "request" => self.method(&value)?,
                "body" => match &value {
                    Value::String(bytes) => self.body(bytes.as_bytes().to_vec(), None)?,
                    _ => return Err(expected("a string")),
                },
                "json" => {
                    let text = json::encode(self.lua, &value)?;
                    self.body(text, Some("application/json"))?;
                }
                "form" => match &value {
                    Value::Table(fields) => {
                        let too_long = "the form is longer than 8 MiB";
                        let form = self.form(fields, "form", FORM_BYTES_MAX, too_long)?;
                        let form = form.into_bytes();
                        self.body(form, Some("application/x-www-form-urlencoded"))?;
                    }
                    _ => return Err(expected("a table of fields")),
                },
                _ => return Err(self.bad("options", &format!("there is no option {key:?}"))),
            }
        }
        if is_insecure {
            self.fetch.trust = CertificateTrust::Insecure;
        }
        Ok(())
    }

    fn method(&mut self, value: &Value) -> mlua::Result<()> {
        let why = "expected a method such as GET or POST, of at most 32 characters; CONNECT, TRACE and TRACK are not allowed";
        let method = match value {
            Value::String(method) => option_name(method).to_ascii_uppercase(),
            _ => return Err(self.bad("option method", why)),
        };
        let is_word = (1..=32).contains(&method.len()) && method.bytes().all(is_token);
        if !is_word || matches!(method.as_str(), "CONNECT" | "TRACE" | "TRACK") {
            return Err(self.bad("option method", why));
        }
        self.fetch.method = method;
        Ok(())
    }

    fn url(&self, value: &Value, what: &str) -> mlua::Result<String> {
        let Value::String(url) = value else {
            return Err(self.bad(what, "a URL string expected"));
        };
        let is_scheme = |url: &String| {
            let start = url.get(..8).unwrap_or(url).to_ascii_lowercase();
            start.starts_with("http://") || start.starts_with("https://")
        };
        let url = text(&url.as_bytes()).ok_or_else(|| {
            self.bad(
                what,
                "a URL must be UTF-8 of at most 16384 bytes, without spaces and control characters",
            )
        })?;
        match is_scheme(&url) {
            true => Ok(url),
            false => Err(self.bad(what, "a URL that begins with http:// or https:// expected")),
        }
    }

    fn headers(&mut self, value: &Value) -> mlua::Result<()> {
        const WHAT: &str = "option headers";
        const TOO_LONG: &str = "at most 65536 bytes expected";
        let Value::Table(table) = value else {
            return Err(self.bad(WHAT, "a table of header names and values expected"));
        };
        let limit = CopyLimit::new(HEADERS_BYTES_MAX);
        for pair in table.pairs::<Value, Value>() {
            let (name, value) = pair?;
            let name = match &name {
                Value::String(name) if name.as_bytes().len() > HEADERS_BYTES_MAX => {
                    return Err(self.bad(WHAT, TOO_LONG));
                }
                Value::String(name) => name.to_string_lossy().to_ascii_lowercase(),
                _ => return Err(self.bad(WHAT, "header names must be strings")),
            };
            if name.is_empty() || !name.bytes().all(is_token) {
                return Err(self.bad(WHAT, &format!("{name:?} is not a header name")));
            }
            if OWN_HEADERS.contains(&name.as_str()) {
                return Err(self.bad(WHAT, &format!("{name} is set by the client itself")));
            }
            let mut headers = std::mem::take(&mut self.fetch.headers);
            let are_scalars = each_scalar(&value, |value| {
                if !limit.take(name.len() + value.len())? {
                    return Err(self.bad(WHAT, TOO_LONG));
                }
                let is_good = |byte: &u8| *byte == b'\t' || !byte.is_ascii_control();
                if !value.iter().all(is_good) {
                    let why = format!("{name}: line breaks and control characters are not allowed");
                    return Err(self.bad(WHAT, &why));
                }
                headers.push((name.clone(), value.to_vec()));
                Ok(())
            })?;
            if !are_scalars {
                let why = format!("{name}: a string, a number or a list of them expected");
                return Err(self.bad(WHAT, &why));
            }
            self.fetch.headers = headers;
        }
        Ok(())
    }

    fn body(&mut self, bytes: Vec<u8>, content_type: Option<&'static str>) -> mlua::Result<()> {
        if self.has_body {
            return Err(self.bad("options", "only one of json, form and body is allowed"));
        }
        self.has_body = true;
        self.fetch.body = bytes;
        self.content_type = content_type;
        Ok(())
    }

    /// Encodes fields as a form, sorted by name since the order of a table is arbitrary.
    fn form(
        &self,
        table: &Table,
        what: &str,
        bytes_max: usize,
        too_long: &str,
    ) -> mlua::Result<String> {
        let expected = || {
            let why = "expected a table with a string, a number, a boolean or a list of these for each name";
            self.bad(&format!("option {what}"), why)
        };
        let too_long = || self.bad(&format!("option {what}"), too_long);
        // Fields with the same name keep their order.
        let mut fields = BTreeMap::<String, String>::new();
        let limit = CopyLimit::new(bytes_max);
        for pair in table.pairs::<Value, Value>() {
            let (name, value) = pair?;
            let mut key = String::new();
            let is_short = match &name {
                Value::String(name) => encode(&name.as_bytes(), &mut key, limit.left())?,
                Value::Integer(_) | Value::Number(_) => {
                    encode(name.to_string()?.as_bytes(), &mut key, limit.left())?
                }
                _ => return Err(expected()),
            };
            if !is_short {
                return Err(too_long());
            }
            if fields.len() == NAMES_MAX {
                let why = format!("at most {NAMES_MAX} names expected");
                return Err(self.bad(&format!("option {what}"), &why));
            }
            let mut text = String::new();
            let are_scalars = each_scalar(&value, |value| {
                let before = text.len();
                if !text.is_empty() {
                    text.push('&');
                }
                text.push_str(&key);
                text.push('=');
                let is_short = encode(value, &mut text, before + limit.left())?;
                if !is_short || !limit.take(text.len() - before)? {
                    return Err(too_long());
                }
                Ok(())
            })?;
            if !are_scalars {
                return Err(expected());
            }
            match fields.entry(key) {
                _ if text.is_empty() => {}
                Entry::Vacant(entry) => _ = entry.insert(text),
                // The number 1 and the string "1" are two keys of a table, but give the same name.
                Entry::Occupied(mut entry) => {
                    entry.get_mut().push('&');
                    entry.get_mut().push_str(&text);
                }
            }
        }
        let mut fields = fields.into_values();
        let mut form = fields.next().unwrap_or_default();
        for text in fields {
            form.push('&');
            form.push_str(&text);
        }
        Ok(form)
    }

    fn finish(mut self, body_bytes_max: Option<u64>) -> mlua::Result<HttpRequest> {
        if let Some(query) = self.query.take().filter(|query| !query.is_empty()) {
            let url = &mut self.fetch.url;
            let fragment = url.find('#').map(|at| url.split_off(at));
            url.push(if url.contains('?') { '&' } else { '?' });
            url.push_str(&query);
            url.push_str(&fragment.unwrap_or_default());
        }
        if self.fetch.url.len() > URL_BYTES_MAX {
            return Err(self.bad("option query", "the URL is longer than 16384 bytes"));
        }
        let is_content_type = |(name, _): &(String, Vec<u8>)| name == "content-type";
        if let Some(content_type) = self.content_type
            && !self.fetch.headers.iter().any(is_content_type)
        {
            let header = ("content-type".to_owned(), content_type.into());
            self.fetch.headers.push(header);
        }
        // The headers are sorted, since the order of a table is arbitrary. Headers with the same name keep their order.
        self.fetch.headers.sort_by(|(a, _), (b, _)| a.cmp(b));
        let default = match self.fetch.is_stream {
            true => u64::MAX,
            false => BODY_BYTES[0] as u64,
        };
        self.fetch.body_bytes_max = body_bytes_max.unwrap_or(default);
        Ok(self.fetch)
    }
}

/// Passes a value, or each value of a list, to `take` as text. Returns `false` if a value is not a string, a number or
/// a boolean.
fn each_scalar(
    value: &Value,
    mut take: impl FnMut(&[u8]) -> mlua::Result<()>,
) -> mlua::Result<bool> {
    let mut scalar = |value: &Value| {
        go_on()?;
        match value {
            Value::String(text) => take(&text.as_bytes())?,
            Value::Boolean(_) | Value::Integer(_) | Value::Number(_) => {
                take(value.to_string()?.as_bytes())?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    };
    let Value::Table(list) = value else {
        return scalar(value);
    };
    for value in list.sequence_values::<Value>() {
        if !scalar(&value?)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Appends bytes in the form's encoding. Returns `false` if the text gets longer than `bytes_max`.
fn encode(bytes: &[u8], text: &mut String, bytes_max: usize) -> mlua::Result<bool> {
    // Encoding never shortens the text.
    if text.len().saturating_add(bytes.len()) > bytes_max {
        return Ok(false);
    }
    for part in bytes.chunks(PART_BYTES) {
        go_on()?;
        for piece in percent_encode(part, FORM) {
            match piece.contains(' ') {
                true => text.push_str(&piece.replace(' ', "+")),
                false => text.push_str(piece),
            }
        }
        if text.len() > bytes_max {
            return Ok(false);
        }
    }
    Ok(text.len() <= bytes_max)
}

/// Returns a part of a URL if it is UTF-8 without spaces and control characters.
fn text(bytes: &[u8]) -> Option<String> {
    let bytes = Some(bytes).filter(|bytes| bytes.len() <= URL_BYTES_MAX)?;
    let text = simdutf8::basic::from_utf8(bytes).ok()?;
    let is_good = |char: char| !char.is_whitespace() && !char.is_control();
    text.chars().all(is_good).then(|| text.to_owned())
}

fn is_path(bytes: &[u8]) -> bool {
    (1..=PATH_BYTES_MAX).contains(&bytes.len()) && !bytes.contains(&0)
}
