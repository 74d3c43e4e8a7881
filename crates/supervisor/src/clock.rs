//! The monotonic clock of the supervisor and of the server process's control thread.

use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};

/// Reads the clock of the control side: of supervisors and control threads, never of workers.
#[expect(
    clippy::disallowed_methods,
    reason = "supervisor and control thread are the control side"
)]
pub fn now() -> Instant {
    Instant::now()
}

/// Milliseconds of the clock that [`now`] reads, which is the same in all processes of a machine.
pub fn monotonic_ms() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // Never negative.
    now.tv_sec.unsigned_abs() * 1000 + now.tv_nsec.unsigned_abs() / 1_000_000
}
