//! A fast path for Redis commands whose parts are all strings, which is the most common kind. All other commands are
//! handled by [`modules::redis`](crate::modules), which also has the error texts.

use std::ffi::c_int;

use mlua::ffi::{self, lua_State};

use super::functions::{bytes, context};
use crate::modules::begin_plain;

/// `ask_redis(number, name, …)` → the token of the call, or nothing if the command is not handled here.
pub(super) unsafe extern "C-unwind" fn ask(state: *mut lua_State) -> c_int {
    // SAFETY: this function was made by `closure`. Strings are read in place on the stack, which raises no error;
    // nor does pushing a number, for which there is room.
    unsafe {
        let top = ffi::lua_gettop(state);
        let are_strings = (2..=top).all(|index| ffi::lua_type(state, index) == ffi::LUA_TSTRING);
        if top < 2 || !are_strings || ffi::lua_type(state, 1) != ffi::LUA_TNUMBER {
            return 0;
        }
        let parts = (2..=top).filter_map(|index| bytes(state, index));
        let Some(token) = begin_plain(context(state), ffi::lua_tonumber(state, 1), parts) else {
            return 0;
        };
        ffi::lua_pushnumber(state, token.0 as f64);
    }
    1
}
