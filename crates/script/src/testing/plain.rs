//! Lua values outside of a VM, for the requests and answers of tests.

use mlua::{Lua, Table, Value};

use crate::modules;

/// The deepest nesting of tables.
const DEPTH_MAX: usize = 64;

/// A Lua value outside of a VM.
#[derive(Clone, Debug, PartialEq)]
pub enum Plain {
    /// The Lua value `nil`.
    Nil,
    /// The null value `veche.null`.
    Null,
    /// A Lua boolean, true or false.
    Boolean(bool),
    /// A Lua number, as a double.
    Number(f64),
    /// A string of arbitrary bytes.
    Bytes(Vec<u8>),
    /// A table with the keys 1 to n. An empty table from a script is a `Map`, not a `List`.
    List(Vec<Self>),
    /// A table that is not a list, as keys and values.
    Map(Vec<(String, Self)>),
}

impl From<&str> for Plain {
    fn from(text: &str) -> Self {
        Self::Bytes(text.into())
    }
}

impl Plain {
    /// Creates a map of the pairs whose value is not `Nil`.
    #[must_use]
    pub fn map<const N: usize>(pairs: [(&str, Self); N]) -> Self {
        let pairs = pairs.into_iter().filter(|(_, value)| *value != Self::Nil);
        Self::Map(pairs.map(|(key, value)| (key.to_owned(), value)).collect())
    }

    /// Returns a map's value; `Nil` if it is missing.
    #[must_use]
    pub fn get(&self, key: &str) -> &Self {
        let Self::Map(pairs) = self else {
            return &Self::Nil;
        };
        let found = pairs.iter().find(|(name, _)| name == key);
        found.map_or(&Self::Nil, |(_, value)| value)
    }

    /// Returns a string's bytes; empty for other values.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            _ => &[],
        }
    }

    /// Returns a string as text, with invalid UTF-8 replaced.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(self.bytes()).into_owned()
    }

    /// Returns the number; `None` for other values.
    #[must_use]
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Number(number) => Some(*number),
            _ => None,
        }
    }

    /// Returns whether the value is `true`.
    #[must_use]
    pub fn is_true(&self) -> bool {
        *self == Self::Boolean(true)
    }

    /// Returns the items of a list; empty for other values.
    #[must_use]
    pub fn items(&self) -> &[Self] {
        match self {
            Self::List(items) => items,
            _ => &[],
        }
    }

    pub(super) fn from_lua(value: &Value) -> mlua::Result<Self> {
        read(value, 0)
    }

    pub(super) fn to_lua(&self, lua: &Lua) -> mlua::Result<Value> {
        Ok(match self {
            Self::Nil => Value::Nil,
            Self::Null => Value::NULL,
            Self::Boolean(value) => Value::Boolean(*value),
            Self::Number(number) => Value::Number(*number),
            Self::Bytes(bytes) => Value::String(lua.create_string(bytes)?),
            Self::List(items) => {
                let table = lua.create_table_with_capacity(items.len(), 0)?;
                for item in items {
                    table.raw_push(item.to_lua(lua)?)?;
                }
                Value::Table(table)
            }
            Self::Map(pairs) => {
                let table = lua.create_table_with_capacity(0, pairs.len())?;
                for (key, value) in pairs {
                    table.raw_set(key.as_str(), value.to_lua(lua)?)?;
                }
                Value::Table(table)
            }
        })
    }
}

fn read(value: &Value, depth: usize) -> mlua::Result<Plain> {
    Ok(match value {
        Value::Nil => Plain::Nil,
        Value::LightUserData(data) if data.0.is_null() => Plain::Null,
        Value::Boolean(value) => Plain::Boolean(*value),
        Value::Integer(number) => Plain::Number(*number as f64),
        Value::Number(number) => Plain::Number(*number),
        Value::String(text) => Plain::Bytes(text.as_bytes().to_vec()),
        Value::Table(table) if depth < DEPTH_MAX => read_table(table, depth + 1)?,
        Value::Table(_) => return Err(modules::fault("tables are nested deeper than 64 levels")),
        other => {
            let name = other.type_name();
            return Err(modules::fault(format!("a {name} can't be shown")));
        }
    })
}

fn read_table(table: &Table, depth: usize) -> mlua::Result<Plain> {
    if table.raw_len() > 0 {
        let items = table.sequence_values::<Value>();
        let items: mlua::Result<_> = items.map(|item| read(&item?, depth)).collect();
        return Ok(Plain::List(items?));
    }
    let mut pairs = Vec::new();
    for pair in table.pairs::<Value, Value>() {
        let (key, value) = pair?;
        let Value::String(key) = key else {
            return Err(modules::fault("a table's keys must be strings, or 1 to n"));
        };
        pairs.push((key.to_string_lossy(), read(&value, depth)?));
    }
    // Sorted, since Lua's order varies.
    pairs.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(Plain::Map(pairs))
}
