//! The raw interface to a Lua VM: pooled coroutines, their arguments, resumption and end, and the collector's pace.

use std::ffi::{CString, c_int, c_void};
use std::ptr;
use std::rc::Rc;

use mlua::Lua;
use mlua::ffi::{self, lua_State};

use super::gc_schedule::GcSchedule;
use super::kill::unhook;
use super::memory::{IsShort, VmMemory};
use super::object;
use crate::ConnectionId;
use crate::modules;
use crate::watch::ThreadWatch;
use veche_runtime::Token;

/// The maximum number of idle coroutines kept for reuse.
const POOL_MAX: usize = 128;

/// Minimum CPU budget for loading a script, in nanoseconds.
const LOAD_BUDGET_NS: u64 = 1_000_000_000;

/// The maximum number of arguments of one call. A new stack has room for 20 values.
pub(crate) const ARGUMENTS_MAX: usize = 8;

/// Maximum number of bytes of an error text that are logged.
const WORDS_BYTES_MAX: usize = 16 << 10;

/// A reference to a value in Lua's registry, held by Rust.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reference(pub(super) c_int);

#[cfg(test)]
impl Reference {
    /// Makes a reference from its number in Lua's registry.
    pub(crate) fn from_number(number: c_int) -> Self {
        Self(number)
    }
}

/// A coroutine, protected from collection by the registry. It has to be [recycled](LuaVm::recycle) or
/// [discarded](LuaVm::discard), not dropped.
#[derive(Debug)]
pub(crate) struct Coroutine {
    pub(super) state: *mut lua_State,
    pub(super) reference: Reference,
}

impl Coroutine {
    /// Returns a reference that identifies the coroutine while the coroutine exists.
    pub(crate) fn reference(&self) -> Reference {
        self.reference
    }
}

/// A value that is pushed for a call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Argument<'a> {
    Nil,
    Boolean(bool),
    Number(f64),
    Bytes(&'a [u8]),
    Registered(Reference),
}

/// How a run of a coroutine ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RunEnd {
    /// The coroutine has finished.
    Ended,
    /// The coroutine waits for the result that has this token.
    Waits(Token),
    Failed(LuaError),
}

/// An error that no script caught.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LuaError {
    /// The error message, usually with the line of the script that raised the error.
    pub(crate) words: String,
    /// The message and the traceback.
    pub(crate) traceback: String,
}

impl LuaError {
    /// Makes an error without a position in a script.
    pub(crate) fn error_message(words: &str) -> Self {
        Self {
            words: words.to_owned(),
            traceback: words.to_owned(),
        }
    }
}

/// The availability of memory for another call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryRoom {
    Yes,
    /// The running garbage collection may free enough memory.
    Soon,
    No,
}

/// The address of this static marks the values that a wait yields. Scripts can't forge the address.
static WAITS: u8 = 0;

pub(super) fn waits_mark() -> *mut c_void {
    (&raw const WAITS).cast_mut().cast()
}

/// The raw interface to one Lua VM.
pub(crate) struct LuaVm {
    main: *mut lua_State,
    lua: Lua,
    pool: Vec<Coroutine>,
    watch: ThreadWatch,
    budget_ns: u64,
    memory: Rc<VmMemory>,
    /// Whether the process was short of memory when the last run ended.
    was_short: bool,
    /// When garbage is collected next while the process is short of memory, in monotonic milliseconds.
    collects_ms: u64,
    collection: GcSchedule,
    /// The memory in use when the collector's pause was last set.
    paced_bytes: usize,
}

/// How much a small VM may grow between two collections, in percent. Messages become garbage at once, and frequent
/// collection reuses their memory while it is still in the cache (measured: 15 to 25 % of the CPU time of an echo).
const GROWTH_SMALL: usize = 25;
/// How much a large VM may grow between two collections, in percent. This is Lua's default. Collecting a large VM more
/// often costs more than it saves.
const GROWTH_LARGE: usize = 100;
/// The interval of collections while the process is short of memory, in milliseconds.
const SHORT_COLLECTS_MS: u64 = 1000;
/// The sizes of a small and of a large VM, in bytes. For sizes in between, the growth is interpolated.
const SMALL_BYTES: usize = 256 << 10;
const LARGE_BYTES: usize = 2 << 20;

