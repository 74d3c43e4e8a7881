//! The server address given to `connect`: a URL or a table of options. The query of a URL contains options too.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mlua::Value;
use percent_encoding::percent_decode_str;
use veche_calls::{Secret, ServerAccount, TlsMode};

use super::argument::as_number;
use super::fault;

/// The longest option in bytes.
const OPTION_BYTES_MAX: usize = 4096;
const OPTION: &str = "at most 4096 bytes without NUL";

/// The longest URL in bytes.
const URL_BYTES_MAX: usize = 16 << 10;

/// The longest name in bytes.
const NAME_BYTES_MAX: usize = 64;

/// The longest time that an option may set, in seconds: a day.
const SECONDS_MAX: f64 = 86_400.0;

/// The properties of a kind of server.
pub(super) struct ServerKind {
    /// The name of the function that takes the address, for error messages.
    pub(super) function: &'static str,
    /// The URL schemes, without and with TLS.
    pub(super) schemes: [&'static str; 2],
    pub(super) port: u16,
    /// The names of the module's options that are not in [`COMMON`].
    pub(super) options: &'static [&'static str],
}

/// Returns the configured database with the name in the argument, if there is one.
pub(super) fn configured<T: Clone>(
    databases: &BTreeMap<String, Arc<T>>,
    argument: &Value,
) -> Option<T> {
    let Value::String(name) = argument else {
        return None;
    };
    // The string may have any length, so it is not copied.
    let name = name.to_str().ok()?;
    databases.get(&*name).map(|database| T::clone(database))
}

/// The options that all kinds of servers have.
const COMMON: [&str; 8] = [
    "host",
    "port",
    "user",
    "password",
    "database",
    "tls",
    "timeout",
    "connect_timeout",
];

/// The value of an option.
enum OptionValue {
    /// The text of a value in a URL. The option determines how the text is parsed.
    Text(String),
    Number(f64),
    Boolean(bool),
    /// The path of the file in `tls = { ca = … }`.
    Authority(String),
}

/// Options by name; each can be taken once.
pub(super) struct NamedOptions {
    kind: &'static ServerKind,
    given: BTreeMap<String, OptionValue>,
}

impl NamedOptions {
    /// Reads the argument of `connect`.
    pub(super) fn read(kind: &'static ServerKind, argument: &Value) -> mlua::Result<Self> {
        let mut options = Self {
            kind,
            given: BTreeMap::new(),
        };
        match argument {
            Value::String(url) => {
                if url.as_bytes().len() > URL_BYTES_MAX {
                    return Err(options.bad_url("the URL is longer than 16 KiB"));
                }
                let url = url
                    .to_str()
                    .map_err(|_| options.bad_url("it is not UTF-8"))?;
                options.read_url(&url)?;
            }
            Value::Table(table) => {
                for pair in table.pairs::<Value, Value>() {
                    let (name, value) = pair?;
                    options.read_option(&name, &value)?;
                }
            }
            _ => {
                let function = kind.function;
                return Err(fault(format!(
                    "bad argument #1 to '{function}': a URL or a table of options expected"
                )));
            }
        }
        Ok(options)
    }

    fn bad_url(&self, why: &str) -> mlua::Error {
        let ServerKind {
            function, schemes, ..
        } = self.kind;
        // The error does not contain the URL, which may contain a password.
        fault(format!(
            "bad argument #1 to '{function}': it is neither a URL such as {}://user:password@host/name nor the name of a [[database]]: {why}",
            schemes[0]
        ))
    }

    pub(super) fn bad(&self, name: &str, expected: &str) -> mlua::Error {
        let function = self.kind.function;
        fault(format!(
            "bad option {name} to '{function}': {expected} expected"
        ))
    }

    fn put(&mut self, name: &str, value: OptionValue) -> mlua::Result<()> {
        if !COMMON.contains(&name) && !self.kind.options.contains(&name) {
            let function = self.kind.function;
            let all: Vec<&str> = COMMON.iter().chain(self.kind.options).copied().collect();
            return Err(fault(format!(
                "bad option {name:?} to '{function}': the options are {}",
                all.join(", ")
            )));
        }
        if let OptionValue::Text(text) | OptionValue::Authority(text) = &value
            && (text.len() > OPTION_BYTES_MAX || text.contains('\0'))
        {
            return Err(self.bad(name, OPTION));
        }
        self.given.insert(name.to_owned(), value);
        Ok(())
    }

    fn read_option(&mut self, name: &Value, value: &Value) -> mlua::Result<()> {
        let name = match name {
            Value::String(name) if name.as_bytes().len() <= NAME_BYTES_MAX => {
                name.to_string_lossy()
            }
            _ => String::from("[1]"),
        };
        let text = |value: &Value| match value {
            Value::String(text) => text.to_str().ok().map(|text| text.to_owned()),
            _ => None,
        };
        if matches!(value, Value::String(text) if text.as_bytes().len() > OPTION_BYTES_MAX) {
            return Err(self.bad(&name, OPTION));
        }
        let value = match value {
            Value::Boolean(value) => OptionValue::Boolean(*value),
            Value::Table(table) if name == "tls" => {
                let file = text(&table.raw_get("ca")?);
                let file = file.ok_or_else(|| self.bad("tls", TLS))?;
                OptionValue::Authority(file)
            }
            value => match (as_number(value), text(value)) {
                (Some(number), _) => OptionValue::Number(number),
                (None, Some(text)) => OptionValue::Text(text),
                (None, None) => return Err(self.bad(&name, "a string, a number or a boolean")),
            },
        };
        self.put(&name, value)
    }

