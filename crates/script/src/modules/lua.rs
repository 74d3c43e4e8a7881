//! Modules written in Lua on top of the prelude. To add one, create a file in `lua/` and add a row
//! here.

use mlua::{Lua, Table, Value};

/// Names and sources of the modules. A module is called with the prelude's internal table. If it
/// returns a table, the table's functions are added to `veche` under their own names; nil adds
/// nothing; any other value is added under the module's name. Chunk names are chosen so that
/// [`faults`](super::faults) hides their lines.
const MODULES: &[(&str, &str)] = &[
    ("resolve", include_str!("../../lua/resolve.lua")),
    ("http", include_str!("../../lua/http.lua")),
    ("line", include_str!("../../lua/line.lua")),
    ("channel", include_str!("../../lua/channel.lua")),
    ("waitgroup", include_str!("../../lua/waitgroup.lua")),
    ("semaphore", include_str!("../../lua/semaphore.lua")),
    ("mysql", include_str!("../../lua/mysql.lua")),
    ("redis", include_str!("../../lua/redis.lua")),
    ("password", include_str!("../../lua/password.lua")),
    ("dict", include_str!("../../lua/dict.lua")),
    ("queue", include_str!("../../lua/queue.lua")),
    ("table", include_str!("../../lua/table.lua")),
    ("metrics", include_str!("../../lua/metrics.lua")),
    ("channels", include_str!("../../lua/channels.lua")),
    ("api", include_str!("../../lua/api.lua")),
    ("connections", include_str!("../../lua/connections.lua")),
    ("events", include_str!("../../lua/events.lua")),
    ("centrifuge", include_str!("../../lua/centrifuge.lua")),
    ("router", include_str!("../../lua/router.lua")),
    ("websocket", include_str!("../../lua/websocket.lua")),
];

pub(crate) fn install(lua: &Lua, veche: &Table, inner: &Table) -> mlua::Result<()> {
    for (name, source) in MODULES {
        let chunk = lua.load(*source).set_name(format!("=veche:{name}"));
        let module: Value = chunk.call(inner)?;
        match module {
            Value::Nil => {}
            Value::Table(functions) => {
                for pair in functions.pairs::<Value, Value>() {
                    let (name, function) = pair?;
                    veche.set(name, function)?;
                }
            }
            function => veche.set(*name, function)?,
        }
    }
    Ok(())
}
