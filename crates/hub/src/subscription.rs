//! The subscriptions of this worker: which session is subscribed to which channel.
//!
//! All subscriptions are in a single slab. Each entry contains its index in the channel's list and its neighbours in
//! the session's list, so the cost of subscribing or unsubscribing does not depend on the number of other
//! subscriptions.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use crate::small_list::reserve_one;
use crate::{ConnectionId, Registration};

/// Stands for no slot.
pub(crate) const NONE: u32 = u32::MAX;
/// In `first` of a session entry: no session has ever had this index.
const NEVER: u32 = u32::MAX - 1;
/// In `first` of a session entry: the last session with this index has ended.
const ENDED: u32 = u32::MAX - 2;
/// In `place` of a subscription: the flag that the channel's home has not replied yet. The other bits are then the
/// serial number of the registration.
const PENDING: u32 = 1 << 31;

/// Maximum number of slots, so that slot numbers stay below [`ENDED`], [`NEVER`] and [`NONE`].
pub(crate) const SLOTS_MAX: u32 = u32::MAX - 3;

/// The subscription of a session to a channel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subscription {
    pub(crate) session: ConnectionId,
    /// Index of the channel's entry; [`NONE`] in a free slot.
    pub(crate) channel: u32,
    /// Index in the channel's list of subscribers, or [`PENDING`] with a serial number.
    place: u32,
    /// The slot of the session's next older subscription; in a free slot, the next free slot.
    next: u32,
    previous: u32,
}

const _: () = assert!(size_of::<Subscription>() == 24);

impl Subscription {
    /// Returns the index in the channel's list if the subscription is live; `None` if it is pending.
    pub(crate) fn place(&self) -> Option<u32> {
        (self.place & PENDING == 0).then_some(self.place)
    }

    /// If the subscription is pending, returns the registration that the home has not confirmed, otherwise `None`.
    /// `slot` is the subscription's own slot.
    pub(crate) fn registration(&self, slot: u32) -> Option<Registration> {
        (self.place & PENDING != 0).then_some(Registration {
            slot,
            serial: self.place & !PENDING,
        })
    }
}

#[derive(Clone, Copy, Debug)]
struct SessionEntry {
    generation: u32,
    /// The slot of the session's latest subscription, or [`NONE`], [`NEVER`] or [`ENDED`].
    first: u32,
}

/// The state of a session id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionState {
    /// The session can subscribe.
    Open,
    /// The session can subscribe after its predecessor with the same index is closed, which has not happened yet.
    Successor(ConnectionId),
    /// The session has ended.
    Stale,
}

#[derive(Default)]
pub(crate) struct Subscriptions {
    slots: Vec<Subscription>,
    free: u32,
    count: u32,
    sessions: Vec<SessionEntry>,
    /// The subscriptions' slot numbers, hashed by session index and channel.
    by_pair: HashTable<u32>,
    hasher: RandomState,
    serial: u32,
}

impl Subscriptions {
    pub(crate) fn new() -> Self {
        Self {
            free: NONE,
            ..Self::default()
        }
    }

    pub(crate) fn len(&self) -> u32 {
        self.count
    }

    pub(crate) fn session_state(&self, session: ConnectionId) -> SessionState {
        let Some(known) = self.sessions.get(session.index as usize) else {
            return SessionState::Open;
        };
        let ahead = session.generation.wrapping_sub(known.generation) as i32;
        match known.first {
            NEVER => SessionState::Open,
            ENDED if ahead > 0 => SessionState::Open,
            ENDED => SessionState::Stale,
            _ if ahead == 0 => SessionState::Open,
            _ if ahead < 0 => SessionState::Stale,
            _ => SessionState::Successor(ConnectionId {
                generation: known.generation,
                ..session
            }),
        }
    }

    pub(crate) fn find(&self, session: ConnectionId, channel: u32) -> Option<u32> {
        let hash = self.hasher.hash_one(pair(session.index, channel));
        let is_same = |slot: &u32| {
            let found = &self.slots[*slot as usize];
            found.channel == channel && found.session == session
        };
        self.by_pair.find(hash, is_same).copied()
    }

    /// Iterates over the channels of a session, latest subscription first.
    pub(crate) fn channels_of(&self, session: ConnectionId) -> impl Iterator<Item = u32> {
        let known = self.sessions.get(session.index as usize);
        let known = known.filter(|known| known.generation == session.generation);
        let mut next = known.map_or(NONE, |known| known.first);
        std::iter::from_fn(move || {
            // `NONE`, `NEVER` and `ENDED` end the iteration, since they are not valid slot numbers.
            let one = self.slots.get(next as usize)?;
            next = one.next;
            Some(one.channel)
        })
    }

