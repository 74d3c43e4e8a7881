//! Makes the runs of a test deterministic: the order of `pairs`, the clocks of `os`, `math.random`.
//!
//! Used only in a seeded [`AppWorld`](crate::AppWorld::seeded). LuaJIT orders the keys of a table
//! by numbers that differ between processes; here the seed determines their order. A test that
//! depends on one order fails with some seeds, and reproducibly.

use std::rc::Rc;

use mlua::{Lua, Table, Value};

use crate::host_context::HostContext;

const SOURCE: &str = include_str!("../../lua/seeded.lua");

/// Replaces the functions that depend on randomness or the system's clock. Runs after the prelude, which keeps the
/// originals.
pub(crate) fn install(lua: &Lua, context: &Rc<HostContext>, native: &Table) -> mlua::Result<()> {
    if !context.world.is_seeded() {
        return Ok(());
    }
    let tools = lua.create_table()?;
    let own = Rc::clone(context);
    let word = lua.create_function(move |_, ()| Ok(word(&own) as f64))?;
    tools.set("word", word)?;
    tools.set("keys", lua.create_function(keys)?)?;
    let chunk = lua.load(SOURCE).set_name("=veche:seeded");
    chunk.call((tools, native))
}

/// Returns the next number of the test's random generator. It has 53 bits, so it is exact in Lua.
fn word(context: &HostContext) -> u64 {
    context.world.seeds_word().unwrap_or_default() >> 11
}

/// Returns the keys of a table that are not in its list part: sorted keys first, then keys that
/// can't be sorted. Also returns the number of sorted keys and the length of the list part.
fn keys(lua: &Lua, table: Table) -> mlua::Result<(Table, usize, usize)> {
    let length = table.raw_len();
    let (mut ordered, mut others) = (Vec::new(), Vec::new());
    for pair in table.pairs::<Value, Value>() {
        let (key, _) = pair?;
        match order(&key) {
            Some(Order::Number(number))
                if number.fract() == 0.0 && number >= 1.0 && number <= length as f64 => {}
            Some(order) => ordered.push((order, key)),
            None => others.push(key),
        }
    }
    ordered.sort_by(|(one, _), (other, _)| {
        one.partial_cmp(other).unwrap_or(std::cmp::Ordering::Equal)
    });
    let count = ordered.len();
    let list = lua.create_table_with_capacity(count + others.len(), 0)?;
    let keys = ordered.into_iter().map(|(_, key)| key).chain(others);
    for key in keys {
        list.raw_push(key)?;
    }
    Ok((list, count, length))
}

#[derive(PartialEq, PartialOrd)]
enum Order {
    Boolean(bool),
    Number(f64),
    Text(Vec<u8>),
}

fn order(key: &Value) -> Option<Order> {
    Some(match key {
        Value::Boolean(value) => Order::Boolean(*value),
        Value::Integer(value) => Order::Number(*value as f64),
        Value::Number(value) => Order::Number(*value),
        Value::String(text) => Order::Text(text.as_bytes().to_vec()),
        _ => return None,
    })
}
