//! `veche.dict` and `veche.counter`: data shared by all workers and applications.
//!
//! The script's function in `update` runs without a lock: its result is stored if the entry has not changed in the
//! meantime, otherwise the function is called again.

use std::rc::Rc;
use std::sync::Arc;

use mlua::{BorrowedBytes, Function, Lua, MultiValue, Table, Value};
use veche_store::{Counter, Dict, Error, Options, Store};

use super::argument::{Arguments, WHOLE_MAX, as_number};
use super::growing_list::GrowingList;
use super::{fault, go_on};
use crate::host_context::HostContext;
use crate::ttl;

/// The smallest and the largest memory limit that a script may set for a dictionary, in bytes.
const BYTES_MAX_LIMITS: [f64; 2] = [1024.0, WHOLE_MAX];

/// The default and the maximum number of keys that `keys` returns.
const KEYS: f64 = 1000.0;
const KEYS_MAX: f64 = 10_000.0;

/// Maximum number of attempts of one `update`.
const UPDATES_MAX: usize = 1000;

/// Adds `shared`, the functions of dictionaries and counters, to `native`. Has to run before the prelude replaces
/// `pcall`.
pub(super) fn install(lua: &Lua, context: &Rc<HostContext>, native: &Table) -> mlua::Result<()> {
    let shared = lua.create_table()?;
    // The store's own limits keep the lists small.
    let dicts = GrowingList::new("dict: there is no dictionary with that number");
    shared.set("dict_methods", dict_methods(lua, context, &dicts)?)?;
    let own = Rc::clone(context);
    let dict = lua.create_function(move |_, values: MultiValue| {
        let arguments = Arguments::new("dict", values);
        let options = options(&arguments)?;
        let dict = named(&arguments, &own.world.store, |store, name| {
            store.dict(name, options)
        })?;
        Ok(dicts.keep(dict))
    })?;
    shared.set("dict", dict)?;
    let counters = GrowingList::new("counter: there is no counter with that number");
    shared.set("counter_methods", counter_methods(lua, &counters)?)?;
    let own = Rc::clone(context);
    let counter = lua.create_function(move |_, values: MultiValue| {
        let arguments = Arguments::new("counter", values);
        let counter = named(&arguments, &own.world.store, Store::counter)?;
        Ok(counters.keep(counter))
    })?;
    shared.set("counter", counter)?;
    native.set("shared", shared)
}

fn named<T>(
    arguments: &Arguments,
    store: &Store,
    find: impl FnOnce(&Store, &[u8]) -> Result<T, Error>,
) -> mlua::Result<T> {
    let name = arguments.bytes(1)?;
    find(store, &name).map_err(|error| {
        let number = if matches!(error, Error::Options { .. }) {
            2
        } else {
            1
        };
        arguments.bad(number, &error.to_string())
    })
}

fn options(arguments: &Arguments) -> mlua::Result<Option<Options>> {
    const WHAT: &str = "bytes_max: a whole number of at least 1024";
    let table = match arguments.at(2) {
        Value::Nil => return Ok(None),
        Value::Table(table) => table,
        _ => return Err(arguments.bad(2, "a table of options expected")),
    };
    let mut options = Options::default();
    for pair in table.pairs::<Value, Value>() {
        let (name, value) = pair?;
        if !matches!(&name, Value::String(name) if name == "bytes_max") {
            return Err(arguments.bad(2, "the only option is bytes_max"));
        }
        let value = as_number(&value).filter(|value| {
            (BYTES_MAX_LIMITS[0]..=BYTES_MAX_LIMITS[1]).contains(value) && value.fract() == 0.0
        });
        let value = value.ok_or_else(|| arguments.bad(2, &format!("{WHAT} expected")))?;
        options.bytes_max = value as usize;
    }
    Ok(Some(options))
}

/// A method of a dictionary.
type Method = fn(&Lua, &Call) -> mlua::Result<Value>;

