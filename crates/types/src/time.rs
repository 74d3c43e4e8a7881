//! The current time as an argument, so that the code that uses it reads no clock.

/// The time of a turn, read once at its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Milliseconds of a monotonic clock with an arbitrary origin.
    pub mono_ms: u64,
    /// Milliseconds since 1970-01-01 00:00 UTC.
    pub wall_ms: u64,
}
