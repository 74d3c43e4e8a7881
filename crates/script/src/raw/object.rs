//! Objects for connections: userdata that hold only the two numbers of an id.
//!
//! Client and outgoing connections have separate metatables, which distinguish them from other values that a script may
//! pass.

use std::ffi::c_int;

use mlua::ffi::{self, lua_State};

use crate::ConnectionId;

/// The content of a connection object: the index and the generation of the connection's id.
type Numbers = [u32; 2];

/// Replaces the metatable on top of the stack by a new object that has this metatable.
///
/// # Safety
/// The metatable is on top of the stack, and the stack has room for another value. If the allocation can be refused,
/// nothing in the frame has a destructor.
pub(super) unsafe fn push(state: *mut lua_State, id: ConnectionId) {
    // SAFETY: the caller guarantees that the metatable is on top of the stack and that the stack has room for a value.
    // The memory is as large as what `write` writes. The metatable is moved above the object, where `lua_setmetatable`
    // pops it.
    unsafe {
        ffi::lua_newuserdata(state, size_of::<Numbers>());
        write(state, id);
        ffi::lua_insert(state, -2);
        ffi::lua_setmetatable(state, -2);
    }
}

/// Assigns a connection to the object on top of the stack.
///
/// # Safety
/// The value at the top is an object made by [`push`], or its memory before [`push`] has finished.
pub(super) unsafe fn write(state: *mut lua_State, id: ConnectionId) {
    // SAFETY: the caller guarantees that the object is on top of the stack. Its memory has the size of `Numbers` and
    // is aligned for any type.
    unsafe {
        let memory = ffi::lua_touserdata(state, -1);
        memory.cast::<Numbers>().write([id.index, id.generation]);
    }
}

/// Returns the id in the object at `index`; `None` if the value there does not have the metatable at the index `metatable`.
///
/// # Safety
/// The stack has room for a value; neither index is relative to the top of the stack; every object
/// with that metatable was made by [`push`].
pub(super) unsafe fn read(
    state: *mut lua_State,
    index: c_int,
    metatable: c_int,
) -> Option<ConnectionId> {
    // SAFETY: the caller guarantees room for a value and valid indices; the pushed value is popped.
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
