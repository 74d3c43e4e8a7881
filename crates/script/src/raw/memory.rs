//! The memory of a VM: Lua's allocator, with a limit.
//!
//! While a script runs, each allocation is checked against the VM's limit, and periodically against the process's
//! remaining memory. A run that exceeds the limit or the remaining memory is [killed](super::kill::kill_run): it ends
//! at its next instruction, even if it catches errors. Until then small blocks are granted, since LuaJIT and `mlua`
//! can't handle a refusal everywhere. A large block is refused at once with Lua's own error, so one concatenation can't
//! take all memory of the machine. A VM that nevertheless grows far beyond the limit is [broken](VmMemory::is_broken),
//! and its owner replaces it.
//!
//! While no script runs, no allocation is refused, so pushing a message can't fail.

use std::alloc::{self, Layout};
use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;
use std::rc::Rc;

use mlua::Lua;
use mlua::ffi::{self, lua_State};

use super::kill::{KillReason, kill_run};

/// The minimum size of a block that can be refused, in bytes. Smaller blocks are never refused: stacks are among them,
/// and blocks that are allocated where Lua can't raise an error. For functions that LuaJIT implements in assembler,
/// `lua/libraries.lua` checks for [room](VmMemory::has_room_for) before a larger result.
const LARGE_BYTES: usize = 1 << 20;
/// The maximum size of LuaJIT's string table in bytes. The table may grow within any function of LuaJIT, so a new block
/// is always granted if its size is a power of two and at most this number.
const STRING_TABLE_BYTES_MAX: usize = 16 << 20;
/// The maximum by which a run may exceed the VM's limit, in bytes; also limited to a quarter of the VM's limit. The excess is
/// allowed because a run may be about to free memory.
const EXCESS_BYTES_MAX: usize = 8 << 20;
/// A VM counts as broken when its memory is more than this number of bytes above the limit at which its runs are ended.
const CEILING_BYTES: usize = 8 << 20;
/// The growth of a VM in bytes after which the process's memory is checked again.
const STEP_BYTES: usize = 1 << 20;
/// The number of bytes by which a VM may grow in total while the process is short of memory. It is
/// not 0, since handling a message takes memory before the garbage is collected.
const SHORT_BYTES: usize = 4 << 20;

/// The alignment that `mlua` uses for Lua's blocks.
const ALIGNMENT: usize = ffi::SYS_MIN_ALIGN;

/// Returns whether the process is short of memory.
pub(crate) type IsShort = Rc<dyn Fn() -> bool>;

/// The memory accounting of one VM.
pub(crate) struct VmMemory {
    main: *mut lua_State,
    used_bytes: Cell<usize>,
    /// The memory in use above which an allocation is checked; `usize::MAX` while no script runs.
    looks_above: Cell<usize>,
    /// The value of `looks_above` for the next run.
    looks_next: Cell<usize>,
    /// The memory limit of the VM, in bytes.
    bytes_max: usize,
    /// The memory of the VM in bytes above which a run is ended.
    run_bytes_max: usize,
    /// The VM's memory limit in bytes while the process is short of memory.
    short_bytes_max: Cell<usize>,
    is_short: IsShort,
    has_refused: Cell<bool>,
    is_broken: Cell<bool>,
    /// `mlua`'s allocator, which is restored before the VM is closed.
    before: (ffi::lua_Alloc, *mut c_void),
}

impl VmMemory {
    /// Installs the allocator in a VM until it is [removed](Self::leave).
    pub(super) fn of(
        lua: &Lua,
        main: *mut lua_State,
        bytes_max: usize,
        is_short: IsShort,
    ) -> mlua::Result<Rc<Self>> {
        let used_bytes = lua.used_memory();
        // This limit is never reached. It is set because `mlua` protects its own allocations only
        // if there is a limit.
        lua.set_memory_limit(isize::MAX as usize)?;
        let mut data = ptr::null_mut();
        // SAFETY: only reads two pointers of the VM.
        let function = unsafe { ffi::lua_getallocf(main, &raw mut data) };
        let run_bytes_max = bytes_max + (bytes_max / 4).min(EXCESS_BYTES_MAX);
        let memory = Rc::new(Self {
            main,
            used_bytes: Cell::new(used_bytes),
            looks_above: Cell::new(usize::MAX),
            looks_next: Cell::new(0),
            bytes_max,
            run_bytes_max,
            short_bytes_max: Cell::new(usize::MAX),
            is_short,
            has_refused: Cell::new(false),
            is_broken: Cell::new(false),
            before: (function, data),
        });
        let address = Rc::as_ptr(&memory).cast_mut().cast();
        // SAFETY: both `allocate` and `mlua`'s allocator use Rust's global allocator, so each can
        // free blocks of the other; the owner calls `leave` before it drops this value.
        unsafe { ffi::lua_setallocf(main, allocate, address) };
        Ok(memory)
    }