fn growth(used_bytes: usize) -> usize {
    let above = used_bytes.clamp(SMALL_BYTES, LARGE_BYTES) - SMALL_BYTES;
    GROWTH_SMALL + (GROWTH_LARGE - GROWTH_SMALL) * above / (LARGE_BYTES - SMALL_BYTES)
}

impl LuaVm {
    /// Creates the interface to the VM of `lua`. `budget_ns` is the CPU time limit of a run, in nanoseconds.
    pub(crate) fn new(
        lua: &Lua,
        watch: ThreadWatch,
        budget_ns: u64,
        memory_bytes_max: usize,
        is_short: IsShort,
    ) -> mlua::Result<Self> {
        let mut main = ptr::null_mut();
        // SAFETY: the closure neither leaves values behind nor raises an error.
        unsafe { lua.exec_raw::<()>((), |state| main = state) }?;
        Ok(Self {
            main,
            lua: lua.clone(),
            pool: Vec::new(),
            watch,
            budget_ns,
            memory: VmMemory::of(lua, main, memory_bytes_max, is_short)?,
            was_short: false,
            collects_ms: 0,
            collection: GcSchedule::new(memory_bytes_max),
            paced_bytes: 0,
        })
    }

    /// Returns the VM's memory accounting, for functions that may need much memory.
    pub(crate) fn memory(&self) -> &Rc<VmMemory> {
        &self.memory
    }

    /// Adapts the collector's pace to the VM's size. Starts a collection if the VM is near its memory limit, the
    /// process has just become short of memory, or a large block was refused.
    fn watch_memory(&mut self) {
        let used_bytes = self.memory.used_bytes();
        if used_bytes / 2 > self.paced_bytes || used_bytes < self.paced_bytes / 2 {
            self.paced_bytes = used_bytes;
            let pause = 100 + growth(used_bytes) as c_int;
            // SAFETY: only sets a parameter of the VM.
            unsafe { ffi::lua_gc(self.main, ffi::LUA_GCSETPAUSE, pause) };
        }
        let was_short = std::mem::replace(&mut self.was_short, self.memory.is_short());
        let gets_short = self.was_short && !was_short;
        if used_bytes > self.collection.due_bytes() || gets_short {
            self.begin_collection();
        }
        if self.memory.take_refused() {
            self.begin_collection_anew();
        }
    }

    /// Starts periodic collections while the process is short of memory, so that idle VMs release memory too.
    pub(crate) fn collect_if_short(&mut self, now_ms: u64) {
        if !self.memory.is_short() || now_ms < self.collects_ms {
            return;
        }
        self.collects_ms = now_ms + SHORT_COLLECTS_MS;
        self.memory.look_again();
        self.was_short = self.memory.is_short();
        if self.was_short {
            self.begin_collection_anew();
        }
    }

    /// Returns the time at which the next periodic collection is due, in monotonic milliseconds.
    pub(crate) fn collects_ms(&self) -> u64 {
        match self.memory.is_short() {
            true => self.collects_ms,
            false => u64::MAX,
        }
    }

    fn begin_collection(&mut self) {
        let bytes_max = self.memory.bytes_max();
        self.collection
            .begin(self.main, self.memory.used_bytes(), bytes_max);
    }

    /// Starts a collection, or extends the running one, so that garbage made just now is found too.
    fn begin_collection_anew(&mut self) {
        self.begin_collection();
        self.collection.look_twice();
    }

    /// Returns whether there is memory for another call, now or soon. If there is none, starts a
    /// garbage collection in slices, unless the last collection has just freed too little.
    pub(crate) fn room(&mut self, now_ms: u64) -> MemoryRoom {
        self.memory.look_again();
        let used_bytes = self.memory.used_bytes();
        if used_bytes < self.memory.bytes_max() {
            return MemoryRoom::Yes;
        }
        if self.collection.is_of_use(now_ms) {
            self.begin_collection();
        }
        match self.collection.has_room(used_bytes) {
            true => MemoryRoom::Soon,
            false => MemoryRoom::No,
        }
    }

