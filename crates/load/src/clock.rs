//! The monotonic clock in nanoseconds, the same in all processes of the machine.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds in a second.
pub(crate) const SECOND: u64 = 1_000_000_000;
/// Nanoseconds in a millisecond.
pub(crate) const MILLISECOND: u64 = 1_000_000;

/// Returns the current time.
#[inline]
pub(crate) fn now_ns() -> u64 {
    nanoseconds(ClockId::Monotonic)
}

/// Returns the CPU time of the calling thread.
pub(crate) fn thread_cpu_ns() -> u64 {
    nanoseconds(ClockId::ThreadCPUTime)
}

fn nanoseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec.unsigned_abs() * SECOND + time.tv_nsec.unsigned_abs()
}