    /// Restores the VM's original allocator.
    pub(super) fn leave(&self) {
        let (function, data) = self.before;
        // SAFETY: `before` has the VM's original allocator and its data. That allocator can free blocks of this one,
        // since both use Rust's global allocator.
        unsafe { ffi::lua_setallocf(self.main, function, data) };
    }

    /// Returns the VM's memory in bytes.
    pub(super) fn used_bytes(&self) -> usize {
        self.used_bytes.get()
    }

    /// Returns the VM's current memory limit in bytes.
    pub(super) fn bytes_max(&self) -> usize {
        self.bytes_max.min(self.short_bytes_max.get())
    }

    /// Returns whether the VM has reached its memory limit.
    pub(crate) fn is_full(&self) -> bool {
        self.used_bytes() >= self.bytes_max()
    }

    /// Returns whether the process was short of memory at the last check. The VM may then grow by at most [`SHORT_BYTES`].
    pub(super) fn is_short(&self) -> bool {
        self.short_bytes_max.get() != usize::MAX
    }

    /// Checks whether a memory shortage of the process is over.
    pub(super) fn look_again(&self) {
        if self.is_short() {
            self.look();
        }
    }

    /// Starts checking allocations for a run.
    #[inline]
    pub(super) fn begin_run(&self) {
        self.looks_above.set(self.looks_next.get());
    }

    /// Stops checking allocations when a run ends.
    #[inline]
    pub(super) fn end_run(&self) {
        let next = self.used_bytes.get() + STEP_BYTES;
        let next = next.min(self.looks_above.replace(usize::MAX));
        self.looks_next.set(next);
    }

    /// Returns whether a large block was refused since the last call.
    pub(super) fn take_refused(&self) -> bool {
        self.has_refused.replace(false)
    }

    /// Returns whether the VM exceeds its limit by so much that it has to be replaced.
    pub(super) fn is_broken(&self) -> bool {
        self.is_broken.get()
    }

    /// Returns whether the current run could allocate that many bytes.
    pub(crate) fn has_room_for(&self, bytes: usize) -> bool {
        let after = self.used_bytes.get().saturating_add(bytes);
        if after > self.looks_above.get() {
            self.look();
            if after > self.limit() {
                return false;
            }
            // The limit was just checked, so memory is next checked when usage exceeds `after`.
            self.looks_above.set(after);
        }
        true
    }

    /// Returns the memory beyond which the current run is ended.
    fn limit(&self) -> usize {
        self.run_bytes_max.min(self.short_bytes_max.get())
    }

    fn look(&self) {
        let short_bytes_max = match (self.is_short)() {
            true => self
                .short_bytes_max
                .get()
                .min(self.used_bytes.get() + SHORT_BYTES),
            false => usize::MAX,
        };
        self.short_bytes_max.set(short_bytes_max);
    }

    /// Returns whether a block of `bytes` bytes is granted. `needs` is the number of bytes that the VM would then use; it
    /// includes the old block if a growing block may be copied. `is_new` means that no existing block is resized.
    #[cold]
    fn admits(&self, needs: usize, bytes: usize, is_new: bool) -> bool {
        self.look();
        let limit = self.limit();
        if needs <= limit {
            let step = self.used_bytes.get().saturating_add(STEP_BYTES);
            self.looks_above.set(needs.max(step).min(limit));
            return true;
        }
        let why = match needs <= self.run_bytes_max {
            true => KillReason::Process,
            false => KillReason::Memory,
        };
        kill_run(self.main, why);
        let is_string_table = is_new && bytes.is_power_of_two() && bytes <= STRING_TABLE_BYTES_MAX;
        if bytes >= LARGE_BYTES && !is_string_table {
            self.has_refused.set(true);
            return false;
        }
        if needs > self.run_bytes_max + CEILING_BYTES {
            self.is_broken.set(true);
        }
        true
    }
}