    /// Returns whether the memory limit is reached.
    pub(crate) fn is_full(&self) -> bool {
        self.memory.is_full()
    }

    /// Returns whether the VM exceeds its memory limit by so much that it has to be replaced.
    pub(crate) fn is_broken(&self) -> bool {
        self.memory.is_broken()
    }

    /// Returns whether a collection is running that [`collect_some`](Self::collect_some) continues.
    pub(crate) fn is_collecting(&self) -> bool {
        self.collection.is_under_way()
    }

    /// Continues the collection until `is_late` returns true, or for a bounded amount of work.
    pub(crate) fn collect_some(&mut self, now_ms: u64, is_late: impl Fn() -> bool) {
        self.collection
            .go_on(self.main, &self.memory, now_ms, is_late);
    }

    /// Calls into Lua through `mlua`, within the budget of a run or of loading a script.
    pub(crate) fn guarded<R>(&self, is_loading: bool, call: impl FnOnce() -> R) -> R {
        let budget_ns = match is_loading {
            true => self.budget_ns.max(LOAD_BUDGET_NS),
            false => self.budget_ns,
        };
        self.enter(budget_ns);
        let result = call();
        self.leave();
        result
    }

    /// Runs `call` without refusing allocations. `call` may only call this crate's cleanup functions.
    pub(crate) fn guarded_without_limit<R>(&self, call: impl FnOnce() -> R) -> R {
        self.watch.enter(self.main, self.budget_ns);
        let result = call();
        self.leave();
        result
    }

    fn enter(&self, budget_ns: u64) {
        self.watch.enter(self.main, budget_ns);
        self.memory.begin_run();
    }

    fn leave(&self) {
        self.watch.leave();
        self.memory.end_run();
        if unhook() {
            // SAFETY: removing a hook and restarting the collector have no preconditions.
            unsafe {
                ffi::lua_sethook(self.main, None, 0, 0);
                ffi::lua_gc(self.main, ffi::LUA_GCRESTART, 0);
            }
        }
    }

    /// Returns the memory that the VM uses, in bytes.
    pub(crate) fn used_bytes(&self) -> usize {
        self.memory.used_bytes()
    }

    /// Returns the watchdog's clock: see [`ThreadWatch::ticks`].
    pub(crate) fn ticks(&self) -> u64 {
        self.watch.ticks()
    }

