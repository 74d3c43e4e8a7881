//! The end of a run that is over its budget: a hook that raises an error at every instruction.

use std::cell::Cell;
use std::ffi::CStr;

use mlua::ffi::{self, lua_State};

/// Why a run is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KillReason {
    Budget,
    /// The VM has taken too much.
    Memory,
    /// The VM has grown while the process is short of memory.
    Process,
}

/// Also from the signal's handler, and from within an allocation: from now on the hook looks at each instruction of whatever runs.
pub(crate) fn kill_run(state: *mut lua_State, why: KillReason) {
    // A run that takes too much memory has no reprieve, however long it has run.
    if IS_HOOKED.replace(true) && (DOOM.get() == why || why == KillReason::Budget) {
        return;
    }
    DOOM.set(why);
    REPRIEVE.set(match why {
        KillReason::Budget => GracePeriod::Asked,
        KillReason::Memory | KillReason::Process => GracePeriod::Over,
    });
    // SAFETY: async-signal-safe by LuaJIT's design, as its own interpreter does it; `state` runs on this very thread.
    unsafe { ffi::lua_sethook(state, Some(end_run), ffi::LUA_MASKCOUNT, 1) };
}

/// The reprieve of a run over its budget, which may not be at fault: the collector's work falls on the current run.
#[derive(Clone, Copy)]
enum GracePeriod {
    /// Its time begins with the next instruction.
    Asked,
    /// Its start, and the instructions executed since.
    Runs { since_ns: u64, instructions: u32 },
    /// It is over.
    Over,
}

thread_local! {
    /// Of the run on this thread.
    static REPRIEVE: Cell<GracePeriod> = const { Cell::new(GracePeriod::Over) };
    static DOOM: Cell<KillReason> = const { Cell::new(KillReason::Budget) };
    /// The hook is set.
    static IS_HOOKED: Cell<bool> = const { Cell::new(false) };
}

/// Most CPU time of a reprieve.
const REPRIEVE_NS: u64 = 5_000_000;
/// Most instructions of it, which take a few milliseconds.
const REPRIEVE_INSTRUCTIONS: u32 = 200_000;
/// Instructions for which the clock is read each time, since each may be a long call; later it is read from time to time.
const WATCHED_CLOSELY: u32 = 64;

/// Whether an instruction is one too many.
fn is_over() -> bool {
    let (next, is_over) = match REPRIEVE.get() {
        GracePeriod::Over => return true,
        GracePeriod::Asked => {
            let since_ns = super::system::own_cpu_ns();
            let next = GracePeriod::Runs {
                since_ns,
                instructions: 0,
            };
            (next, false)
        }
        GracePeriod::Runs {
            since_ns,
            instructions,
        } => {
            let instructions = instructions + 1;
            let looks = instructions < WATCHED_CLOSELY || instructions % WATCHED_CLOSELY == 0;
            let is_late = looks && super::system::own_cpu_ns() - since_ns >= REPRIEVE_NS;
            let next = GracePeriod::Runs {
                since_ns,
                instructions,
            };
            (next, is_late || instructions >= REPRIEVE_INSTRUCTIONS)
        }
    };
    REPRIEVE.set(if is_over { GracePeriod::Over } else { next });
    is_over
}

/// Returns whether the run that is under way on this thread is to end. Long operations in Rust ask it now and then and
/// give up; Lua ends the run at its next instruction.
#[inline]
pub(crate) fn is_run_over() -> bool {
    IS_HOOKED.get()
}

/// Returns whether the hook was set, and takes it for gone.
#[inline]
pub(super) fn unhook() -> bool {
    IS_HOOKED.replace(false)
}

/// Why it is.
pub(crate) fn kill_reason() -> &'static CStr {
    match DOOM.get() {
        KillReason::Budget => OVER_BUDGET,
        KillReason::Memory => OVER_MEMORY,
        KillReason::Process => SHORT_OF_MEMORY,
    }
}

const OVER_BUDGET: &CStr = c"it ran too long without waiting and was stopped: see cpu_budget";

const OVER_MEMORY: &CStr = c"not enough memory: the application is over its limit";

const SHORT_OF_MEMORY: &CStr = c"not enough memory: the server is over its memory_limit";

/// Once it raises an error it does so at every instruction, so that no `pcall` keeps the run alive.
unsafe extern "C-unwind" fn end_run(state: *mut lua_State, _: *mut ffi::lua_Debug) {
    if matches!(REPRIEVE.get(), GracePeriod::Asked) {
        // The reprieve is the run's: the collector goes on when that is over.
        // SAFETY: sets the collector's threshold.
        unsafe { ffi::lua_gc(state, ffi::LUA_GCSTOP, 0) };
    }
    if !is_over() {
        return;
    }
    // SAFETY: called by Lua, so an error is caught by it; no Rust value lives in this frame.
    unsafe {
        ffi::luaL_where(state, 0);
        ffi::lua_pushstring(state, kill_reason().as_ptr());
        ffi::lua_concat(state, 2);
        ffi::lua_error(state)
    }
}
