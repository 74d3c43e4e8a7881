//! The functions that scripts call for every message, as plain C functions.
//!
//! A connection in a script is an object that holds the two numbers of its id; everything else is requested from the
//! [`HostContext`]. Calling a function with the id of a closed connection is not an error: the result shows that the
//! connection is closed.

use std::ffi::{CStr, c_int, c_void};
use std::rc::Rc;

use mlua::ffi::{self, lua_State};
use mlua::{Function, Lua, Table};
use veche_types::codes::{CloseCode, REASON_BYTES_MAX};

use super::kill::{is_run_over, kill_reason};
use super::machine::{Coroutine, Reference};
use super::object;
use crate::host_context::{HostContext, SendAdmission};
use crate::utf8;
use crate::{ConnectionId, MessageKind};
use veche_runtime::MESSAGE_BYTES_MAX;
use veche_runtime::close::is_close_code;

/// Creates a C function with two upvalues: the host context, and the metatable of the objects that the function accepts.
pub(super) fn closure(
    lua: &Lua,
    function: ffi::lua_CFunction,
    context: &Rc<HostContext>,
    metatable: &Table,
) -> mlua::Result<Function> {
    let context = Rc::as_ptr(context).cast_mut().cast::<c_void>();
    // SAFETY: the metatable is on the stack. The closure replaces the context and the metatable there,
    // and is returned.
    unsafe {
        lua.exec_raw(metatable, |state| {
            ffi::lua_pushlightuserdata(state, context);
            ffi::lua_insert(state, -2);
            ffi::lua_pushcclosure(state, function, 2);
        })
    }
}

/// # Safety
/// Must be called only in a function made by [`closure`].
pub(super) unsafe fn context<'a>(state: *mut lua_State) -> &'a HostContext {
    // SAFETY: the first upvalue is the host context, which outlives the VM.
    unsafe { &*ffi::lua_touserdata(state, ffi::lua_upvalueindex(1)).cast::<HostContext>() }
}

/// Returns the connection that is the first argument, or raises an error.
///
/// # Safety
/// Must be called only in a function made by [`closure`], with no value in the frame that has a
/// destructor.
pub(super) unsafe fn connection(state: *mut lua_State) -> ConnectionId {
    // SAFETY: the stack of a C function has room for 20 values. Objects with the metatable that is the second upvalue
    // are made by `object::push` alone.
    unsafe {
        match object::read(state, 1, ffi::lua_upvalueindex(2)) {
            Some(id) => id,
            None => fail(
                state,
                c"bad argument #1: a connection expected (call it as conn:send(…), with a colon)",
            ),
        }
    }
}

/// # Safety
/// No value in the caller's frame may have a destructor.
pub(super) unsafe fn fail(state: *mut lua_State, words: &CStr) -> ! {
    // SAFETY: the caller's frame has no value with a destructor; Lua catches the error.
    unsafe {
        ffi::luaL_where(state, 1);
        ffi::lua_pushstring(state, words.as_ptr());
        ffi::lua_concat(state, 2);
        ffi::lua_error(state)
    }
}

/// Returns the bytes of a string argument; a number is converted to text.
///
/// # Safety
/// The bytes are valid while the argument stays on the stack.
pub(super) unsafe fn bytes<'a>(state: *mut lua_State, index: c_int) -> Option<&'a [u8]> {
    // SAFETY: `lua_tolstring` returns null, or a pointer to `length` bytes.
    unsafe {
        let mut length = 0;
        let text = ffi::lua_tolstring(state, index, &raw mut length);
        (!text.is_null()).then(|| std::slice::from_raw_parts(text.cast::<u8>(), length))
    }
}

/// # Safety
/// Must be called in a C function, as its last step.
unsafe fn refused(state: *mut lua_State, why: &CStr) -> c_int {
    // SAFETY: the stack has room for two values.
    unsafe {
        ffi::lua_pushnil(state);
        ffi::lua_pushstring(state, why.as_ptr());
    }
    2
}

