//! Signals and thread clocks.

use std::cell::Cell;
use std::io;
use std::ptr;

/// Registers a handler for a signal.
pub(crate) fn on_signal(signal: i32, handler: fn()) -> io::Result<()> {
    // SAFETY: the only handler, `watch::on_signal`, is async-signal-safe.
    unsafe { signal_hook::low_level::register(signal, handler) }.map(drop)
}

/// Sends a signal to a thread of this process, if it still exists.
pub(crate) fn signal(thread: i32, signal: i32) {
    // SAFETY: the call accesses no memory. If the thread has ended, the call fails, which is
    // ignored.
    unsafe {
        libc::syscall(
            libc::SYS_tgkill,
            libc::c_long::from(std::process::id() as i32),
            libc::c_long::from(thread),
            libc::c_long::from(signal),
        );
    }
}

/// Returns the CPU time of a thread of this process in nanoseconds; 0 if the thread has ended.
pub(crate) fn cpu_ns(thread: i32) -> u64 {
    // Linux's id of the CPU clock of a thread; clock_getcpuclockid(3) computes the id for a process in the same way.
    clock_ns((!thread << 3) | 6)
}

/// Returns the CPU time of the calling thread in nanoseconds.
pub(super) fn own_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is valid for the call; with an unknown clock the call fails.
    let result = unsafe { libc::clock_gettime(clock, &raw mut time) };
    match result {
        0 => time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64,
        _ => 0,
    }
}

/// Reads through a pointer, unless it is null.
pub(crate) fn peek<T, R>(pointer: *const T, read: impl FnOnce(&T) -> R) -> Option<R> {
    // SAFETY: the only caller, `watch::on_signal`, passes a pointer to an entry of the watchdog's list. Entries are
    // never removed.
    let value = unsafe { pointer.as_ref() }?;
    Some(read(value))
}

/// The minimum stack, in bytes, that must be left when C calls into Lua. It is enough for a few nested calls and for
/// this crate's own functions.
const STACK_BYTES_MIN: usize = 256 << 10;

/// The maximum stack, in bytes, that nested callbacks and coroutines may use. Since each level is unwound when a run is
/// ended, this also bounds the time of unwinding.
const NESTING_BYTES_MAX: usize = 128 << 10;

thread_local! {
    /// The address at which this thread's stack ends; 0 if unknown.
    static STACK_END: Cell<usize> = const { Cell::new(0) };
    /// The stack pointer when the current run started.
    static RUN_BEGAN: Cell<usize> = const { Cell::new(0) };
}

/// Records the stack pointer at the start of a run.
#[inline]
pub(crate) fn note_stack() {
    RUN_BEGAN.set(stack_pointer());
}

/// Determines where this thread's stack ends.
pub(crate) fn learn_stack() {
    let mut end = ptr::null_mut();
    let mut size = 0;
    // SAFETY: an attribute is filled for this thread, read and destroyed; the pointers are valid for the calls.
    unsafe {
        let mut attribute = std::mem::zeroed::<libc::pthread_attr_t>();
        if libc::pthread_getattr_np(libc::pthread_self(), &raw mut attribute) == 0 {
            libc::pthread_attr_getstack(&raw const attribute, &raw mut end, &raw mut size);
            libc::pthread_attr_destroy(&raw mut attribute);
        }
    }
    STACK_END.set(end as usize);
}

/// Returns whether the calling thread has enough stack left for more nested C calls.
#[inline]
pub(super) fn has_stack() -> bool {
    let here = stack_pointer();
    here.saturating_sub(STACK_END.get()) >= STACK_BYTES_MIN
        && RUN_BEGAN.get().saturating_sub(here) <= NESTING_BYTES_MAX
}

/// Returns the approximate stack pointer.
#[inline(never)]
fn stack_pointer() -> usize {
    let local = 0u8;
    std::hint::black_box(&raw const local) as usize
}
