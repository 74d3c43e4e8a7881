//! Reading: a JSON text becomes Lua's values as it is parsed, with nothing in between.
//!
//! The parser is serde's. It is asked for no more than a value at a time, so a long text ends with its run.

use std::cell::{Cell, RefCell};
use std::fmt;

use mlua::{Lua, LuaSerdeExt as _, Value};
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::super::{fault, go_on};
use super::whole_to_lua;

/// Least magnitude of a float that may have been a whole number beyond 64 bits.
const INTEGERS_BELOW: f64 = 9_223_372_036_854_775_808.0;

/// The value of a text, and whether it has a number whose digits the parser may not have kept.
pub(super) fn read(lua: &Lua, text: &[u8]) -> mlua::Result<(Value, bool)> {
    let (has_huge, failure) = (Cell::new(false), RefCell::new(None));
    let reader = Reader {
        lua,
        has_huge: &has_huge,
        failure: &failure,
    };
    let mut parser = serde_json::Deserializer::from_slice(text);
    let read = reader.deserialize(&mut parser);
    let read = read.and_then(|value| parser.end().map(|()| value));
    match read {
        Ok(value) => Ok((value, has_huge.get())),
        Err(error) => Err(failure
            .take()
            .unwrap_or_else(|| fault(format!("json.decode: {error}")))),
    }
}

#[derive(Clone, Copy)]
struct Reader<'a> {
    lua: &'a Lua,
    has_huge: &'a Cell<bool>,
    /// Why it was given up, if not for the text.
    failure: &'a RefCell<Option<mlua::Error>>,
}

impl Reader<'_> {
    /// What Lua says, as the parser wants to hear it.
    fn told<T, E: Error>(self, result: mlua::Result<T>) -> Result<T, E> {
        result.map_err(|error| {
            self.failure.replace(Some(error));
            E::custom("given up")
        })
    }
}

impl<'de> DeserializeSeed<'de> for Reader<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, parser: D) -> Result<Value, D::Error> {
        self.told(go_on())?;
        parser.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reader<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(self.lua.null())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Boolean(value))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Value, E> {
        self.told(whole_to_lua(self.lua, number))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Value, E> {
        self.told(whole_to_lua(self.lua, number))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Value, E> {
        if number.abs() >= INTEGERS_BELOW {
            self.has_huge.set(true);
        }
        Ok(Value::Number(number))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        self.told(self.lua.create_string(text).map(Value::String))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Value, A::Error> {
        let table = self.told(self.lua.create_table())?;
        let mut count = 0;
        while let Some(value) = values.next_element_seed(self)? {
            count += 1;
            self.told(table.raw_set(count, value))?;
        }
        let metatable = self.lua.array_metatable();
        self.told(table.set_metatable(Some(metatable)))?;
        Ok(Value::Table(table))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut pairs: A) -> Result<Value, A::Error> {
        let table = self.told(self.lua.create_table())?;
        while let Some(key) = pairs.next_key_seed(self)? {
            let value = pairs.next_value_seed(self)?;
            self.told(table.raw_set(key, value))?;
        }
        Ok(Value::Table(table))
    }
}
