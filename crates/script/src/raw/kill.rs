//! Ends a run that is over its budget: a hook raises an error at every instruction.

use std::cell::Cell;
use std::ffi::CStr;

use mlua::ffi::{self, lua_State};

/// The reason why a run is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KillReason {
    Budget,
    /// The VM exceeded its memory limit.
    Memory,
    /// The VM grew while the process is short of memory.
    Process,
}

/// Makes Lua call, at every instruction, the hook that ends the run. May be called from the signal
/// handler and from within an allocation.
pub(crate) fn kill_run(state: *mut lua_State, why: KillReason) {
    // A run that exceeds its memory limit loses the grace period that it got for exceeding its CPU budget.
    if IS_HOOKED.replace(true) && (DOOM.get() == why || why == KillReason::Budget) {
        return;
    }
    DOOM.set(why);
    REPRIEVE.set(match why {
        KillReason::Budget => GracePeriod::Asked,
        KillReason::Memory | KillReason::Process => GracePeriod::Over,
    });
    // SAFETY: LuaJIT allows this call in a signal handler, as its own interpreter does; `state`
    // runs on this thread.
    unsafe { ffi::lua_sethook(state, Some(end_run), ffi::LUA_MASKCOUNT, 1) };
}

/// The grace period of a run that has exceeded its CPU budget. The garbage collector's work is charged to the current
/// run, so the run may not be at fault.
#[derive(Clone, Copy)]
enum GracePeriod {
    /// The grace period starts at the next instruction.
    Asked,
    /// The time at which the grace period started, and the instructions executed since then.
    Runs { since_ns: u64, instructions: u32 },
    /// The grace period has ended, or there is none.
    Over,
}

thread_local! {
    /// The grace period of the run on this thread.
    static REPRIEVE: Cell<GracePeriod> = const { Cell::new(GracePeriod::Over) };
    static DOOM: Cell<KillReason> = const { Cell::new(KillReason::Budget) };
    /// Whether [`end_run`] is set as Lua's hook on this thread.
    static IS_HOOKED: Cell<bool> = const { Cell::new(false) };
}

/// The longest grace period in CPU time, in nanoseconds.
const REPRIEVE_NS: u64 = 5_000_000;
/// The maximum number of instructions in a grace period, which take a few milliseconds.
const REPRIEVE_INSTRUCTIONS: u32 = 200_000;
/// At the beginning of a grace period, the clock is read after each instruction, for this number of
/// instructions, since an instruction may be a long call. Later the clock is read once per this number
/// of instructions.
const WATCHED_CLOSELY: u32 = 64;

/// Returns whether the grace period is over.
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
            let is_check_due =
                instructions < WATCHED_CLOSELY || instructions % WATCHED_CLOSELY == 0;
            let is_late = is_check_due && super::system::own_cpu_ns() - since_ns >= REPRIEVE_NS;
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

/// Returns whether the current run on this thread has to end. Long operations in Rust check it periodically and stop;
/// Lua ends the run at its next instruction.
#[inline]
pub(crate) fn is_run_over() -> bool {
    IS_HOOKED.get()
}

/// Marks the hook that ends the run as removed; returns whether it was set.
#[inline]
pub(super) fn unhook() -> bool {
    IS_HOOKED.replace(false)
}

/// Returns the error text for the reason why the run is ended.
pub(crate) fn kill_reason() -> &'static CStr {
    match DOOM.get() {
        KillReason::Budget => OVER_BUDGET,
        KillReason::Memory => OVER_MEMORY,
        KillReason::Process => SHORT_OF_MEMORY,
    }
}

const OVER_BUDGET: &CStr = c"the code ran too long without waiting and was stopped: see cpu_budget";

const OVER_MEMORY: &CStr = c"not enough memory: the application is over its limit";

const SHORT_OF_MEMORY: &CStr = c"not enough memory: the server is over its memory_limit";

/// The Lua hook that ends a run. After its first error, it raises an error at every instruction, so that no `pcall`
/// keeps the run alive.
unsafe extern "C-unwind" fn end_run(state: *mut lua_State, _: *mut ffi::lua_Debug) {
    if matches!(REPRIEVE.get(), GracePeriod::Asked) {
        // The collector is stopped so that the grace period is spent on the run; it is restarted
        // when the run ends. SAFETY: only sets the collector's threshold.
        unsafe { ffi::lua_gc(state, ffi::LUA_GCSTOP, 0) };
    }
    if !is_over() {
        return;
    }
    // SAFETY: called by Lua, which catches the error; no Rust value lives in this frame.
    unsafe {
        ffi::luaL_where(state, 0);
        ffi::lua_pushstring(state, kill_reason().as_ptr());
        ffi::lua_concat(state, 2);
        ffi::lua_error(state)
    }
}
