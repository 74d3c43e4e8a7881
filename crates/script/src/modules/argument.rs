//! Arguments of functions as scripts give them: checked by hand, so that errors say which one, and what was expected.

use mlua::{BorrowedBytes, LuaString, MultiValue, Value};

use super::fault;

/// Up to here all whole numbers are exact.
pub(super) const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;

/// A number in either of the forms in which `mlua` gives them.
pub(super) fn as_number(value: &Value) -> Option<f64> {
    match *value {
        Value::Integer(value) => Some(value as f64),
        Value::Number(value) => Some(value),
        _ => None,
    }
}

/// `token` of RFC 9110, section 5.6.2: what names of headers, methods, cookies and subprotocols are made of.
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

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.values.len()
    }

    /// An argument by its number, from 1; nil if there is none.
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

    /// A number, if there is one; NaN is none that is within limits.
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

    /// A whole number, if there is one.
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

    /// What must not be left out.
    pub(super) fn needed<T>(&self, number: usize, value: Option<T>, what: &str) -> mlua::Result<T> {
        value.ok_or_else(|| self.expected(number, what))
    }
}