const METHODS: [(&str, &str, Method); 7] = [
    ("get", "dict:get", |lua, call| {
        to_lua(lua, call.dict.get(&call.key()?, call.now_ms))
    }),
    ("set", "dict:set", |_, call| {
        let (key, ttl_ms) = (call.key()?, ttl_of(&call.arguments, 3)?);
        match call.value(&call.arguments, 2)? {
            Some(value) => call.lua_result(call.dict.set(&key, value, ttl_ms, call.now_ms))?,
            None => _ = call.dict.delete(&key, call.now_ms),
        }
        Ok(Value::Nil)
    }),
    ("add", "dict:add", |_, call| {
        let (key, ttl_ms) = (call.key()?, ttl_of(&call.arguments, 3)?);
        let value = call.value(&call.arguments, 2)?;
        let value = call.arguments.needed(2, value, SCALAR)?;
        let added = call.lua_result(call.dict.add(&key, value, ttl_ms, call.now_ms))?;
        Ok(Value::Boolean(added))
    }),
    ("delete", "dict:delete", |_, call| {
        Ok(Value::Boolean(call.dict.delete(&call.key()?, call.now_ms)))
    }),
    ("incr", "dict:incr", |_, call| {
        let key = call.key()?;
        let finite = [f64::MIN, f64::MAX];
        let by = call.arguments.number(2, finite, "a finite number")?;
        let initial = call.arguments.number(3, finite, "a finite number")?;
        let (by, initial) = (by.unwrap_or(1.0), initial.unwrap_or(0.0));
        let sum = call.lua_result(call.dict.incr(&key, by, initial, call.now_ms))?;
        Ok(Value::Number(sum))
    }),
    ("keys", "dict:keys", |lua, call| {
        let prefix = match call.arguments.at(1) {
            Value::Nil => None,
            _ => Some(call.arguments.bytes(1)?),
        };
        let prefix = prefix.as_deref().unwrap_or_default();
        let what = "a whole number from 1 to 10000";
        let keys_max = call.arguments.whole(2, [1.0, KEYS_MAX], what)?;
        let keys_max = keys_max.unwrap_or(KEYS) as usize;
        let keys = call
            .dict
            .keys(prefix, keys_max, call.now_ms, || go_on().is_ok());
        let keys = keys.map_or_else(|| go_on().map(|()| Vec::new()), Ok)?;
        let table = lua.create_table_with_capacity(keys.len(), 0)?;
        for key in keys {
            go_on()?;
            table.raw_push(lua.create_string(key)?)?;
        }
        Ok(Value::Table(table))
    }),
    ("count", "dict:count", |_, call| {
        Ok(Value::Number(call.dict.count(call.now_ms) as f64))
    }),
];

fn dict_methods(
    lua: &Lua,
    context: &Rc<HostContext>,
    dicts: &GrowingList<Dict>,
) -> mlua::Result<Table> {
    let methods = lua.create_table()?;
    for (name, function, run) in METHODS {
        let (context, dicts) = (Rc::clone(context), dicts.clone());
        let method = lua.create_function(move |lua, values: MultiValue| {
            run(lua, &Call::new(function, values, &dicts, &context)?)
        })?;
        methods.set(name, method)?;
    }
    let (context, dicts) = (Rc::clone(context), dicts.clone());
    let pcall: Function = lua.globals().get("pcall")?;
    let try_update = lua.create_function(move |lua, values: MultiValue| {
        update(
            lua,
            &Call::new("dict:update", values, &dicts, &context)?,
            &pcall,
        )
    })?;
    methods.set("update", try_update)?;
    Ok(methods)
}

/// Returns true and the new value, or false and the error of the script's function unchanged.
fn update(lua: &Lua, call: &Call, pcall: &Function) -> mlua::Result<(bool, Value)> {
    let key = call.key()?;
    let Value::Function(update) = call.arguments.at(2) else {
        return Err(call.arguments.bad(2, "a function expected"));
    };
    for _ in 0..UPDATES_MAX {
        let (before, version) = call.dict.read(&key, call.now_ms);
        // The script's function is called from Rust, so it can't wait.
        let mut results: MultiValue = pcall.call((update, to_lua(lua, before)?))?;
        if results.pop_front() != Some(Value::Boolean(true)) {
            return Ok((false, results.pop_front().unwrap_or(Value::Nil)));
        }
        let results = Arguments::new("dict:update's function", results);
        let after = call.value(&results, 1)?;
        let ttl_ms = ttl_of(&results, 2)?;
        let result = to_lua(lua, after.clone())?;
        let swapped = call.dict.swap(&key, version, after, ttl_ms, call.now_ms);
        if call.lua_result(swapped)? {
            return Ok((true, result));
        }
    }
    Err(fault(
        "dict:update: too many concurrent changes of this key",
    ))
}

