//! The channels known to this worker, by name: as their home, as a worker with subscribers, or both.
//!
//! One entry serves both roles, so a user connected to and homed on this worker costs one entry, and a
//! publication to that user one lookup.

use std::hash::Hasher;
use std::sync::Arc;

use foldhash::SharedSeed;
use foldhash::quality::FoldHasher;
use hashbrown::HashTable;

use crate::WorkerId;
use crate::queue::SweepQueue;
use crate::small_list::{SmallList, reserve_one};
use crate::subscription::NONE;

/// The number of subscribers on another worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RemoteSubscribers {
    pub(crate) worker: WorkerId,
    pub(crate) count: u32,
}

/// A channel in both roles.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) name: Arc<str>,
    /// Local: live subscribers by slot. A subscriber that leaves while publications are queued is replaced with
    /// [`NONE`], because queued publications refer to subscribers by index.
    pub(crate) subscribers: SmallList<u32>,
    /// Home: other workers with subscribers, never with a count of 0. Local subscribers are not included; they are in
    /// `subscribers`.
    pub(crate) remote_subscribers: SmallList<RemoteSubscribers>,
    /// Local: publications queued for a sweep; present only while there are any.
    pub(crate) queue: Option<Box<SweepQueue>>,
    /// Local: subscriptions not confirmed by the home yet. Home: stalled publications. A channel's home is either here
    /// or not, so the two never overlap.
    pub(crate) waiting: u32,
    pub(crate) home: Home,
}

/// Where a channel is ordered: on another worker, or here, where it may have a stream. Packed, because idle channels
/// dominate memory use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Home(u32);

/// Flag bit: the other bits are the worker. Without it they are the stream number plus 1, or 0 without a stream.
const REMOTE: u32 = 1 << 31;

impl Home {
    pub(crate) const LOCAL: Self = Self(0);

    pub(crate) fn remote(worker: WorkerId) -> Self {
        Self(REMOTE | u32::from(worker.0))
    }

    pub(crate) fn is_local(self) -> bool {
        self.0 & REMOTE == 0
    }

    /// Returns the home's worker unless it is this one.
    pub(crate) fn remote_worker(self) -> Option<WorkerId> {
        (!self.is_local()).then_some(WorkerId(self.0 as u16))
    }

    pub(crate) fn stream(self) -> Option<u32> {
        self.0.checked_sub(1).filter(|_| self.is_local())
    }

    /// Returns a local home with a stream.
    pub(crate) fn with_stream(stream: u32) -> Self {
        debug_assert!(stream < REMOTE - 1);
        Self(stream + 1)
    }
}

// An idle channel may cost 200 B plus its name in total; the name table takes up to 10 B of it.
const _: () = assert!(size_of::<Option<Channel>>() <= 64);

impl Channel {
    /// Returns the number of live subscribers on this worker.
    pub(crate) fn local_subscribers(&self) -> usize {
        let left = self.queue.as_ref().map_or(0, |queue| queue.tombstones);
        self.subscribers.len() - left
    }

    /// Home: returns the number of registered subscribers on all workers.
    pub(crate) fn total_subscribers(&self) -> u32 {
        let there: u32 = self
            .remote_subscribers
            .as_slice()
            .iter()
            .map(|share| share.count)
            .sum();
        self.local_subscribers() as u32 + there
    }

    /// Returns whether a client knows the position of this channel's stream, or is about to get it.
    pub(crate) fn is_used(&self) -> bool {
        self.waiting > 0 || self.total_subscribers() > 0
    }

    /// Removes the subscriber at an index. Returns the slot that moved to this index, if one did.
    pub(crate) fn remove_subscriber(&mut self, place: u32) -> Option<u32> {
        match &mut self.queue {
            Some(queue) => {
                self.subscribers.as_mut_slice()[place as usize] = NONE;
                queue.tombstones += 1;
                None
            }
            None => {
                self.subscribers.swap_remove(place as usize);
                self.subscribers.as_slice().get(place as usize).copied()
            }
        }
    }

    /// Home: counts one more subscriber on a worker.
    pub(crate) fn add_remote_subscriber(&mut self, worker: WorkerId) {
        match self
            .remote_subscribers
            .as_mut_slice()
            .iter_mut()
            .find(|share| share.worker == worker)
        {
            Some(share) => share.count += 1,
            None => {
                self.remote_subscribers
                    .push(RemoteSubscribers { worker, count: 1 });
            }
        }
    }