/// Lua's allocator (`lua_Alloc`).
///
/// # Safety
/// `block` is null or a block that this function has returned to Lua, and `old_bytes` is its size. `memory` is the
/// address that was given when the allocator was installed.
unsafe extern "C" fn allocate(
    memory: *mut c_void,
    block: *mut c_void,
    old_bytes: usize,
    bytes: usize,
) -> *mut c_void {
    // SAFETY: see `VmMemory::of`. `old_bytes` is the size of an existing block, and `from_size_align` checks `bytes`.
    unsafe {
        let memory = &*memory.cast::<VmMemory>().cast_const();
        let used_bytes = memory.used_bytes.get();
        if bytes == 0 {
            if !block.is_null() {
                let layout = Layout::from_size_align_unchecked(old_bytes, ALIGNMENT);
                alloc::dealloc(block.cast(), layout);
                memory.used_bytes.set(used_bytes - old_bytes);
            }
            return ptr::null_mut();
        }
        let Ok(layout) = Layout::from_size_align(bytes, ALIGNMENT) else {
            return ptr::null_mut();
        };
        if block.is_null() {
            let after = used_bytes + bytes;
            if after > memory.looks_above.get() && !memory.admits(after, bytes, true) {
                return ptr::null_mut();
            }
            memory.used_bytes.set(after);
            let block = alloc::alloc(layout);
            if block.is_null() {
                alloc::handle_alloc_error(layout);
            }
            return block.cast();
        }
        if bytes > old_bytes {
            let needs = match bytes >= LARGE_BYTES {
                true => used_bytes + bytes,
                false => used_bytes + bytes - old_bytes,
            };
            if needs > memory.looks_above.get() && !memory.admits(needs, bytes, false) {
                return ptr::null_mut();
            }
        }
        memory.used_bytes.set(used_bytes - old_bytes + bytes);
        let old = Layout::from_size_align_unchecked(old_bytes, ALIGNMENT);
        let block = alloc::realloc(block.cast(), old, bytes);
        if block.is_null() {
            alloc::handle_alloc_error(layout);
        }
        block.cast()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    /// Returns a VM of 8 MiB, and the flag that simulates a memory shortage of the process.
    fn vm() -> (Lua, Rc<VmMemory>, Rc<Cell<bool>>) {
        let lua = Lua::new();
        let mut main = ptr::null_mut();
        // SAFETY: the closure neither leaves values behind nor raises an error.
        unsafe { lua.exec_raw::<()>((), |state| main = state) }.expect("a state");
        let is_short = Rc::new(Cell::new(false));
        let own = Rc::clone(&is_short);
        let memory = VmMemory::of(&lua, main, 8 * MIB, Rc::new(move || own.get())).expect("memory");
        (lua, memory, is_short)
    }

    /// Stores `count` strings of 1,000 bytes in the table `kept`.
    fn keep(lua: &Lua, kept: &mlua::Table, count: usize) {
        for _ in 0..count {
            let place = kept.raw_len() + 1;
            let text = format!("{place:01000}");
            kept.raw_set(place, lua.create_string(text).expect("a string"))
                .expect("small blocks are granted");
        }
    }

    #[test]
    fn small_blocks_are_granted_until_the_vm_is_broken_and_large_ones_refused() {
        let (lua, memory, _) = vm();
        let kept = lua.create_table().expect("a table");
        memory.begin_run();
        keep(&lua, &kept, 9 << 10);
        assert!(memory.is_full() && !memory.is_broken());
        let large = vec![b'x'; 2 * MIB];
        let refused = lua.create_string(&large).expect_err("no room");
        assert!(
            refused.to_string().contains("not enough memory"),
            "{refused}"
        );
        assert!(memory.take_refused() && !memory.take_refused());
        assert!(!memory.has_room_for(2 * MIB) && memory.has_room_for(1));
        keep(&lua, &kept, 10 << 10);
        assert!(memory.is_broken());
        memory.end_run();
        // While no script runs, no allocation is refused.
        lua.create_string(&large).expect("granted");
        drop(kept);
        lua.gc_collect().expect("no finalizer fails");
        lua.gc_collect().expect("no finalizer fails");
        assert!(memory.used_bytes() < MIB, "{}", memory.used_bytes());
        memory.leave();
    }

    #[test]
    fn a_vm_does_not_grow_while_the_process_is_short() {
        let (lua, memory, is_short) = vm();
        let kept = lua.create_table().expect("a table");
        memory.begin_run();
        keep(&lua, &kept, 2 << 10);
        memory.end_run();
        is_short.set(true);
        memory.begin_run();
        assert!(memory.has_room_for(MIB / 2) && !memory.has_room_for(5 * MIB));
        assert!(memory.is_short() && memory.bytes_max() < 7 * MIB);
        assert!(lua.create_string(vec![b'x'; 5 * MIB]).is_err());
        memory.end_run();
        is_short.set(false);
        memory.look_again();
        assert!(!memory.is_short());
        memory.begin_run();
        lua.create_string(vec![b'x'; 5 * MIB]).expect("granted");
        memory.end_run();
        memory.leave();
    }
}
