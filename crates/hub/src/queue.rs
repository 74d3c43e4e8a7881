//! Publications of a channel queued for a sweep.

use std::collections::VecDeque;

use crate::{Encodings, Payload, Publication, WorkerId};

/// A queued publication with its receivers.
#[derive(Debug)]
pub(crate) struct QueuedPublication {
    pub(crate) publication: Publication,
    /// The preceding payload, if a delta is wanted; usually shared with the preceding queue entry.
    pub(crate) previous: Option<Payload>,
    /// The encodings made by front ends so far.
    pub(crate) encodings: Encodings,
    /// The publication goes to subscribers at indices below this one: those present when it was queued. Later
    /// subscribers are appended, so the value never decreases along the queue.
    pub(crate) subscribers_below: u32,
    /// The number of these subscribers.
    pub(crate) receivers: u32,
    /// Whether slow receivers lose the publication.
    pub(crate) drop_when_slow: bool,
    /// The worker to which the credit is returned afterwards.
    pub(crate) from: Option<WorkerId>,
}

/// The queued publications of a channel, oldest first, and the progress of the sweep over the batch at the front.
#[derive(Debug, Default)]
pub(crate) struct SweepQueue {
    pub(crate) waiting: VecDeque<QueuedPublication>,
    /// Subscribers that left since the queue was started or last compacted.
    pub(crate) tombstones: usize,
    /// The number of publications that the current sweep covers; 0 between sweeps.
    pub(crate) batch: usize,
    /// Index of the current subscriber.
    pub(crate) cursor: u32,
    /// Index in the batch of that subscriber's next publication.
    pub(crate) next: usize,
}

impl SweepQueue {
    /// Starts a sweep over all queued publications.
    pub(crate) fn begin(&mut self) {
        self.batch = self.waiting.len();
        self.cursor = 0;
        self.next = 0;
    }

    /// Adjusts the subscriber indices for a list whose tombstones are about to be removed. Called between sweeps.
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
