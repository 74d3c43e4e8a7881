//! Wall-clock time, derived from the driver's monotonic time. The system clock is read once a
//! second.

use veche_frontends::Now;

/// Wall time as an offset from the driver's time.
#[derive(Default)]
pub(super) struct WallClock {
    wall_minus_mono_ms: u64,
    checked_mono_ms: u64,
    /// True if a test has set the offset, which is then never updated.
    is_fixed: bool,
}

impl WallClock {
    /// Creates a clock that shows `wall_ms` when the driver's time is `mono_ms`.
    pub(super) fn fixed(mono_ms: u64, wall_ms: u64) -> Self {
        Self {
            wall_minus_mono_ms: wall_ms.wrapping_sub(mono_ms),
            is_fixed: true,
            ..Self::default()
        }
    }

    /// Returns monotonic and wall-clock time; reads the system clock at most once a second.
    pub(super) fn at(&mut self, mono_ms: u64) -> Now {
        let is_due = mono_ms >= self.checked_mono_ms + 1000 || self.checked_mono_ms == 0;
        if is_due && !self.is_fixed {
            self.checked_mono_ms = mono_ms.max(1);
            self.wall_minus_mono_ms = wall_now_ms().wrapping_sub(mono_ms);
        }
        let wall_ms = mono_ms.wrapping_add(self.wall_minus_mono_ms);
        Now { mono_ms, wall_ms }
    }
}

/// Returns the current time, to measure the duration of turns.
#[expect(
    clippy::disallowed_methods,
    reason = "only the worker's loop reads the clock, and this function is part of it"
)]
pub(super) fn clock_now() -> std::time::Instant {
    std::time::Instant::now()
}

#[expect(
    clippy::disallowed_methods,
    reason = "only the worker's loop reads the clock, and this function is part of it"
)]
fn wall_now_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}
