//! Small integers that identify workers, connections and applications.

use std::fmt;

/// A worker of this process, numbered from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(pub u16);

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A connection of one worker: its transport, its session and its slot in every table of the worker. Meaningless on
/// another worker.
///
/// An `index` is reused only after the transport has closed, and then with another `generation`, so the id of a closed
/// connection matches nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId {
    /// Index of a slot in the worker's tables. Slots are reused, so indexes are small and dense.
    pub index: u32,
    /// Distinguishes the connections that have used the slot; incremented (wrapping) on reuse.
    pub generation: u32,
}

/// An application. Open sessions keep their application across a reload, so an id means the same application for the
/// lifetime of the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AppId(pub u16);
