//! Collections near the limit of memory: whole cycles of the collector, in slices.
//!
//! By itself Lua begins a cycle when memory has grown by as much as is in use, which near the limit is too late. Here
//! one begins in time, and each turn continues it by a bounded amount of work, so that no call waits for a whole one.

use std::ffi::c_int;

use mlua::ffi::{self, lua_State};

use super::memory::VmMemory;

/// What one step is given to do: kilobytes that the collector acts as if they had been allocated.
const STEP_KIB: c_int = 16;
/// Steps in a turn at most: together they look at about two megabytes.
const STEPS_MAX: usize = 16;

/// How fast the collector works beside what is allocated, in percent, while a collection is under way: twice as fast as
/// otherwise, so that a run can't outpace it.
const SPEED: c_int = 400;
/// Lua's own default.
const SPEED_USUAL: c_int = 200;

/// A collection that has left the memory over its limit is not repeated before so many milliseconds.
const USELESS_MS: u64 = 1000;

/// When the collector works beyond its usual pace.
pub(super) struct GcSchedule {
    memory_bytes_max: usize,
    /// Memory beyond which the next one begins.
    due_bytes: usize,
    /// Cycles until the one that is under way is over.
    cycles: u8,
    /// Memory in use when it began.
    began_bytes: usize,
    /// The last one was of no use; the next may be, from then on.
    again_ms: u64,
}

impl GcSchedule {
    pub(super) fn new(memory_bytes_max: usize) -> Self {
        Self {
            memory_bytes_max,
            due_bytes: memory_bytes_max / 4 * 3,
            cycles: 0,
            began_bytes: 0,
            again_ms: 0,
        }
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.cycles > 0
    }

    /// Memory beyond which one is to begin.
    pub(super) fn due_bytes(&self) -> usize {
        match self.cycles {
            0 => self.due_bytes,
            _ => usize::MAX,
        }
    }

    /// Whether the last one was long enough ago, or of use.
    pub(super) fn is_of_use(&self, now_ms: u64) -> bool {
        now_ms >= self.again_ms
    }

    /// Whether so little was taken since the one that is under way began that more may be.
    pub(super) fn has_room(&self, used_bytes: usize) -> bool {
        self.is_under_way() && used_bytes < self.began_bytes + self.memory_bytes_max / 2
    }

    /// Begins one, unless one is under way. `used_bytes` are in use, of `bytes_max`.
    pub(super) fn begin(&mut self, main: *mut lua_State, used_bytes: usize, bytes_max: usize) {
        if self.is_under_way() {
            return;
        }
        self.began_bytes = used_bytes;
        // The end of a cycle that has begun before spares what has become garbage since.
        self.cycles = if used_bytes >= bytes_max { 2 } else { 1 };
        // SAFETY: sets a number of the VM's.
        unsafe { ffi::lua_gc(main, ffi::LUA_GCSETSTEPMUL, SPEED) };
    }

    /// The one that is under way finds also what has become garbage just now.
    pub(super) fn look_twice(&mut self) {
        self.cycles = 2;
    }

    /// Goes on with the one that is under way.
    pub(super) fn go_on(
        &mut self,
        main: *mut lua_State,
        memory: &VmMemory,
        now_ms: u64,
        is_late: impl Fn() -> bool,
    ) {
        for _ in 0..STEPS_MAX {
            if self.cycles == 0 {
                return;
            }
            // SAFETY: no script runs; objects that are collected run Rust's destructors at most.
            let is_cycle_over = unsafe { ffi::lua_gc(main, ffi::LUA_GCSTEP, STEP_KIB) } == 1;
            self.cycles -= u8::from(is_cycle_over);
            if self.cycles == 0 {
                self.end(main, memory, now_ms);
            }
            if is_late() {
                return;
            }
        }
    }

    fn end(&mut self, main: *mut lua_State, memory: &VmMemory, now_ms: u64) {
        // SAFETY: sets a number of the VM's.
        unsafe { ffi::lua_gc(main, ffi::LUA_GCSETSTEPMUL, SPEED_USUAL) };
        let (used_bytes, max) = (memory.used_bytes(), memory.bytes_max());
        let left = max.saturating_sub(used_bytes);
        // What was no garbage now is none in a moment.
        let growth = match left {
            0 => max / 16,
            left => (left / 2).max(max / 32),
        };
        self.due_bytes = (used_bytes + growth).max(max / 4 * 3);
        self.again_ms = match left {
            0 => now_ms + USELESS_MS,
            _ => 0,
        };
    }
}