fn counter_methods(lua: &Lua, counters: &GrowingList<Counter>) -> mlua::Result<Table> {
    let methods = lua.create_table()?;
    let own = counters.clone();
    let add = lua.create_function(move |_, mut values: MultiValue| {
        let counter = own.find_first(&mut values)?;
        let arguments = Arguments::new("counter:add", values);
        let what = "a whole number from -2^53 to 2^53";
        let by = arguments.whole(1, [-WHOLE_MAX, WHOLE_MAX], what)?;
        let sum = counter.add(by.unwrap_or(1.0) as i64);
        sum.map(|sum| sum as f64)
            .ok_or_else(|| fault("counter:add: the counter would exceed 2^53"))
    })?;
    methods.set("add", add)?;
    let own = counters.clone();
    let get = lua.create_function(move |_, mut values: MultiValue| {
        Ok(own.find_first(&mut values)?.value() as f64)
    })?;
    methods.set("get", get)?;
    Ok(methods)
}

/// A call of a dictionary's method.
struct Call {
    function: &'static str,
    dict: Arc<Dict>,
    /// The arguments of the call, without the dictionary.
    arguments: Arguments,
    now_ms: u64,
}

const SCALAR: &str = "a string, a number or a boolean";

impl Call {
    fn new(
        function: &'static str,
        mut values: MultiValue,
        dicts: &GrowingList<Dict>,
        context: &HostContext,
    ) -> mlua::Result<Self> {
        Ok(Self {
            function,
            dict: dicts.find_first(&mut values)?,
            arguments: Arguments::new(function, values),
            now_ms: context.world.now.get().mono_ms,
        })
    }

    fn key(&self) -> mlua::Result<BorrowedBytes> {
        self.arguments.bytes(1)
    }

    /// Returns an argument as a storable value.
    fn value(
        &self,
        arguments: &Arguments,
        number: usize,
    ) -> mlua::Result<Option<veche_store::Value>> {
        let bytes_max = self.dict.options().bytes_max;
        // The length is checked before the value is copied.
        if let Value::String(text) = arguments.at(number)
            && text.as_bytes().len() > bytes_max
        {
            let needed = text.as_bytes().len();
            return self.lua_result(Err(Error::Full { needed, bytes_max }));
        }
        from_lua(arguments, number)
    }

    fn lua_result<T>(&self, result: Result<T, Error>) -> mlua::Result<T> {
        result.map_err(|error| match error {
            Error::Key => self.arguments.bad(1, &error.to_string()),
            _ => fault(format!("{}: {error}", self.function)),
        })
    }
}

fn to_lua(lua: &Lua, value: Option<veche_store::Value>) -> mlua::Result<Value> {
    Ok(match value {
        None => Value::Nil,
        Some(veche_store::Value::Boolean(value)) => Value::Boolean(value),
        Some(veche_store::Value::Number(value)) => Value::Number(value),
        Some(veche_store::Value::Bytes(bytes)) => Value::String(lua.create_string(bytes)?),
    })
}

fn from_lua(arguments: &Arguments, number: usize) -> mlua::Result<Option<veche_store::Value>> {
    Ok(Some(match arguments.at(number) {
        Value::Nil => return Ok(None),
        Value::Boolean(value) => veche_store::Value::Boolean(*value),
        Value::Integer(value) => veche_store::Value::Number(*value as f64),
        Value::Number(value) => veche_store::Value::Number(*value),
        Value::String(text) => veche_store::Value::Bytes((&*text.as_bytes()).into()),
        _ => return Err(arguments.expected(number, SCALAR)),
    }))
}

/// Converts a time to live from seconds to milliseconds.
fn ttl_of(arguments: &Arguments, number: usize) -> mlua::Result<Option<u64>> {
    let seconds = arguments.number(number, ttl::LIMITS, ttl::EXPECTED)?;
    Ok(seconds.and_then(ttl::ms))
}
