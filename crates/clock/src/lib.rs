//! The monotonic clock of all that is no worker: the supervisor, control threads, requests of the server's own.
//!
//! Workers and pure crates get the time as an argument.

#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Reads the clock of the control side: of supervisors and control threads, never of workers.
#[expect(clippy::disallowed_methods, reason = "no worker calls it")]
#[must_use]
pub fn now() -> Instant {
    Instant::now()
}

/// Milliseconds of the clock that [`now`] reads, which is the same in all processes of a machine.
#[must_use]
pub fn monotonic_ms() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // Never negative.
    now.tv_sec.unsigned_abs() * 1000 + now.tv_nsec.unsigned_abs() / 1_000_000
}

/// Monotonic milliseconds, from when it was made.
#[derive(Debug)]
pub struct Clock(Instant);

impl Clock {
    /// Begins now.
    #[must_use]
    pub fn new() -> Self {
        Self(now())
    }

    /// Returns the milliseconds since it began.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        let since: Duration = now().saturating_duration_since(self.0);
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}