/// `conn:send(data, kind)` → `true`; `nil, "closed"`; `false, "full"` if the message was accepted
/// but the script should wait before it sends more; `nil, "full"` if a message to another server
/// was rejected.
pub(super) unsafe extern "C-unwind" fn send(state: *mut lua_State) -> c_int {
    // SAFETY: `closure` created this function, as `connection` requires; errors are raised before any value is
    // borrowed.
    unsafe {
        let to = connection(state);
        let Some(data) = bytes(state, 2) else {
            fail(
                state,
                c"bad argument #1 to 'send': a string expected (tables go through veche.json.encode)",
            )
        };
        if data.len() > MESSAGE_BYTES_MAX {
            fail(
                state,
                c"bad argument #1 to 'send': a message may have at most 16 MiB",
            )
        }
        let kind = match bytes(state, 3) {
            None if ffi::lua_type(state, 3) <= ffi::LUA_TNIL => MessageKind::Text,
            Some(b"text") => MessageKind::Text,
            Some(b"binary") => MessageKind::Binary,
            _ => fail(
                state,
                c"bad argument #2 to 'send': \"text\" or \"binary\" expected",
            ),
        };
        if kind == MessageKind::Text {
            match utf8::check(data) {
                Some(true) => {}
                Some(false) => fail(
                    state,
                    c"bad argument #1 to 'send': it is not UTF-8, so it can't be a text message; send it as \"binary\"",
                ),
                None => fail(state, kill_reason()),
            }
        }
        match context(state).send(to, kind, data) {
            SendAdmission::Yes => {}
            SendAdmission::Closed => return refused(state, c"closed"),
            SendAdmission::Full => return refused(state, c"full"),
            SendAdmission::Over => {
                ffi::lua_pushboolean(state, 0);
                ffi::lua_pushstring(state, c"full".as_ptr());
                return 2;
            }
            SendAdmission::TooMuch => fail(
                state,
                c"too much data is sent at once: call veche.sleep(0) between messages, so that the server can send them",
            ),
        }
        ffi::lua_pushboolean(state, 1);
        1
    }
}

/// `conn:close(code, reason)` → `true`, or `nil, "closed"`.
pub(super) unsafe extern "C-unwind" fn close(state: *mut lua_State) -> c_int {
    // SAFETY: `closure` created this function, as `connection` requires; errors are raised before
    // anything is borrowed or owned.
    unsafe {
        let of = connection(state);
        let code = match ffi::lua_type(state, 2) {
            ffi::LUA_TNONE | ffi::LUA_TNIL => f64::from(CloseCode::Normal.code()),
            ffi::LUA_TNUMBER => ffi::lua_tonumber(state, 2),
            _ => fail(state, c"bad argument #1 to 'close': a number expected"),
        };
        if !is_close_code(code) {
            fail(
                state,
                c"bad argument #1 to 'close': a close code must be 1000 to 1003, 1007 to 1014 or 3000 to 4999",
            )
        }
        let reason = match bytes(state, 3) {
            Some(reason) => reason,
            None if ffi::lua_type(state, 3) <= ffi::LUA_TNIL => b"",
            None => fail(state, c"bad argument #2 to 'close': a string expected"),
        };
        let Ok(reason) = std::str::from_utf8(reason) else {
            fail(state, c"bad argument #2 to 'close': it is not UTF-8")
        };
        if reason.len() > REASON_BYTES_MAX {
            fail(
                state,
                c"bad argument #2 to 'close': a reason may have at most 123 bytes",
            )
        }
        if !context(state).close(of, code as u16, reason) {
            return refused(state, c"closed");
        }
        ffi::lua_pushboolean(state, 1);
        1
    }
}

/// `room()`: raises an error if nested callbacks have used up their part of the C stack. Every function that calls Lua
/// from C calls `room` first: each coroutine has its own Lua stack, so Lua's own limits don't bound the depth of the C
/// stack.
pub(super) unsafe extern "C-unwind" fn room(state: *mut lua_State) -> c_int {
    // SAFETY: no value in this frame owns anything when the error is raised.
    unsafe {
        if !super::system::has_stack() {
            fail(
                state,
                c"stack overflow: callbacks or coroutines are nested too deeply",
            )
        }
    }
    0
}

/// `has_room(bytes)` → whether a result of that length could be allocated.
pub(super) unsafe extern "C-unwind" fn has_room(state: *mut lua_State) -> c_int {
    // SAFETY: `closure` created this function, as `context` requires; the stack has room for a value.
    unsafe {
        let bytes = ffi::lua_tonumber(state, 1) as usize;
        ffi::lua_pushboolean(state, context(state).has_room_for(bytes).into());
    }
    1
}

