//! Time as everything pure takes it: as an argument.

/// The time of a turn, taken once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Monotonic milliseconds since some start.
    pub mono_ms: u64,
    /// Milliseconds since 1970, UTC.
    pub wall_ms: u64,
}
