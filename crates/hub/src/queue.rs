//! The queue of a channel's publications that wait for a sweep.

use std::collections::VecDeque;

use crate::{Encodings, Payload, Publication, WorkerId};

/// A queued publication with its receivers.
#[derive(Debug)]
pub(crate) struct QueuedPublication {
    pub(crate) publication: Publication,
    /// The payload of the preceding publication, if it is needed for a delta. It usually shares memory with the
    /// preceding entry of the queue.
    pub(crate) previous: Option<Payload>,
    /// The encodings of the publication that front ends have made so far.
    pub(crate) encodings: Encodings,
    /// The publication is for the subscribers at indices below this one: those present when it was
    /// queued. Later subscribers are appended to the list, so this value never decreases along the
    /// queue.
    pub(crate) subscribers_below: u32,
    /// The number of subscribers that get the publication.
    pub(crate) receivers: u32,
    /// Whether the publication is dropped for slow receivers.
    pub(crate) drop_when_slow: bool,
    /// The worker to which the credit is returned after the sweep; `None` if there is no credit to return.
    pub(crate) from: Option<WorkerId>,
}

/// The queued publications of a channel, oldest first, and the progress of the sweep over the first `batch` of them.
#[derive(Debug, Default)]
pub(crate) struct SweepQueue {
    pub(crate) waiting: VecDeque<QueuedPublication>,
    /// The number of subscribers that have left since the queue was started or last compacted.
    pub(crate) tombstones: usize,
    /// The number of publications that the current sweep covers; 0 if no sweep is in progress.
    pub(crate) batch: usize,
    /// The index of the subscriber to which the sweep delivers next.
    pub(crate) cursor: u32,
    /// The index in the batch of the publication that the subscriber at `cursor` gets next.
    pub(crate) next: usize,
}

impl SweepQueue {
    /// Starts a sweep over all queued publications.
    pub(crate) fn begin(&mut self) {
        self.batch = self.waiting.len();
        self.cursor = 0;
        self.next = 0;
    }

    /// Removes from `list` the subscribers that have left, and adjusts the indices in the queue.
    /// Called between sweeps.
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
