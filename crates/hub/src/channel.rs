//! The channels known to this worker, by name: those that have their home here, those that have
//! subscribers here, or both; and the home of each name.
//!
//! One entry serves both roles, so a user whose connection and home are on this worker takes one
//! entry, and a publication to that user needs one lookup.

use std::hash::Hasher;
use std::sync::Arc;

use foldhash::SharedSeed;
use foldhash::quality::FoldHasher;
use hashbrown::HashTable;

use crate::queue::SweepQueue;
use crate::small_list::{SmallList, reserve_one};
use crate::subscription::NONE;
use crate::{ChannelName, NameError, Namespaces, WorkerId};

/// The number of subscribers of a channel on another worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RemoteSubscribers {
    pub(crate) worker: WorkerId,
    pub(crate) count: u32,
}

/// The state of a channel on a worker that is its home, has subscribers, or both.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) name: Arc<str>,
    /// On the subscriber's worker: the slots of live subscribers. If a subscriber leaves while publications are queued,
    /// its slot is replaced with [`NONE`], because queued publications refer to subscribers by index.
    pub(crate) subscribers: SmallList<u32>,
    /// At the channel's home: the other workers with subscribers; a count is never 0. Subscribers on this worker are
    /// not included: they are in `subscribers`.
    pub(crate) remote_subscribers: SmallList<RemoteSubscribers>,
    /// On the subscriber's worker: the publications queued for a sweep; `None` if there are none.
    pub(crate) queue: Option<Box<SweepQueue>>,
    /// On the subscriber's worker: the number of subscriptions that the home has not confirmed yet. At the channel's
    /// home: the number of stalled publications and of requests that wait in the engine. A channel has its home either
    /// here or elsewhere, so only one of the two applies.
    pub(crate) waiting: u32,
    pub(crate) home: Home,
}

/// The home of a channel: another worker, or this one, where the channel may have a stream. Packed into 4 bytes,
/// because idle channels dominate memory use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Home(u32);

/// If this bit is set, the other bits are the number of the home worker. Otherwise they are the stream number plus 1,
/// or 0 without a stream.
const REMOTE: u32 = 1 << 31;

impl Home {
    pub(crate) const LOCAL: Self = Self(0);

    pub(crate) fn remote(worker: WorkerId) -> Self {
        Self(REMOTE | u32::from(worker.0))
    }

    pub(crate) fn is_local(self) -> bool {
        self.0 & REMOTE == 0
    }

    /// Returns the home worker if the home is on another worker; `None` if it is on this one.
    pub(crate) fn remote_worker(self) -> Option<WorkerId> {
        (!self.is_local()).then_some(WorkerId(self.0 as u16))
    }

    pub(crate) fn stream(self) -> Option<u32> {
        self.0.checked_sub(1).filter(|_| self.is_local())
    }

    /// Creates a `Home` on this worker, for a channel with a stream.
    pub(crate) fn with_stream(stream: u32) -> Self {
        debug_assert!(stream < REMOTE - 1);
        Self(stream + 1)
    }
}

// In total, an idle channel may take 200 B in addition to its name. Up to 10 B of them are its entry in the name table.
const _: () = assert!(size_of::<Option<Channel>>() <= 64);

impl Channel {
    /// Returns the number of live subscribers on this worker.
    pub(crate) fn local_subscribers(&self) -> usize {
        let left = self.queue.as_ref().map_or(0, |queue| queue.tombstones);
        self.subscribers.len() - left
    }

    /// At the channel's home: returns the number of registered subscribers on all workers together.
    pub(crate) fn total_subscribers(&self) -> u32 {
        let there: u32 = self
            .remote_subscribers
            .as_slice()
            .iter()
            .map(|share| share.count)
            .sum();
        self.local_subscribers() as u32 + there
    }

    /// Returns whether a client has the position of this channel's stream, or may get it because requests are pending.
    pub(crate) fn is_used(&self) -> bool {
        self.waiting > 0 || self.total_subscribers() > 0
    }

    /// Removes the subscriber at an index. If this moves another subscriber to the index, returns the slot of that
    /// subscriber, otherwise `None`.
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

    /// At the channel's home: counts one more subscriber on another worker.
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

    /// At the channel's home: counts one subscriber fewer on another worker. Returns `false` if no subscriber was counted
    /// there, which means that the message is wrong.
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

    /// Returns whether the entry can be removed. It is needed for a subscription of this worker and, at the channel's
    /// home, for subscribers on other workers, a stream or a waiting request.
    fn is_idle(&self) -> bool {
        self.subscribers.is_empty()
            && self.remote_subscribers.is_empty()
            && self.queue.is_none()
            && self.waiting == 0
            && self.home.stream().is_none()
    }
}

/// Hashes the names of channels and determines their homes.
#[derive(Debug)]
pub struct Homes {
    seed: u64,
    shared_seed: SharedSeed,
    workers: u16,
}

