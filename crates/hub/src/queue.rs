//! What waits on a channel for its sweep.

use std::collections::VecDeque;

use crate::{Encodings, Payload, Publication, WorkerId};

/// A publication and who gets it.
#[derive(Debug)]
pub(crate) struct QueuedPublication {
    pub(crate) publication: Publication,
    /// What was published before, if it goes out together with that. Mostly shared with what waits in front of it.
    pub(crate) previous: Option<Payload>,
    /// What front ends made of it so far.
    pub(crate) encodings: Encodings,
    /// It goes to the subscribers at places below this one: those who were there when it came.
    /// Later ones are appended behind, so audiences never shrink along the queue.
    pub(crate) subscribers_below: u32,
    /// How many they were.
    pub(crate) receivers: u32,
    /// Whoever reads too slowly misses it.
    pub(crate) drop_when_slow: bool,
    /// Whose credit goes back when it is done.
    pub(crate) from: Option<WorkerId>,
}

/// The publications of a channel that wait, oldest first, and how far the sweep over the batch at
/// their front has come.
#[derive(Debug, Default)]
pub(crate) struct SweepQueue {
    pub(crate) waiting: VecDeque<QueuedPublication>,
    /// Subscribers that left since the queue was begun or last compacted.
    pub(crate) tombstones: usize,
    /// How many of `waiting` the current sweep takes along; 0 between sweeps.
    pub(crate) batch: usize,
    /// Place of the subscriber whose turn it is.
    pub(crate) cursor: u32,
    /// Which publication of the batch that subscriber gets next.
    pub(crate) next: usize,
}

impl SweepQueue {
    /// Begins a sweep over all that wait.
    pub(crate) fn begin(&mut self) {
        self.batch = self.waiting.len();
        self.cursor = 0;
        self.next = 0;
    }

    /// Corrects the audiences for a list whose tombstones are about to be taken out. Called
    /// between sweeps.
    pub(crate) fn compact(&mut self, list: &mut crate::small_list::SmallList<u32>) {
        let mut place = 0;
        let mut gone = 0;
        for queued in &mut self.waiting {
            for slot in &list.as_slice()[place..queued.subscribers_below as usize] {
                gone += u32::from(*slot == crate::subscription::NONE);
            }
            place = queued.subscribers_below as usize;
            queued.subscribers_below -= gone;
        }
        list.retain(|slot| *slot != crate::subscription::NONE);
        self.tombstones = 0;
    }
}
