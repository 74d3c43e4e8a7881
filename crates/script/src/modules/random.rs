//! `veche.random` and `veche.uuid`: unpredictable numbers from the system's generator, or from the seed in a test. They
//! also seed `math.random`.

use std::cell::Cell;
use std::rc::Rc;

use mlua::{Function, Lua, MultiValue, Table};
use uuid::Builder;

use super::argument::{Arguments, WHOLE_MAX};
use super::fault;
use crate::host_context::HostContext;

/// The most random bytes that one call can return.
const BYTES_MAX: f64 = (1 << 20) as f64;

/// Bits of the counter that keeps UUIDs of one millisecond in order: RFC 9562, section 6.2, method 1.
const COUNTER_BITS: u32 = 12;

pub(super) fn random(lua: &Lua, context: &Rc<HostContext>) -> mlua::Result<Table> {
    let module = lua.create_table()?;
    let own = Rc::clone(context);
    let bytes = lua.create_function(move |lua, values: MultiValue| {
        let arguments = Arguments::new("random.bytes", values);
        let what = "a whole number from 0 to 1048576";
        let count = arguments.whole(1, [0.0, BYTES_MAX], what)?;
        let mut bytes = vec![0; arguments.needed(1, count, what)? as usize];
        fill(&own, &mut bytes)?;
        lua.create_string(bytes)
    })?;
    module.set("bytes", bytes)?;
    let own = Rc::clone(context);
    let integer = lua.create_function(move |_, values: MultiValue| {
        let arguments = Arguments::new("random.integer", values);
        let what = "a whole number from -2^53 to 2^53";
        let limits = [-WHOLE_MAX, WHOLE_MAX];
        let least = arguments.whole(1, limits, what)?;
        let least = arguments.needed(1, least, what)?;
        let most = arguments.whole(2, limits, what)?;
        let most = arguments.needed(2, most, what)?;
        if most < least {
            return Err(arguments.bad(2, "a number of at least argument #1 expected"));
        }
        let (least, most) = (least as i64, most as i64);
        Ok((least + below(&own, (most - least) as u64 + 1)? as i64) as f64)
    })?;
    module.set("integer", integer)?;
    let own = Rc::clone(context);
    let number = lua.create_function(move |_, ()| {
        // Keeps as many random bits as a float between 0 and 1 can represent.
        Ok((word(&own)? >> 11) as f64 / WHOLE_MAX)
    })?;
    module.set("number", number)?;
    Ok(module)
}

pub(super) fn uuid(lua: &Lua, context: &Rc<HostContext>) -> mlua::Result<Table> {
    let module = lua.create_table()?;
    let own = Rc::clone(context);
    let v4 = lua.create_function(move |lua, ()| {
        let mut bytes = [0; 16];
        fill(&own, &mut bytes)?;
        let uuid = Builder::from_random_bytes(bytes).into_uuid();
        lua.create_string(uuid.hyphenated().encode_lower(&mut [0; 36]))
    })?;
    module.set("v4", v4)?;
    let (context, last) = (Rc::clone(context), Cell::new((0, 0)));
    let v7 = lua.create_function(move |lua, ()| {
        let mut bytes = [0; 10];
        fill(&context, &mut bytes)?;
        // Half of the counter's range is left for counting.
        let start = (u16::from_be_bytes([bytes[0], bytes[1]])) >> (17 - COUNTER_BITS);
        let now = (context.world.now.get().wall_ms, start);
        let (ms, counter) = match last.get() {
            before if before.0 < now.0 => now,
            // The clock shows the same millisecond as for the last UUID, or was set back.
            (ms, counter) if counter + 1 < 1 << COUNTER_BITS => (ms, counter + 1),
            (ms, _) => (ms + 1, start),
        };
        last.set((ms, counter));
        bytes[..2].copy_from_slice(&counter.to_be_bytes());
        let uuid = Builder::from_unix_timestamp_millis(ms, &bytes).into_uuid();
        lua.create_string(uuid.hyphenated().encode_lower(&mut [0; 36]))
    })?;
    module.set("v7", v7)?;
    Ok(module)
}

/// Seeds `math.random`, which would otherwise be the same in each VM. In a test the [test's seed](super::seeded) is
/// used.
pub(crate) fn seed_math(lua: &Lua, context: &HostContext) -> mlua::Result<()> {
    if context.world.is_seeded() {
        return Ok(());
    }
    let math: Table = lua.globals().get("math")?;
    let seed: Function = math.get("randomseed")?;
    seed.call((word(context)? >> 11) as f64)
}

fn fill(context: &HostContext, bytes: &mut [u8]) -> mlua::Result<()> {
    if context.world.is_seeded() {
        for piece in bytes.chunks_mut(8) {
            piece.copy_from_slice(&word(context)?.to_le_bytes()[..piece.len()]);
        }
        return Ok(());
    }
    getrandom::fill(bytes).map_err(no_numbers)
}

fn word(context: &HostContext) -> mlua::Result<u64> {
    match context.world.seeds_word() {
        Some(word) => Ok(word),
        None => getrandom::u64().map_err(no_numbers),
    }
}

fn no_numbers(error: getrandom::Error) -> mlua::Error {
    fault(format!("can't get random numbers from the system: {error}"))
}

/// Returns a uniformly distributed number below `count`. Discards random numbers from the end of the 64-bit range that
/// does not hold all remainders, since they would make small results more likely.
fn below(context: &HostContext, count: u64) -> mlua::Result<u64> {
    let whole_rounds = u64::MAX - u64::MAX % count;
    loop {
        let word = word(context)?;
        if word < whole_rounds {
            return Ok(word % count);
        }
    }
}