impl Homes {
    /// `seed` and `workers` must be those passed to [`Hub::new`](crate::Hub::new).
    #[must_use]
    pub fn new(seed: u64, workers: u16) -> Self {
        Self {
            seed,
            // The shared seed determines the multiplier of the hash. Peers must know neither of the two seeds: with a
            // known multiplier some names collide under every seed.
            shared_seed: SharedSeed::from_u64(seed.rotate_left(32) ^ 0x9e37_79b9_7f4a_7c15),
            workers,
        }
    }

    /// Returns the home of a user's personal channel.
    ///
    /// # Errors
    /// The name is not a valid user name.
    pub fn of_user(&self, user: &str) -> Result<WorkerId, NameError> {
        let mut buffer = String::new();
        let name = ChannelName::of_user(user, &mut buffer)?;
        Ok(self.of_hash(self.hash(name.as_str())))
    }

    fn hash(&self, name: &str) -> u64 {
        let mut hasher = FoldHasher::with_seed(self.seed, &self.shared_seed);
        hasher.write(name.as_bytes());
        hasher.finish()
    }

    /// Returns the worker for a hash. Scales the hash instead of dividing it, and uses its middle bits, because the
    /// name table uses the bits at both ends.
    #[inline]
    fn of_hash(&self, hash: u64) -> WorkerId {
        let bits = u64::from((hash >> 24) as u32);
        WorkerId(((bits * u64::from(self.workers)) >> 32) as u16)
    }
}

/// The channel entries by index, and their indices by name. Indices of removed entries are reused.
pub(crate) struct Channels {
    me: WorkerId,
    homes: Homes,
    entries: Vec<Option<Channel>>,
    free: Vec<u32>,
    names: HashTable<u32>,
}

impl Channels {
    pub(crate) fn new(me: WorkerId, homes: Homes) -> Self {
        Self {
            me,
            homes,
            entries: Vec::new(),
            free: Vec::new(),
            names: HashTable::new(),
        }
    }

    /// Returns the hash of a name. The name table and the choice of the home both use it.
    pub(crate) fn hash(&self, name: &str) -> u64 {
        self.homes.hash(name)
    }

    /// Returns the worker that orders the publications of a channel.
    #[inline]
    pub(crate) fn home(&self, hash: u64, name: &str, namespaces: &Namespaces) -> WorkerId {
        let hash = match namespaces.wildcards().channel_for(name) {
            None => hash,
            // All channels that a wildcard channel covers must have the same home.
            Some(wildcard) => self.hash(wildcard),
        };
        self.homes.of_hash(hash)
    }

    /// Returns the index of the channel's entry, and creates the entry if there is none.
    pub(crate) fn entry(&mut self, hash: u64, name: &str, namespaces: &Namespaces) -> u32 {
        if let Some(index) = self.find(hash, name) {
            return index;
        }
        let home = match self.home(hash, name, namespaces) {
            home if home == self.me => Home::LOCAL,
            home => Home::remote(home),
        };
        self.insert(hash, Arc::from(name), home)
    }

    pub(crate) fn find(&self, hash: u64, name: &str) -> Option<u32> {
        self.names
            .find(hash, |index| &*self[*index].name == name)
            .copied()
    }

    /// Adds a channel that the table does not contain, and returns its index.
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
            homes,
            entries,
            names,
            ..
        } = self;
        names.insert_unique(hash, index, |index| {
            let channel = entries[*index as usize]
                .as_ref()
                .expect("named channels exist");
            homes.hash(&channel.name)
        });
        index
    }

    /// Removes the entry, unless it is needed for a subscription or, at the channel's home, for other state of the channel.
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

    /// Returns the number of channels with an entry on this worker.
    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }
}

impl std::ops::Index<u32> for Channels {
    type Output = Channel;

    fn index(&self, index: u32) -> &Channel {
        self.entries[index as usize]
            .as_ref()
            .expect("a channel must exist while its index is in use")
    }
}

impl std::ops::IndexMut<u32> for Channels {
    fn index_mut(&mut self, index: u32) -> &mut Channel {
        self.entries[index as usize]
            .as_mut()
            .expect("a channel must exist while its index is in use")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Hub, Options};

    #[test]
    fn hubs_agree() {
        let (seed, workers) = (0x5eed, 7);
        let hub = Hub::new(WorkerId(0), workers, seed, Options::default());
        let homes = Homes::new(seed, workers);
        let mut found = std::collections::HashSet::new();
        for number in 0..200 {
            let user = format!("user{number}");
            let mut buffer = String::new();
            let name = ChannelName::of_user(&user, &mut buffer).expect("a name");
            let home = homes.of_user(&user).expect("a name");
            assert_eq!(home, hub.home_of(name), "{user}");
            found.insert(home);
        }
        assert_eq!(found.len(), usize::from(workers));
        assert!(homes.of_user("").is_err());
    }
}