    /// Adds a pending subscription. The session must be [`Open`](SessionState::Open) and not subscribed to the channel.
    pub(crate) fn insert(&mut self, session: ConnectionId, channel: u32) -> Registration {
        let place = session.index as usize;
        while self.sessions.len() <= place {
            reserve_one(&mut self.sessions);
            self.sessions.push(SessionEntry {
                generation: 0,
                first: NEVER,
            });
        }
        let known = &mut self.sessions[place];
        let next = if known.first >= ENDED {
            NONE
        } else {
            known.first
        };

        self.serial = (self.serial + 1) & !PENDING;
        let added = Subscription {
            session,
            channel,
            place: PENDING | self.serial,
            next,
            previous: NONE,
        };
        let slot = if self.free == NONE {
            reserve_one(&mut self.slots);
            self.slots.push(added);
            self.slots.len() as u32 - 1
        } else {
            let slot = self.free;
            self.free = self.slots[slot as usize].next;
            self.slots[slot as usize] = added;
            slot
        };
        *known = SessionEntry {
            generation: session.generation,
            first: slot,
        };
        if next != NONE {
            self.slots[next as usize].previous = slot;
        }
        self.count += 1;

        let Self {
            by_pair,
            slots,
            hasher,
            ..
        } = self;
        by_pair.insert_unique(
            hasher.hash_one(pair(session.index, channel)),
            slot,
            |slot| {
                let one = &slots[*slot as usize];
                hasher.hash_one(pair(one.session.index, one.channel))
            },
        );
        Registration {
            slot,
            serial: self.serial,
        }
    }

    /// Returns the channel of the subscription if it is still pending with exactly this registration.
    pub(crate) fn pending(&self, registration: Registration, session: ConnectionId) -> Option<u32> {
        let found = self.slots.get(registration.slot as usize)?;
        let is_it = found.channel != NONE
            && found.session == session
            && found.place == PENDING | registration.serial;
        is_it.then_some(found.channel)
    }

    /// Sets the subscription's index in the channel's list of subscribers. The subscription is then no longer pending.
    pub(crate) fn set_place(&mut self, slot: u32, place: u32) {
        self.slots[slot as usize].place = place;
    }

    pub(crate) fn remove(&mut self, slot: u32) -> Subscription {
        let removed = self.slots[slot as usize];
        if removed.previous == NONE {
            self.sessions[removed.session.index as usize].first = removed.next;
        } else {
            self.slots[removed.previous as usize].next = removed.next;
        }
        if removed.next != NONE {
            self.slots[removed.next as usize].previous = removed.previous;
        }
        let hash = self
            .hasher
            .hash_one(pair(removed.session.index, removed.channel));
        if let Ok(entry) = self.by_pair.find_entry(hash, |found| *found == slot) {
            entry.remove();
        }
        let freed = &mut self.slots[slot as usize];
        freed.channel = NONE;
        freed.next = self.free;
        self.free = slot;
        self.count -= 1;
        removed
    }

    /// Returns the slot of the session's latest subscription, if it has any.
    pub(crate) fn first(&self, session: ConnectionId) -> Option<u32> {
        let known = self.sessions.get(session.index as usize)?;
        (known.generation == session.generation && known.first < ENDED).then_some(known.first)
    }

    /// Marks the session's id as stale. The caller has removed its subscriptions.
    pub(crate) fn end(&mut self, session: ConnectionId) {
        if let Some(known) = self.sessions.get_mut(session.index as usize)
            && known.generation == session.generation
            && known.first == NONE
        {
            known.first = ENDED;
        }
    }

    /// Returns the session of the subscription in a slot.
    #[inline]
    pub(crate) fn session(&self, slot: u32) -> ConnectionId {
        self.slots[slot as usize].session
    }
}

fn pair(session: u32, channel: u32) -> u64 {
    u64::from(session) << 32 | u64::from(channel)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standing_follows_generations() {
        let id = |generation| ConnectionId {
            index: 3,
            generation,
        };
        let mut all = Subscriptions::new();
        assert_eq!(all.session_state(id(7)), SessionState::Open);
        let slot = all.insert(id(7), 0).slot;
        let rows = [
            (id(7), SessionState::Open),
            (id(6), SessionState::Stale),
            (id(8), SessionState::Successor(id(7))),
        ];
        for (id, expected) in rows {
            assert_eq!(all.session_state(id), expected, "{id:?}");
        }
        all.remove(slot);
        all.end(id(6));
        assert_eq!(
            all.session_state(id(7)),
            SessionState::Open,
            "a stale end ends no session"
        );
        all.end(id(7));
        assert_eq!(all.session_state(id(7)), SessionState::Stale);
        assert_eq!(all.session_state(id(8)), SessionState::Open);
        // No session has had index 0, although the table now contains an entry for it.
        assert_eq!(
            all.session_state(ConnectionId {
                index: 0,
                generation: 0
            }),
            SessionState::Open
        );
        // After the highest generation, generations begin at 0 again.
        let slot = all.insert(id(u32::MAX), 0).slot;
        assert_eq!(
            all.session_state(id(0)),
            SessionState::Successor(id(u32::MAX))
        );
        all.remove(slot);
    }

    #[test]
    fn an_answer_meets_only_its_own_registration() {
        let session = ConnectionId {
            index: 0,
            generation: 1,
        };
        let mut all = Subscriptions::new();
        let first = all.insert(session, 5);
        assert_eq!(all.pending(first, session), Some(5));
        all.remove(first.slot);
        assert_eq!(all.pending(first, session), None);
        let second = all.insert(session, 5);
        assert_eq!(second.slot, first.slot, "slots are reused");
        assert_eq!(all.pending(first, session), None);
        all.remove(second.slot);
        let third = all.insert(session, 5);
        assert_eq!(
            (third.slot, all.pending(first, session)),
            (first.slot, None)
        );
        let second = third;
        let other = ConnectionId {
            generation: 2,
            ..session
        };
        assert_eq!(all.pending(second, other), None);
        all.set_place(second.slot, 0);
        assert_eq!(all.pending(second, session), None, "it is live already");
    }
}
