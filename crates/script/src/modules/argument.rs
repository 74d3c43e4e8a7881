//! Arguments of functions, checked by hand so that errors name the argument and the expected value.

use mlua::{BorrowedBytes, LuaString, MultiValue, Value};

use super::fault;

/// All integers up to this absolute value are exact in Lua.
pub(super) const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;

/// Returns a number that `mlua` represents as an integer or as a float; `None` for other values.
pub(super) fn as_number(value: &Value) -> Option<f64> {
    match *value {
        Value::Integer(value) => Some(value as f64),
        Value::Number(value) => Some(value),
        _ => None,
    }
}

/// Returns whether a byte may occur in a `token` (RFC 9110, section 5.6.2): the name of a header,
/// method, cookie or subprotocol.
pub(super) fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// The arguments of one call.
pub(super) struct Arguments {
    function: &'static str,
    values: MultiValue,
}

impl Arguments {
    pub(super) fn new(function: &'static str, values: MultiValue) -> Self {
        Self { function, values }
    }

    /// Returns the number of arguments.
    pub(super) fn count(&self) -> usize {
        self.values.len()
    }

    /// Returns an argument by its number, from 1; nil if it is missing.
    pub(super) fn at(&self, number: usize) -> &Value {
        self.values.get(number - 1).unwrap_or(&Value::Nil)
    }

    pub(super) fn bad(&self, number: usize, expected: &str) -> mlua::Error {
        let function = self.function;
        fault(format!(
            "bad argument #{number} to '{function}': {expected}"
        ))
    }

    pub(super) fn expected(&self, number: usize, what: &str) -> mlua::Error {
        let found = match self.at(number) {
            Value::Integer(_) => "number",
            Value::Error(_) | Value::LightUserData(_) => "userdata",
            value => value.type_name(),
        };
        self.bad(number, &format!("{what} expected, not {found}"))
    }

    pub(super) fn string(&self, number: usize) -> mlua::Result<&LuaString> {
        match self.at(number) {
            Value::String(text) => Ok(text),
            _ => Err(self.expected(number, "a string")),
        }
    }

    pub(super) fn bytes(&self, number: usize) -> mlua::Result<BorrowedBytes> {
        self.string(number).map(LuaString::as_bytes)
    }

    /// Returns a number argument; `None` if the argument is nil. A number outside of the limits is an error, and so is NaN.
    pub(super) fn number(
        &self,
        number: usize,
        [least, most]: [f64; 2],
        what: &str,
    ) -> mlua::Result<Option<f64>> {
        if self.at(number).is_nil() {
            return Ok(None);
        }
        let value = as_number(self.at(number)).ok_or_else(|| self.expected(number, what))?;
        if !(least..=most).contains(&value) {
            return Err(self.bad(number, &format!("{what} expected, not {value}")));
        }
        Ok(Some(value))
    }

    /// Returns an integer argument; `None` if the argument is nil. An integer outside of the limits is an error.
    pub(super) fn whole(
        &self,
        number: usize,
        limits: [f64; 2],
        what: &str,
    ) -> mlua::Result<Option<f64>> {
        match self.number(number, limits, what)? {
            Some(value) if value.fract() != 0.0 => {
                Err(self.bad(number, &format!("{what} expected, not {value}")))
            }
            value => Ok(value),
        }
    }

    /// Returns the value of a required argument. If `value` is `None`, fails with an error that `what` was expected.
    pub(super) fn needed<T>(&self, number: usize, value: Option<T>, what: &str) -> mlua::Result<T> {
        value.ok_or_else(|| self.expected(number, what))
    }
}