    /// Prepares a call. The coroutine starts when it is [resumed](Self::resume).
    pub(crate) fn prepare(&mut self, function: Reference, arguments: &[Argument<'_>]) -> Coroutine {
        debug_assert!(arguments.len() <= ARGUMENTS_MAX);
        let pooled = self.pool.pop();
        let coroutine = pooled.unwrap_or_else(|| new_coroutine(self.main));
        // SAFETY: the stack of a coroutine that has not started is empty and has room; the memory limit is off.
        unsafe { ffi::lua_rawgeti(coroutine.state, ffi::LUA_REGISTRYINDEX, function.0.into()) };
        push_all(coroutine.state, arguments);
        coroutine
    }

    /// Returns argument `place`, counted from 1, of a prepared call that has not started: a number, bytes, or nil for
    /// any other value.
    pub(crate) fn argument<'a>(&self, prepared: &'a Coroutine, place: c_int) -> Argument<'a> {
        let state = prepared.state;
        // SAFETY: a prepared coroutine has its function and its arguments on its stack, and is not changed while
        // `prepared` is borrowed. A string's bytes don't move while the string exists.
        unsafe {
            match ffi::lua_type(state, place + 1) {
                ffi::LUA_TNUMBER => Argument::Number(ffi::lua_tonumber(state, place + 1)),
                ffi::LUA_TSTRING => {
                    let mut length = 0;
                    let text = ffi::lua_tolstring(state, place + 1, &raw mut length);
                    Argument::Bytes(std::slice::from_raw_parts(text.cast::<u8>(), length))
                }
                _ => Argument::Nil,
            }
        }
    }

    /// Starts a prepared coroutine, or resumes a waiting one with the result of its wait, `answer`.
    pub(crate) fn resume(&mut self, coroutine: &Coroutine, answer: &[Argument<'_>]) -> RunEnd {
        let state = coroutine.state;
        // SAFETY: the coroutine is alive; see `Coroutine`.
        let waited = unsafe { ffi::lua_status(state) } == ffi::LUA_YIELD;
        let arguments = if waited {
            // SAFETY: a yielded coroutine has only the yielded values on its stack, which are not needed any more.
            unsafe { ffi::lua_settop(state, 0) };
            push_all(state, answer);
            answer.len() as c_int
        } else {
            // SAFETY: a prepared coroutine has its function and its arguments on its stack.
            unsafe { ffi::lua_gettop(state) - 1 }
        };
        self.enter(self.budget_ns);
        // SAFETY: `arguments` values lie on the stack, above the function if the coroutine is new. The call is protected.
        let status = unsafe { ffi::lua_resume(state, ptr::null_mut(), arguments, ptr::null_mut()) };
        self.leave();
        self.watch_memory();
        match status {
            ffi::LUA_OK => {
                // SAFETY: removes the result, which is not used.
                unsafe { ffi::lua_settop(state, 0) };
                RunEnd::Ended
            }
            ffi::LUA_YIELD => match yielded(state) {
                Some(token) => RunEnd::Waits(token),
                None => RunEnd::Failed(self.failure(state, STRAY_YIELD.to_owned())),
            },
            _ => {
                // The run most likely ended because of its memory use, and its memory can now be freed.
                if self.is_full() {
                    self.begin_collection_anew();
                }
                RunEnd::Failed(self.failure(state, self.error_text(state)))
            }
        }
    }

    /// Returns a finished coroutine to the pool.
    pub(crate) fn recycle(&mut self, coroutine: Coroutine) {
        if self.pool.len() < POOL_MAX {
            self.pool.push(coroutine);
        } else {
            self.discard(coroutine);
        }
    }

    /// Releases a coroutine that failed or will never be resumed.
    pub(crate) fn discard(&self, coroutine: Coroutine) {
        self.release(coroutine.reference);
    }

    /// Releases a referenced value.
    pub(crate) fn release(&self, reference: Reference) {
        // SAFETY: `luaL_ref` made the reference, and its owner releases it once. Nothing is allocated.
        unsafe { ffi::luaL_unref(self.main, ffi::LUA_REGISTRYINDEX, reference.0) };
    }

    /// Creates a reference to a value.
    pub(crate) fn keep(&self, value: impl mlua::IntoLua) -> mlua::Result<Reference> {
        let mut reference = 0;
        // SAFETY: the closure takes the one value off the stack. Errors raised in the closure are caught.
        unsafe {
            self.lua.exec_raw::<()>(value, |state| {
                reference = ffi::luaL_ref(state, ffi::LUA_REGISTRYINDEX);
            })
        }?;
        Ok(Reference(reference))
    }

    /// Creates the Lua [`object`] of a connection, with the given metatable.
    pub(crate) fn connection(&self, metatable: Reference, id: ConnectionId) -> Reference {
        let main = self.main;
        // SAFETY: pushes at most two values on a stack with room for them; the memory limit is off.
        let reference = unsafe {
            ffi::lua_rawgeti(main, ffi::LUA_REGISTRYINDEX, metatable.0.into());
            object::push(main, id);
            ffi::luaL_ref(main, ffi::LUA_REGISTRYINDEX)
        };
        Reference(reference)
    }

    /// Writes the id of a connection into the Lua object of an outgoing connection.
    pub(crate) fn rename(&self, object: Reference, id: ConnectionId) {
        let main = self.main;
        // SAFETY: pushes one value on a stack that has room for it, and pops it. `object` comes from `expect`, which
        // accepts only objects of connections.
        unsafe {
            ffi::lua_rawgeti(main, ffi::LUA_REGISTRYINDEX, object.0.into());
            object::write(main, id);
            ffi::lua_settop(main, -2);
        }
    }

    /// Returns the error of a failed coroutine, if it is a table.
    pub(crate) fn raised(&self, coroutine: &Coroutine) -> Option<mlua::Table> {
        let state = coroutine.state;
        // SAFETY: a failed coroutine has its error on top of its stack, which has room for another value.
        let value = unsafe {
            self.lua.exec_raw::<mlua::Value>((), |main| {
                ffi::lua_pushvalue(state, -1);
                ffi::lua_xmove(state, main, 1);
            })
        };
        match value {
            Ok(mlua::Value::Table(table)) => Some(table),
            _ => None,
        }
    }

    /// Returns the error text of a failed coroutine.
    fn error_text(&self, state: *mut lua_State) -> String {
        // SAFETY: a failed coroutine has its error on top of its stack, which has room for another value.
        let value = unsafe {
            self.lua.exec_raw::<mlua::Value>((), |main| {
                ffi::lua_pushvalue(state, -1);
                ffi::lua_xmove(state, main, 1);
            })
        };
        match value {
            Ok(mlua::Value::Error(error)) => modules::words(&error),
            Ok(mlua::Value::String(text)) => {
                let text = text.as_bytes();
                let text = String::from_utf8_lossy(&text[..text.len().min(WORDS_BYTES_MAX)]);
                modules::without_own_place(&text).to_owned()
            }
            // Only a function in the error object's metatable could convert the object to text, and it would run
            // without a CPU budget.
            Ok(other) => format!("an error object of type {}", other.type_name()),
            Err(error) => error.to_string(),
        }
    }

    fn failure(&self, state: *mut lua_State, words: String) -> LuaError {
        let text = CString::new(words.replace('\0', "\\0")).unwrap_or_default();
        let main = self.main;
        // SAFETY: the main stack has room; the pushed text is on top until it is popped.
        let traceback = unsafe {
            ffi::luaL_traceback(main, state, text.as_ptr(), 0);
            let mut length = 0;
            let text = ffi::lua_tolstring(main, -1, &raw mut length);
            let text = std::slice::from_raw_parts(text.cast::<u8>(), length);
            let text = String::from_utf8_lossy(text).into_owned();
            ffi::lua_settop(main, -2);
            text
        };
        let traceback = modules::with_line(&words, traceback);
        LuaError { words, traceback }
    }
}

