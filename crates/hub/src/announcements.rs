//! Queue of joins and leaves to send to subscribers: in order within a channel, while channels don't wait for each
//! other.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use foldhash::fast::RandomState;

use crate::engine::{Offer, Order};
use crate::mail::Origin;
use crate::payload::{Ordered, Source};
use crate::{ClientInfo, Engine, Event, Hub, Info, Outlet, PayloadKind, PayloadRef};

/// Maximum number of queued joins and leaves on one worker; further ones are dropped.
const WAITING_MAX: usize = 65_536;

/// Maximum number sent in one turn of a worker.
const TOLD_MAX: usize = 256;

/// Maximum number of blocked channels skipped in one turn.
const PASSED_MAX: usize = 1024;

type Waiting = VecDeque<(Event, Arc<ClientInfo>)>;

/// The home's queued joins and leaves, by channel name because the channel's entry may be gone by then.
#[derive(Default)]
pub(crate) struct Announcements {
    channels: HashMap<Arc<str>, Waiting, RandomState>,
    /// The same channels, in round-robin order.
    turns: VecDeque<Arc<str>>,
    waiting: usize,
    untold: u64,
    /// Set when an item was added or a possible obstacle has gone since the last attempt.
    is_new: bool,
}

impl Announcements {
    pub(crate) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// Marks that a possible obstacle has gone: the next turn may send some.
    pub(crate) fn look_again(&mut self) {
        self.is_new |= !self.turns.is_empty();
    }

    /// Returns whether an attempt may succeed without new credit.
    pub(crate) fn has_new(&self) -> bool {
        self.is_new
    }

    /// Returns the number of queued items of all channels.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.max(self.turns.len()).max(self.channels.len())
    }

    /// Returns the number of items dropped for lack of room so far.
    pub(crate) fn untold(&self) -> u64 {
        self.untold
    }

    pub(crate) fn push(&mut self, channel: &Arc<str>, event: Event, client: Arc<ClientInfo>) {
        if self.waiting == WAITING_MAX {
            self.untold += 1;
            return;
        }
        self.waiting += 1;
        self.is_new = true;
        let waiting = match self.channels.get_mut(channel) {
            Some(waiting) => waiting,
            None => {
                self.turns.push_back(Arc::clone(channel));
                self.channels.entry(Arc::clone(channel)).or_default()
            }
        };
        waiting.push_back((event, client));
    }

    /// Removes the first item of the current channel and moves on to the next channel.
    fn pop(&mut self) -> Option<(Event, Arc<ClientInfo>)> {
        let name = self.turns.pop_front()?;
        let waiting = self.channels.get_mut(&name)?;
        let first = waiting.pop_front()?;
        self.waiting -= 1;
        match waiting.is_empty() {
            true => drop(self.channels.remove(&name)),
            false => self.turns.push_back(name),
        }
        Some(first)
    }

    /// Drops all items of the current channel, which has no subscribers left.
    fn forget(&mut self) {
        let name = self.turns.pop_front();
        let waiting = name.and_then(|name| self.channels.remove(&name));
        self.waiting -= waiting.map_or(0, |waiting| waiting.len());
    }

    /// Moves on to the next channel; the current one waits for its next turn.
    fn pass(&mut self) {
        if !self.turns.is_empty() {
            self.turns.rotate_left(1);
        }
    }
}

impl<E: Engine> Hub<E> {
    /// Home: sends queued joins and leaves as far as there is room. Returns whether more can be sent without waiting
    /// for credit.
    pub(crate) fn tell_announcements(&mut self, outlet: &mut impl Outlet) -> bool {
        self.announcements.is_new = false;
        let mut told = 0;
        // Consecutive channels skipped so far.
        let mut passed = 0;
        while told < TOLD_MAX && passed < PASSED_MAX.min(self.announcements.turns.len()) {
            let Some(index) = self.find_announced() else {
                self.announcements.forget();
                continue;
            };
            if self.blocked(index, true, outlet).is_some() {
                self.announcements.pass();
                passed += 1;
                self.channels.release(index);
                continue;
            }
            passed = 0;
            told += 1;
            if let Some((event, client)) = self.announcements.pop() {
                self.announce(index, event, client, outlet);
            }
            self.channels.release(index);
        }
        // If none could be sent, wait for a turn that returns credit.
        told == TOLD_MAX && !self.announcements.is_empty()
    }

    fn find_announced(&mut self) -> Option<u32> {
        let name = self.announcements.turns.front()?;
        let found = self.find(name);
        if found.is_some() || !self.engine.reaches_others() {
            return found;
        }
        let name = Arc::clone(name);
        Some(self.entry(self.channels.hash(&name), &name))
    }

    fn announce(
        &mut self,
        index: u32,
        event: Event,
        client: Arc<ClientInfo>,
        outlet: &mut impl Outlet,
    ) {
        let nothing = PayloadRef {
            kind: PayloadKind::Text,
            bytes: b"",
        };
        let info = Info {
            client: Some(client),
            ..Info::default()
        };
        let info = Arc::new(info);
        let (from, reply) = (self.me, None);
        let at_ms = self.now.wall_ms;
        let has_slot = self.channels[index].home.stream().is_some();
        let mut offer = Offer {
            channel: index,
            payload: Source::Borrowed(nothing),
            terms: None,
            origin: Origin { from, reply },
            name: &self.channels[index].name,
            slot: self.channels[index].home.stream(),
            history: None,
            event,
            at_ms,
            info: Some(&info),
            wants_previous: false,
        };
        // Must not overtake earlier publications.
        if matches!(self.engine.publish(&mut offer), Order::Later) {
            return self.wait_in_engine(index, has_slot);
        }
        let ordered = Ordered {
            payload: offer.payload,
            position: None,
            at_ms,
            event,
            info: Some(info),
            previous: None,
        };
        self.feed(index, ordered, outlet);
    }
}
