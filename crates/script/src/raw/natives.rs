//! Provides the native functions that `lua/prelude.lua` uses.

use std::rc::Rc;

use mlua::ffi;
use mlua::{Lua, Table};

use super::functions::{
    bytes_of, capture, close, closure, has_room, identify, is_c, is_long, near, respawn, room,
    send, sort_kind, spawn, traceback,
};
use super::machine::waits_mark;
use super::{clients, redis, tables};
use crate::host_context::HostContext;

/// The native functions and the metatable of connections. `lua/prelude.lua` adds methods to the
/// metatable.
pub(crate) struct Natives {
    pub(crate) metatable: Table,
    pub(crate) functions: Table,
}

impl Natives {
    /// Creates the native functions in a VM. `context` has to outlive `lua`.
    pub(crate) fn new(lua: &Lua, context: &Rc<HostContext>) -> mlua::Result<Self> {
        let metatable = lua.create_table()?;
        let functions = lua.create_table()?;
        let all: [(&str, ffi::lua_CFunction); 14] = [
            ("room", room),
            ("has_room", has_room),
            ("bytes_of", bytes_of),
            ("sort_kind", sort_kind),
            ("is_c", is_c),
            ("is_long", is_long),
            ("capture", capture),
            ("traceback", traceback),
            ("send", send),
            ("close", close),
            ("identify", identify),
            ("near", near),
            ("spawn", spawn),
            ("respawn", respawn),
        ];
        for (name, function) in all {
            functions.set(name, closure(lua, function, context, &metatable)?)?;
        }
        // SAFETY: one value is pushed, and returned.
        let mark: mlua::Value =
            unsafe { lua.exec_raw((), |state| ffi::lua_pushlightuserdata(state, waits_mark())) }?;
        functions.set("waits", mark)?;
        functions.set("ask_redis", closure(lua, redis::ask, context, &metatable)?)?;
        functions.set("client", clients::functions(lua, context)?)?;
        functions.set("table", tables::functions(lua, context)?)?;
        Ok(Self {
            metatable,
            functions,
        })
    }
}