    fn read_url(&mut self, url: &str) -> mlua::Result<()> {
        let (scheme, rest) = url
            .split_once("://")
            .ok_or_else(|| self.bad_url("the text contains no ://"))?;
        let [plain, secure] = self.kind.schemes;
        if scheme == secure {
            self.put("tls", OptionValue::Boolean(true))?;
        } else if scheme != plain {
            return Err(self.bad_url(&format!(
                "the scheme of the URL must be {plain} or {secure}"
            )));
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (place, name) = rest.split_once('/').unwrap_or((rest, ""));
        let (account, place) = place.rsplit_once('@').unwrap_or(("", place));
        let (user, password) = account.split_once(':').unwrap_or((account, ""));
        let (host, port) = match place.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port),
            _ => (place, ""),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let parts = [
            ("user", user),
            ("password", password),
            ("host", host),
            ("port", port),
            ("database", name),
        ];
        let options = query
            .split('&')
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        for (name, text) in parts.into_iter().chain(options) {
            if text.is_empty() {
                continue;
            }
            let text = percent_decode_str(text).decode_utf8();
            let text = text.map_err(|_| {
                self.bad_url("the URL has percent-encoded bytes that are not UTF-8")
            })?;
            self.put(name, OptionValue::Text(text.into_owned()))?;
        }
        Ok(())
    }

    /// Returns the server's address and account.
    pub(super) fn server(&mut self) -> mlua::Result<ServerAccount> {
        let host = self.text("host")?.unwrap_or_else(|| "127.0.0.1".to_owned());
        let is_good = (1..=253).contains(&host.len())
            && !host.chars().any(|c| c.is_control() || c.is_whitespace());
        if !is_good {
            return Err(self.bad("host", "a host name or an IP address"));
        }
        let port = self.whole("port", [1, 65_535], self.kind.port.into())?;
        Ok(ServerAccount {
            host,
            port: port as u16,
            user: self.text("user")?,
            password: self.text("password")?.map(Secret),
            tls: self.tls()?,
        })
    }

    fn tls(&mut self) -> mlua::Result<TlsMode> {
        Ok(match self.given.remove("tls") {
            None | Some(OptionValue::Boolean(false)) => TlsMode::Off,
            Some(OptionValue::Boolean(true)) => TlsMode::Public,
            Some(OptionValue::Text(text)) if text == "true" => TlsMode::Public,
            Some(OptionValue::Text(text)) if text == "false" => TlsMode::Off,
            Some(OptionValue::Authority(file)) => TlsMode::Authority(file),
            Some(_) => return Err(self.bad("tls", TLS)),
        })
    }

    pub(super) fn text(&mut self, name: &str) -> mlua::Result<Option<String>> {
        match self.given.remove(name) {
            None => Ok(None),
            Some(OptionValue::Text(text)) => Ok(Some(text)),
            Some(_) => Err(self.bad(name, "a string")),
        }
    }

    /// Returns an option that is a name: a short text without control characters. `None` if the option is not set.
    pub(super) fn name(&mut self, name: &str) -> mlua::Result<Option<String>> {
        let text = self.text(name)?;
        let is_good = |text: &String| {
            (1..=NAME_BYTES_MAX).contains(&text.len()) && !text.chars().any(char::is_control)
        };
        match text {
            Some(text) if !is_good(&text) => {
                Err(self.bad(name, "1 to 64 bytes without control characters"))
            }
            text => Ok(text),
        }
    }

    fn number(&mut self, name: &str) -> Option<f64> {
        Some(match self.given.remove(name)? {
            OptionValue::Number(number) => number,
            OptionValue::Text(text) => text.parse().unwrap_or(f64::NAN),
            _ => f64::NAN,
        })
    }

    pub(super) fn whole(
        &mut self,
        name: &str,
        [least, most]: [usize; 2],
        usual: usize,
    ) -> mlua::Result<usize> {
        let Some(number) = self.number(name) else {
            return Ok(usual);
        };
        if number.fract() != 0.0 || !(least as f64..=most as f64).contains(&number) {
            let expected = format!("a whole number from {least} to {most}");
            return Err(self.bad(name, &expected));
        }
        Ok(number as usize)
    }

    pub(super) fn time(&mut self, name: &str, usual_s: f64) -> mlua::Result<Duration> {
        let seconds = self.number(name).unwrap_or(usual_s);
        if !(0.001..=SECONDS_MAX).contains(&seconds) {
            return Err(self.bad(name, "a number of seconds from 0.001 to 86400"));
        }
        Ok(Duration::from_secs_f64(seconds))
    }
}

const TLS: &str = "true, false or { ca = \"authority.pem\" }";
