//! The small numbers by which workers, sessions and requests are known.

/// A worker of this process, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(pub u16);

/// A session of one worker: meaningless on another one.
///
/// Whoever hands them out reuses an `index` only with a greater (wrapping) `generation`, so an id
/// that outlived its session can only fail cleanly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId {
    /// Place in the worker's table of sessions. The hub's own table grows to the greatest one seen.
    pub index: u32,
    /// Which of the sessions that had this place.
    pub generation: u32,
}

/// Names a request of a session; the hub gives it back with the [`Answer`](crate::Answer) and
/// does not look at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u32);
