//! The monotonic clock of everything except workers: the supervisor, control threads, and the server's own requests.
//!
//! Workers and pure crates get the time as an argument.

#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Returns the current monotonic time: for supervisors and control threads, never for workers.
#[expect(
    clippy::disallowed_methods,
    reason = "this is never called on a worker's thread"
)]
#[must_use]
pub fn now() -> Instant {
    Instant::now()
}

/// Returns the milliseconds of the monotonic clock, which all processes of a machine share.
#[must_use]
pub fn monotonic_ms() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // The values are never negative.
    now.tv_sec.unsigned_abs() * 1000 + now.tv_nsec.unsigned_abs() / 1_000_000
}

/// A monotonic clock in milliseconds since its creation.
#[derive(Debug)]
pub struct Clock(Instant);

impl Clock {
    /// Creates a clock that starts at 0.
    #[must_use]
    pub fn new() -> Self {
        Self(now())
    }

    /// Returns the milliseconds since the clock's creation.
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
