//! Decoding: JSON becomes Lua values while it is parsed, without an intermediate form.
//!
//! The parser is serde's. It parses one value at a time and gets long texts in parts, so that parsing can stop when the CPU
//! time of the run is used up.

use std::cell::{Cell, RefCell};
use std::{fmt, io};

use mlua::{Lua, LuaSerdeExt as _, Value};
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::super::{fault, go_on};
use super::whole_to_lua;

/// The smallest magnitude of a float that may have been an integer beyond 64 bits.
const INTEGERS_BELOW: f64 = 9_223_372_036_854_775_808.0;

/// Texts of more bytes are read in parts, which is slower.
const WHOLE_BYTES_MAX: usize = 1 << 20;

/// The size in bytes of the parts in which long texts are read.
const PART_BYTES: usize = 64 << 10;

/// Returns the value of a text, and whether the text has a number whose digits the parser may have
/// lost.
pub(super) fn read(lua: &Lua, text: &[u8]) -> mlua::Result<(Value, bool)> {
    let (has_huge, failure) = (Cell::new(false), RefCell::new(None));
    let reader = Reader {
        lua,
        has_huge: &has_huge,
        failure: &failure,
    };
    let read = match text.len() <= WHOLE_BYTES_MAX {
        true => reader.read(serde_json::Deserializer::from_slice(text)),
        false => reader.read(serde_json::Deserializer::from_reader(Parts {
            rest: text,
            begun: 0,
            reader,
        })),
    };
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
    /// The cause, if parsing stopped for a reason other than an error in the text.
    failure: &'a RefCell<Option<mlua::Error>>,
}

impl Reader<'_> {
    fn read<'de, R: serde_json::de::Read<'de>>(
        self,
        mut parser: serde_json::Deserializer<R>,
    ) -> serde_json::Result<Value> {
        let value = self.deserialize(&mut parser)?;
        parser.end()?;
        Ok(value)
    }

    /// Converts an error of Lua to the parser's error type, and keeps the original in `failure`.
    fn parser_result<T, E: Error>(self, result: mlua::Result<T>) -> Result<T, E> {
        result.map_err(|error| {
            self.failure.replace(Some(error));
            E::custom("given up")
        })
    }
}

/// Passes a text to the parser in parts. Before each part it checks whether the script's run must stop.
struct Parts<'a> {
    rest: &'a [u8],
    /// The number of bytes of the current part that have been read.
    begun: usize,
    reader: Reader<'a>,
}

impl io::Read for Parts<'_> {
    #[inline]
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.begun >= PART_BYTES {
            self.begun = 0;
            go_on().map_err(|error| {
                self.reader.failure.replace(Some(error));
                io::ErrorKind::Other
            })?;
        }
        let count = self.rest.read(buffer)?;
        self.begun += count;
        Ok(count)
    }
}

impl<'de> DeserializeSeed<'de> for Reader<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, parser: D) -> Result<Value, D::Error> {
        self.parser_result(go_on())?;
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
        self.parser_result(whole_to_lua(self.lua, number))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Value, E> {
        self.parser_result(whole_to_lua(self.lua, number))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Value, E> {
        if number.abs() >= INTEGERS_BELOW {
            self.has_huge.set(true);
        }
        Ok(Value::Number(number))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        self.parser_result(self.lua.create_string(text).map(Value::String))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Value, A::Error> {
        let table = self.parser_result(self.lua.create_table())?;
        let mut count = 0;
        while let Some(value) = values.next_element_seed(self)? {
            count += 1;
            self.parser_result(table.raw_set(count, value))?;
        }
        let metatable = self.lua.array_metatable();
        self.parser_result(table.set_metatable(Some(metatable)))?;
        Ok(Value::Table(table))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut pairs: A) -> Result<Value, A::Error> {
        let table = self.parser_result(self.lua.create_table())?;
        while let Some(key) = pairs.next_key_seed(self)? {
            let value = pairs.next_value_seed(self)?;
            self.parser_result(table.raw_set(key, value))?;
        }
        Ok(Value::Table(table))
    }
}
