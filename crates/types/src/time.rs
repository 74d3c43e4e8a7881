//! The time that is passed to code as an argument, so that this code reads no clock itself.

/// The time of a turn, read once at its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Milliseconds of a monotonic clock with an arbitrary origin.
    pub mono_ms: u64,
    /// Milliseconds since 1970-01-01 00:00 UTC.
    pub wall_ms: u64,
}
