//! Objects for connections: userdata that hold the two numbers of an id, and nothing else.
//!
//! Ours and those to other servers have metatables of their own, by which they are told apart from whatever else a
//! script may give.

use std::ffi::c_int;

use mlua::ffi::{self, lua_State};

use crate::ConnectionId;

/// What such an object holds.
type Numbers = [u32; 2];

/// Puts a new object on top of a stack, in place of its metatable.
///
/// # Safety
/// The metatable is on top, and there is room for another value. Where memory may be refused, nothing in the frame has
/// a destructor.
pub(super) unsafe fn push(state: *mut lua_State, id: ConnectionId) {
    // SAFETY: see above. The memory is as large as what `write` writes; the metatable ends up above the object, from
    // where it is taken off.
    unsafe {
        ffi::lua_newuserdata(state, size_of::<Numbers>());
        write(state, id);
        ffi::lua_insert(state, -2);
        ffi::lua_setmetatable(state, -2);
    }
}

/// Makes the object on top of a stack that of a connection.
///
/// # Safety
/// The value at the top is an object of ours, or its memory before it is one.
pub(super) unsafe fn write(state: *mut lua_State, id: ConnectionId) {
    // SAFETY: see above; the memory is as large as what is written, and aligned for anything.
    unsafe {
        let memory = ffi::lua_touserdata(state, -1);
        memory.cast::<Numbers>().write([id.index, id.generation]);
    }
}

/// The id that the object at `index` holds; `None` if that is none with the metatable at `metatable`.
///
/// # Safety
/// There is room for a value; both indices don't count from the top; whatever has that metatable was made by [`push`].
pub(super) unsafe fn read(
    state: *mut lua_State,
    index: c_int,
    metatable: c_int,
) -> Option<ConnectionId> {
    // SAFETY: see above; what is pushed is taken off again.
    unsafe {
        let memory = ffi::lua_touserdata(state, index);
        if memory.is_null() || ffi::lua_getmetatable(state, index) == 0 {
            return None;
        }
        let is_one = ffi::lua_rawequal(state, -1, metatable) != 0;
        ffi::lua_settop(state, -2);
        if !is_one {
            return None;
        }
        let [index, generation] = memory.cast::<Numbers>().read();
        Some(ConnectionId { index, generation })
    }
}