/// `bytes_of(list, bytes, i, j)` → the total length of the pieces from `i` to `j`, with a separator
/// of `bytes` bytes between two pieces; nil if a piece is neither a string nor a number.
pub(super) unsafe extern "C-unwind" fn bytes_of(state: *mut lua_State) -> c_int {
    // SAFETY: the caller has checked the type of the list; one value is pushed at a time.
    unsafe {
        let between = ffi::lua_tonumber(state, 2);
        let [first, last] = [3, 4].map(|place| ffi::lua_tonumber(state, place) as i64);
        let mut bytes = between * (last - first) as f64;
        for place in first..=last {
            ffi::lua_rawgeti(state, 1, place as _);
            let kind = ffi::lua_type(state, -1);
            bytes += match kind {
                ffi::LUA_TSTRING => ffi::lua_objlen(state, -1) as f64,
                ffi::LUA_TNUMBER => NUMBER_BYTES_MAX,
                _ => return 0,
            };
            ffi::lua_settop(state, -2);
        }
        ffi::lua_pushnumber(state, bytes);
    }
    1
}

/// The maximum length of a formatted number in characters, including its sign, point and exponent.
const NUMBER_BYTES_MAX: f64 = 24.0;

/// `sort_kind(list)` → whether the list is short enough to be sorted by C in one call, and whether
/// its values are all numbers or all strings, so that they can be compared without an error.
pub(super) unsafe extern "C-unwind" fn sort_kind(state: *mut lua_State) -> c_int {
    /// The maximum number of values that C may sort: in the worst case, C compares every pair.
    const FEW: usize = 512;
    /// The maximum total size in bytes of the strings of a list that C may sort: each comparison
    /// may read whole strings.
    const FEW_BYTES: usize = 16 << 10;
    /// The maximum number of values whose types are examined. A longer list counts as neither short nor of one type, since
    /// sorting it would exceed the CPU budget of a run anyway.
    const VALUES_MAX: usize = 200_000;
    // SAFETY: the caller has checked the type of the list; one value is pushed at a time.
    unsafe {
        let count = ffi::lua_objlen(state, 1);
        let (mut bytes, mut strings, mut numbers) = (0, 0, 0);
        for place in 1..=count.min(VALUES_MAX) {
            ffi::lua_rawgeti(state, 1, place as _);
            match ffi::lua_type(state, -1) {
                ffi::LUA_TSTRING => {
                    strings += 1;
                    bytes += ffi::lua_objlen(state, -1);
                }
                ffi::LUA_TNUMBER => numbers += 1,
                _ => {}
            }
            ffi::lua_settop(state, -2);
        }
        let is_plain = strings == count || numbers == count;
        let is_quick = strings + numbers == count && count <= FEW && bytes <= FEW_BYTES;
        ffi::lua_pushboolean(state, is_quick.into());
        ffi::lua_pushboolean(state, is_plain.into());
    }
    2
}

/// `is_c(value)` → whether the value is a C function. Lua's hooks can't interrupt C functions.
pub(super) unsafe extern "C-unwind" fn is_c(state: *mut lua_State) -> c_int {
    // SAFETY: there is room for a value.
    unsafe { ffi::lua_pushboolean(state, ffi::lua_iscfunction(state, 1)) };
    1
}

/// `is_long()` → whether the run has used up its time slice, so that other coroutines should run first.
pub(super) unsafe extern "C-unwind" fn is_long(state: *mut lua_State) -> c_int {
    // SAFETY: `closure` created this function, as `context` requires; the stack has room for a value.
    unsafe { ffi::lua_pushboolean(state, context(state).clock.is_run_long().into()) };
    1
}

