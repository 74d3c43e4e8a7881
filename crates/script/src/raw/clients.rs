//! Objects for outgoing connections.
//!
//! Such an object holds the index and the generation of a connection's id, like the object of a client connection. It
//! is created before the connection is opened, and may be assigned another connection later. The object owns the table
//! with the state of `lua/websocket.lua`, so both are collected together.

use std::ffi::c_int;

use mlua::ffi::{self, lua_State};
use mlua::{Function, Lua, Table};

use super::functions::{close, closure, connection, context, fail, send};
use super::machine::Reference;
use super::object;
use crate::ConnectionId;
use crate::host_context::HostContext;
use veche_runtime::Token;

/// An id that no connection has.
const NO_CONNECTION: ConnectionId = ConnectionId {
    index: u32::MAX,
    generation: 0,
};

/// Returns a table of functions for the objects of outgoing connections. Its field `meta` is the metatable of these objects.
pub(super) fn functions(lua: &Lua, context: &std::rc::Rc<HostContext>) -> mlua::Result<Table> {
    let (functions, meta) = (lua.create_table()?, lua.create_table()?);
    let all: [(&str, ffi::lua_CFunction); 6] = [
        ("send", send),
        ("close", close),
        ("new", new),
        ("state", state_of),
        ("expect", expect),
        ("hang_up", hang_up),
    ];
    for (name, function) in all {
        let function: Function = closure(lua, function, context, &meta)?;
        functions.set(name, function)?;
    }
    functions.set("meta", meta)?;
    Ok(functions)
}

/// `new(table)` → an object that owns the table and has no connection yet.
unsafe extern "C-unwind" fn new(state: *mut lua_State) -> c_int {
    // SAFETY: this function was made by `closure`; `lua/websocket.lua` calls it with one table; the stack has room.
    unsafe {
        ffi::lua_settop(state, 1);
        ffi::lua_pushvalue(state, ffi::lua_upvalueindex(2));
        object::push(state, NO_CONNECTION);
        ffi::lua_pushvalue(state, 1);
        ffi::lua_setfenv(state, -2);
        1
    }
}

/// `state(ws)` → the object's table, and the index and the generation of its connection's id; nothing for other values.
unsafe extern "C-unwind" fn state_of(state: *mut lua_State) -> c_int {
    // SAFETY: this function was made by `closure`; the stack of a C function has room for 20 values. An object with
    // this metatable was made by `new`.
    unsafe {
        let Some(id) = object::read(state, 1, ffi::lua_upvalueindex(2)) else {
            return 0;
        };
        ffi::lua_getfenv(state, 1);
        ffi::lua_pushnumber(state, id.index.into());
        ffi::lua_pushnumber(state, id.generation.into());
        3
    }
}

/// `expect(ws, token)`: assigns the connection that is being opened with `token` to the object `ws`.
unsafe extern "C-unwind" fn expect(state: *mut lua_State) -> c_int {
    // SAFETY: this function was made by `closure`; nothing is owned or borrowed where an error may
    // be raised. `luaL_ref` moves the only value on the stack into the registry.
    unsafe {
        // Raises an error if the value is not a connection.
        let _ = connection(state);
        if ffi::lua_type(state, 2) != ffi::LUA_TNUMBER {
            fail(state, c"bad argument #2: a token expected")
        }
        let token = Token(ffi::lua_tonumber(state, 2) as u64);
        ffi::lua_settop(state, 1);
        let object = Reference(ffi::luaL_ref(state, ffi::LUA_REGISTRYINDEX));
        context(state).expect_client(token, object);
    }
    0
}

/// `hang_up(token)`: abandons the connection that is being opened with `token`; returns whether such a connection existed.
unsafe extern "C-unwind" fn hang_up(state: *mut lua_State) -> c_int {
    // SAFETY: this function was made by `closure`; a value that is not a number counts as 0, which is not a token;
    // nothing here raises an error.
    unsafe {
        let token = Token(ffi::lua_tonumber(state, 1) as u64);
        let object = context(state).hang_up(token);
        if let Some(Reference(object)) = object {
            ffi::luaL_unref(state, ffi::LUA_REGISTRYINDEX, object);
        }
        ffi::lua_pushboolean(state, object.is_some().into());
    }
    1
}
