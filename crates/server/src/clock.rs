//! The clock of the control side, and of threads beside the workers.

use std::time::Instant;

use veche_terminal::as_ms;

pub(crate) use veche_supervisor::clock::{monotonic_ms, now};

/// Monotonic milliseconds, from when it was made.
#[derive(Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn new() -> Self {
        Self(now())
    }

    pub(crate) fn now_ms(&self) -> u64 {
        as_ms(now().saturating_duration_since(self.0))
    }
}