/// `capture(error)` → a table of the error and its traceback. `xpcall` always gets this function as
/// its handler: Lua's hooks are off while a handler runs, so a script's own handler could not be
/// interrupted.
pub(super) unsafe extern "C-unwind" fn capture(state: *mut lua_State) -> c_int {
    // SAFETY: there is room for a few values; Lua handles errors raised in an error handler.
    unsafe {
        ffi::lua_settop(state, 1);
        // While a run is being ended, each of its `xpcall` calls gets here, and no handler of the
        // script may run.
        if is_run_over() {
            return 1;
        }
        ffi::lua_createtable(state, 2, 0);
        ffi::lua_insert(state, 1);
        ffi::lua_rawseti(state, 1, 1);
        ffi::luaL_traceback(state, state, std::ptr::null(), 1);
        ffi::lua_rawseti(state, 1, 2);
    }
    1
}

/// `traceback(coroutine, level)` → the traceback of the coroutine, or of the caller if no coroutine is given, starting
/// at `level`.
pub(super) unsafe extern "C-unwind" fn traceback(state: *mut lua_State) -> c_int {
    // SAFETY: the coroutine lives as long as the argument stays on the stack; no value here owns memory.
    unsafe {
        let of = ffi::lua_tothread(state, 1);
        let level = ffi::lua_tonumber(state, 2).clamp(0.0, 1e6) as c_int;
        let of = if of.is_null() { state } else { of };
        ffi::luaL_traceback(state, of, std::ptr::null(), level);
    }
    1
}

/// `identify(conn)` → the index and the generation of the connection's id.
pub(super) unsafe extern "C-unwind" fn identify(state: *mut lua_State) -> c_int {
    // SAFETY: `closure` created this function, as `connection` requires; the stack has room.
    unsafe {
        let id = connection(state);
        ffi::lua_pushnumber(state, id.index.into());
        ffi::lua_pushnumber(state, id.generation.into());
    }
    2
}

/// `near(index, generation)` → a connection of this worker, if it is open.
pub(super) unsafe extern "C-unwind" fn near(state: *mut lua_State) -> c_int {
    // SAFETY: `closure` created this function, as `context` requires; the stack has room for the
    // values. When Lua raises an error for lack of memory, nothing here owns anything.
    unsafe {
        let [index, generation] = [1, 2].map(|place| ffi::lua_tonumber(state, place) as u32);
        let id = ConnectionId { index, generation };
        let is_open = context(state).world.connections.borrow().is_open(id);
        if !is_open {
            return 0;
        }
        ffi::lua_pushvalue(state, ffi::lua_upvalueindex(2));
        object::push(state, id);
    }
    1
}

/// `spawn(f, …)` → the number of a new coroutine, which will call `f`.
pub(super) unsafe extern "C-unwind" fn spawn(state: *mut lua_State) -> c_int {
    // SAFETY: `closure` created this function, whose frame holds no value with a destructor.
    unsafe { begin(state, false) }
}

/// `respawn(f, …)` → the number of a new coroutine that takes the place of one that has ended, and will call `f`. The
/// limits on coroutines and memory don't apply to it.
pub(super) unsafe extern "C-unwind" fn respawn(state: *mut lua_State) -> c_int {
    // SAFETY: `closure` created this function, whose frame holds no value with a destructor.
    unsafe { begin(state, true) }
}

/// # Safety
/// Must be called only in a function made by [`closure`], as its last step, with no value in its
/// frame that has a destructor.
unsafe fn begin(state: *mut lua_State, is_successor: bool) -> c_int {
    // SAFETY: `closure` created the calling function. The new coroutine is on the stack until the
    // registry has it; its own stack is made large enough before the values move.
    unsafe {
        let values = ffi::lua_gettop(state);
        if ffi::lua_type(state, 1) != ffi::LUA_TFUNCTION {
            fail(state, c"bad argument #1: a function expected")
        }
        // At the memory limit, no coroutine is created, because it would still use memory after this run is ended.
        if !is_successor && context(state).is_full() {
            fail(
                state,
                c"not enough memory: the application is over its limit",
            )
        }
        let new = ffi::lua_newthread(state);
        ffi::lua_insert(state, 1);
        if ffi::lua_checkstack(new, values + 1) == 0 {
            fail(state, c"too many arguments")
        }
        ffi::lua_xmove(state, new, values);
        let reference = Reference(ffi::luaL_ref(state, ffi::LUA_REGISTRYINDEX));
        let coroutine = Coroutine {
            state: new,
            reference,
        };
        let number = context(state).spawned(coroutine, is_successor);
        ffi::lua_pushnumber(state, number as f64);
        1
    }
}
