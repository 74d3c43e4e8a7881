//! Small integers that name workers, connections and applications.

/// A worker of this process, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(pub u16);

/// A connection of one worker: its transport, its session and its place in every table of the worker. Meaningless on
/// another worker.
///
/// An `index` is reused only after the transport has closed, and with another `generation`, so the id of a closed
/// connection matches nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId {
    /// Slot in the worker's tables: small and dense.
    pub index: u32,
    /// Tells the connections apart that have used the slot; incremented (wrapping) on reuse.
    pub generation: u32,
}

/// An application. Open sessions keep theirs over a reload, so an id means the same application while the worker lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AppId(pub u16);
