//! `veche.cookie`: values of `Set-Cookie` (RFC 6265, section 4.1).

use std::fmt::Write;
use std::time::{Duration, UNIX_EPOCH};

use mlua::{Function, Lua, MultiValue, Value};

use super::argument::{Arguments, WHOLE_MAX, as_number, is_token};
use super::copy_limit::option_name;

/// The size up to which browsers keep a cookie: RFC 6265, section 6.1.
const BYTES_MAX: usize = 4096;

/// The last second of the year 9999.
const EXPIRES_MAX: f64 = 253_402_300_799.0;

/// The attributes of a cookie in their written form.
#[derive(Default)]
struct Attributes {
    text: String,
    is_secure: bool,
    is_for_all: bool,
}

/// Creates the function `cookie(name, value, options)`.
pub(super) fn function(lua: &Lua) -> mlua::Result<Function> {
    lua.create_function(|_, values: MultiValue| {
        let arguments = Arguments::new("cookie", values);
        let (name, value) = (arguments.bytes(1)?, arguments.bytes(2)?);
        if name.len() + value.len() > BYTES_MAX {
            return Err(too_long(&arguments));
        }
        if name.is_empty() || !name.iter().all(|&byte| is_token(byte)) {
            return Err(arguments.bad(
                1,
                "a name of letters, digits and !#$%&'*+-.^_`|~ expected",
            ));
        }
        if !value.iter().all(|&byte| is_octet(byte)) {
            return Err(arguments.bad(
                2,
                "a value must be printable ASCII without space, quotes, comma, semicolon and backslash: encode it first, for example with veche.base64",
            ));
        }
        let mut attributes = Attributes::default();
        match arguments.at(3) {
            Value::Nil => {}
            Value::Table(options) => {
                for pair in options.pairs::<Value, Value>() {
                    let (name, value) = pair?;
                    attributes.add(&arguments, &name, &value)?;
                }
            }
            _ => return Err(arguments.expected(3, "a table of options")),
        }
        if attributes.is_for_all && !attributes.is_secure {
            return Err(arguments.bad(3, "same_site = \"none\" requires secure = true"));
        }
        // The name and the value were checked to be ASCII, so the conversion changes nothing.
        let (name, value) = (String::from_utf8_lossy(&name), String::from_utf8_lossy(&value));
        let cookie = format!("{name}={value}{}", attributes.text);
        if cookie.len() > BYTES_MAX {
            return Err(too_long(&arguments));
        }
        Ok(cookie)
    })
}

fn too_long(arguments: &Arguments) -> mlua::Error {
    arguments.bad(
        2,
        "a cookie may have at most 4096 bytes, its options included",
    )
}

impl Attributes {
    fn add(&mut self, arguments: &Arguments, name: &Value, value: &Value) -> mlua::Result<()> {
        let bad = |expected: &str| Err(arguments.bad(3, expected));
        let name = match name {
            Value::String(name) => option_name(name),
            _ => String::new(),
        };
        // A wrong option is an error: leaving it out silently would hide the mistake of a script that computes options.
        let text = match value {
            Value::String(text) => text.to_str().ok(),
            _ => None,
        };
        let text = text.as_deref().filter(|text| is_attribute(text));
        match (name.as_str(), text, value) {
            ("path", Some(path), _) if path.starts_with('/') => self.write("Path", path),
            ("path", ..) => {
                return bad("path: expected a string that begins with / and contains no ;");
            }
            ("domain", Some(domain), _) if !domain.is_empty() => self.write("Domain", domain),
            ("domain", ..) => return bad("domain: a string without ; expected"),
            ("max_age", _, value) => match as_number(value) {
                Some(age) if age.abs() <= WHOLE_MAX && age.fract() == 0.0 => {
                    self.write("Max-Age", age as i64);
                }
                _ => return bad("max_age: a whole number of seconds expected"),
            },
            ("expires", _, value) => match as_number(value) {
                Some(at) if (0.0..=EXPIRES_MAX).contains(&at) => {
                    let at = UNIX_EPOCH + Duration::from_secs(at as u64);
                    self.write("Expires", httpdate::fmt_http_date(at));
                }
                _ => return bad("expires: seconds since 1970 expected"),
            },
            ("http_only", _, Value::Boolean(is_set)) => self.flag("HttpOnly", *is_set),
            ("secure", _, Value::Boolean(is_set)) => {
                self.is_secure = *is_set;
                self.flag("Secure", *is_set);
            }
            ("http_only" | "secure", ..) => {
                return bad(&format!("{name}: true or false expected"));
            }
            ("same_site", Some("strict"), _) => self.write("SameSite", "Strict"),
            ("same_site", Some("lax"), _) => self.write("SameSite", "Lax"),
            ("same_site", Some("none"), _) => {
                self.is_for_all = true;
                self.write("SameSite", "None");
            }
            ("same_site", ..) => {
                return bad("same_site: \"strict\", \"lax\" or \"none\" expected");
            }
            _ => {
                return bad(
                    "the options are path, domain, max_age, expires, http_only, secure, same_site",
                );
            }
        }
        Ok(())
    }

    fn write(&mut self, name: &str, value: impl std::fmt::Display) {
        // Writing into a string can't fail.
        let _ = write!(self.text, "; {name}={value}");
    }

    fn flag(&mut self, name: &str, is_set: bool) {
        if is_set {
            let _ = write!(self.text, "; {name}");
        }
    }
}

/// Returns whether a byte is a `cookie-octet` (RFC 6265, section 4.1.1).
fn is_octet(byte: u8) -> bool {
    byte.is_ascii_graphic() && !b"\",;\\".contains(&byte)
}

/// Returns whether a text consists of `av-octet` characters (RFC 6265, section 4.1.1).
fn is_attribute(text: &str) -> bool {
    text.bytes()
        .all(|byte| (byte.is_ascii_graphic() || byte == b' ') && byte != b';')
}