    /// Home: counts one subscriber less on a worker. Returns `false` if it had none, which means that the message was
    /// wrong.
    pub(crate) fn remove_remote_subscriber(&mut self, worker: WorkerId) -> bool {
        let Some(place) = self
            .remote_subscribers
            .as_slice()
            .iter()
            .position(|share| share.worker == worker)
        else {
            return false;
        };
        let share = &mut self.remote_subscribers.as_mut_slice()[place];
        share.count -= 1;
        if share.count == 0 {
            self.remote_subscribers.swap_remove(place);
        }
        true
    }

    /// Returns whether the entry is no longer needed.
    fn is_idle(&self) -> bool {
        self.subscribers.is_empty()
            && self.remote_subscribers.is_empty()
            && self.queue.is_none()
            && self.waiting == 0
            && self.home.stream().is_none()
    }
}

/// Entries by name. Indices are reused.
pub(crate) struct Channels {
    entries: Vec<Option<Channel>>,
    free: Vec<u32>,
    names: HashTable<u32>,
    seed: u64,
    shared_seed: SharedSeed,
}

impl Channels {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            entries: Vec::new(),
            free: Vec::new(),
            names: HashTable::new(),
            seed,
            shared_seed: shared(seed),
        }
    }

    /// Returns the hash that serves both the name table and the choice of the home.
    pub(crate) fn hash(&self, name: &str) -> u64 {
        hash(self.seed, &self.shared_seed, name)
    }

    pub(crate) fn find(&self, hash: u64, name: &str) -> Option<u32> {
        self.names
            .find(hash, |index| &*self[*index].name == name)
            .copied()
    }

    /// Adds a channel that [`find`](Self::find) did not find.
    pub(crate) fn insert(&mut self, hash: u64, name: Arc<str>, home: Home) -> u32 {
        let channel = Channel {
            name,
            subscribers: SmallList::None,
            remote_subscribers: SmallList::None,
            queue: None,
            waiting: 0,
            home,
        };
        let index = match self.free.pop() {
            Some(index) => {
                self.entries[index as usize] = Some(channel);
                index
            }
            None => {
                reserve_one(&mut self.entries);
                self.entries.push(Some(channel));
                self.entries.len() as u32 - 1
            }
        };
        let Self {
            entries,
            names,
            seed,
            shared_seed,
            ..
        } = self;
        names.insert_unique(hash, index, |index| {
            let channel = entries[*index as usize]
                .as_ref()
                .expect("named channels exist");
            self::hash(*seed, shared_seed, &channel.name)
        });
        index
    }

    /// Removes the entry unless it is still needed.
    pub(crate) fn release(&mut self, index: u32) {
        if !self[index].is_idle() {
            return;
        }
        let hash = self.hash(&self[index].name);
        if let Ok(entry) = self.names.find_entry(hash, |found| *found == index) {
            entry.remove();
        }
        self.entries[index as usize] = None;
        self.free.push(index);
    }

    /// Iterates over all entries in unspecified order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Channel> {
        self.entries.iter().flatten()
    }

    /// Returns the number of entries in either role.
    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }
}

impl std::ops::Index<u32> for Channels {
    type Output = Channel;

    fn index(&self, index: u32) -> &Channel {
        self.entries[index as usize]
            .as_ref()
            .expect("an index is held only while an entry waits")
    }
}

impl std::ops::IndexMut<u32> for Channels {
    fn index_mut(&mut self, index: u32) -> &mut Channel {
        self.entries[index as usize]
            .as_mut()
            .expect("an index is held only while an entry waits")
    }
}

/// Both parts must be unknown to peers: with a known multiplier some names collide whatever the seed.
pub(crate) fn shared(seed: u64) -> SharedSeed {
    SharedSeed::from_u64(seed.rotate_left(32) ^ 0x9e37_79b9_7f4a_7c15)
}

pub(crate) fn hash(seed: u64, shared_seed: &SharedSeed, name: &str) -> u64 {
    let mut hasher = FoldHasher::with_seed(seed, shared_seed);
    hasher.write(name.as_bytes());
    hasher.finish()
}