impl Drop for LuaVm {
    fn drop(&mut self) {
        self.memory.leave();
    }
}

const STRAY_YIELD: &str = "coroutine.yield outside of a coroutine: only coroutines created by coroutine.create or coroutine.wrap can yield";

fn new_coroutine(main: *mut lua_State) -> Coroutine {
    // SAFETY: one value is pushed on the main stack and popped; no allocation is refused here.
    unsafe {
        let state = ffi::lua_newthread(main);
        let reference = Reference(ffi::luaL_ref(main, ffi::LUA_REGISTRYINDEX));
        Coroutine { state, reference }
    }
}

fn push_all(state: *mut lua_State, arguments: &[Argument<'_>]) {
    for argument in arguments {
        // SAFETY: there is room for `ARGUMENTS_MAX` values, and no allocation is refused here.
        unsafe {
            match *argument {
                Argument::Nil => ffi::lua_pushnil(state),
                Argument::Boolean(value) => ffi::lua_pushboolean(state, value.into()),
                Argument::Number(value) => ffi::lua_pushnumber(state, value),
                Argument::Bytes(bytes) => {
                    ffi::lua_pushlstring(state, bytes.as_ptr().cast(), bytes.len());
                }
                Argument::Registered(reference) => {
                    ffi::lua_rawgeti(state, ffi::LUA_REGISTRYINDEX, reference.0.into());
                }
            }
        }
    }
}

/// Returns the token for which a yielded coroutine waits; `None` if the script itself has yielded.
fn yielded(state: *mut lua_State) -> Option<Token> {
    // SAFETY: reading values of the stack by index; an index without a value reads as nothing.
    unsafe {
        let is_wait = ffi::lua_gettop(state) == 2 && ffi::lua_touserdata(state, 1) == waits_mark();
        is_wait.then(|| Token(ffi::lua_tonumber(state, 2) as u64))
    }
}
