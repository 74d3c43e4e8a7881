//! Schedules garbage collection near the memory limit: complete cycles of the collector, in slices.
//!
//! By default Lua starts a cycle when memory has doubled, which is too late near the limit. Here a cycle starts in
//! time, and each turn continues it by a bounded amount of work, so that no call waits for a whole cycle.

use std::ffi::c_int;

use mlua::ffi::{self, lua_State};

use super::memory::VmMemory;

/// The work of one step of the collector, in kibibytes of simulated allocation.
const STEP_KIB: c_int = 16;
/// The maximum number of steps in a turn, which together process about two megabytes.
const STEPS_MAX: usize = 16;

/// The collector's speed relative to allocation during a collection, in percent: twice the default, so that a run can't
/// outpace it.
const SPEED: c_int = 400;
/// The default speed of Lua's collector.
const SPEED_USUAL: c_int = 200;

/// The delay before the next collection, in milliseconds, if the memory in use after a collection
/// is at least the VM's limit.
const USELESS_MS: u64 = 1000;

/// Schedules collections in addition to Lua's own.
pub(super) struct GcSchedule {
    memory_bytes_max: usize,
    /// The amount of memory in use at which the next collection starts, in bytes.
    due_bytes: usize,
    /// The cycles left in the current collection.
    cycles: u8,
    /// The memory in use when the current collection started.
    began_bytes: usize,
    /// The earliest time of another collection after one that freed too little, in monotonic milliseconds.
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

    /// Returns the amount of memory in use at which a collection should start, in bytes;
    /// `usize::MAX` while one is running.
    pub(super) fn due_bytes(&self) -> usize {
        match self.cycles {
            0 => self.due_bytes,
            _ => usize::MAX,
        }
    }

    /// Returns whether a collection is worthwhile: the last collection freed enough memory, or was long ago.
    pub(super) fn is_of_use(&self, now_ms: u64) -> bool {
        now_ms >= self.again_ms
    }

    /// Returns whether more memory may be used although the limit is reached: a collection is running, and the memory
    /// in use has grown by less than half of the VM's limit since the collection started.
    pub(super) fn has_room(&self, used_bytes: usize) -> bool {
        self.is_under_way() && used_bytes < self.began_bytes + self.memory_bytes_max / 2
    }

    /// Starts a collection unless one is running. `used_bytes` of `bytes_max` are in use.
    pub(super) fn begin(&mut self, main: *mut lua_State, used_bytes: usize, bytes_max: usize) {
        if self.is_under_way() {
            return;
        }
        self.began_bytes = used_bytes;
        // At the limit a second cycle is run, because the first one may have been started earlier
        // by Lua and misses later garbage.
        self.cycles = if used_bytes >= bytes_max { 2 } else { 1 };
        // SAFETY: the call only sets a parameter of the VM.
        unsafe { ffi::lua_gc(main, ffi::LUA_GCSETSTEPMUL, SPEED) };
    }

    /// Makes the current collection run two cycles, so that it also finds garbage made since it started.
    pub(super) fn look_twice(&mut self) {
        self.cycles = 2;
    }

    /// Continues the current collection.
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
            // SAFETY: no script runs; collecting an object runs at most its Rust destructor.
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
        // SAFETY: the call only sets a parameter of the VM.
        unsafe { ffi::lua_gc(main, ffi::LUA_GCSETSTEPMUL, SPEED_USUAL) };
        let (used_bytes, max) = (memory.used_bytes(), memory.bytes_max());
        let left = max.saturating_sub(used_bytes);
        // The next collection is due only after some growth, since the memory in use now will not become garbage soon.
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
