//! Joins and leaves that subscribers are to be told: in order within a channel, and no channel waits for another.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use foldhash::fast::RandomState;

use crate::engine::{NewPublication, OrderResult};
use crate::payload::{OrderedPublication, PayloadSource};
use crate::publish::Origin;
use crate::{ClientInfo, Engine, FeedEvent, Hub, Outlet, PayloadKind, PayloadRef, PublicationInfo};

/// So many joins and leaves wait for their turn on one worker; beyond that they are not told.
const QUEUED_MAX: usize = 65_536;

/// So many of them are told in one turn of a worker.
const SENT_PER_TURN_MAX: usize = 256;

/// So many channels are looked at in one turn that can't be told now.
const SKIPPED_PER_TURN_MAX: usize = 1024;

/// Of one channel.
type PendingEvents = VecDeque<(FeedEvent, Arc<ClientInfo>)>;

/// What a home has to tell, by the channel's name, since its entry may be gone by then.
#[derive(Default)]
pub(crate) struct JoinLeaveQueue {
    channels: HashMap<Arc<str>, PendingEvents, RandomState>,
    /// The same channels, in the order of their turns.
    turns: VecDeque<Arc<str>>,
    queued: usize,
    dropped: u64,
    /// Some have come, or something before them has gone, since it was last tried to tell them.
    may_progress: bool,
}

impl JoinLeaveQueue {
    pub(crate) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// Something that may have been in the way of some has gone: a turn may tell them.
    pub(crate) fn mark_unblocked(&mut self) {
        self.may_progress |= !self.turns.is_empty();
    }

    /// Whether a try to tell them may succeed without further credit.
    pub(crate) fn may_progress(&self) -> bool {
        self.may_progress
    }

    /// Those that wait; of all channels together.
    pub(crate) fn queued(&self) -> usize {
        self.queued.max(self.turns.len()).max(self.channels.len())
    }

    /// Those that were not told for lack of room, so far.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }

    pub(crate) fn push(&mut self, channel: &Arc<str>, event: FeedEvent, client: Arc<ClientInfo>) {
        if self.queued == QUEUED_MAX {
            self.dropped += 1;
            return;
        }
        self.queued += 1;
        self.may_progress = true;
        let waiting = match self.channels.get_mut(channel) {
            Some(waiting) => waiting,
            None => {
                self.turns.push_back(Arc::clone(channel));
                self.channels.entry(Arc::clone(channel)).or_default()
            }
        };
        waiting.push_back((event, client));
    }

    /// The first of the channel whose turn it is. The next turn is another's.
    fn pop(&mut self) -> Option<(FeedEvent, Arc<ClientInfo>)> {
        let name = self.turns.pop_front()?;
        let waiting = self.channels.get_mut(&name)?;
        let first = waiting.pop_front()?;
        self.queued -= 1;
        match waiting.is_empty() {
            true => drop(self.channels.remove(&name)),
            false => self.turns.push_back(name),
        }
        Some(first)
    }

    /// All of the channel whose turn it is go untold: nobody is there to hear them.
    fn drop_channel(&mut self) {
        let name = self.turns.pop_front();
        let waiting = name.and_then(|name| self.channels.remove(&name));
        self.queued -= waiting.map_or(0, |waiting| waiting.len());
    }

    /// The channel whose turn it is waits for its next one.
    fn skip_channel(&mut self) {
        if !self.turns.is_empty() {
            self.turns.rotate_left(1);
        }
    }
}

impl<E: Engine> Hub<E> {
    /// Home: tells subscribers who has joined and left, as far as there is room. True if more of it can be told without
    /// waiting for credit.
    pub(crate) fn send_join_leaves(&mut self, outlet: &mut impl Outlet) -> bool {
        self.join_leave_queue.may_progress = false;
        let mut told = 0;
        // One after the other, so far.
        let mut passed = 0;
        while told < SENT_PER_TURN_MAX
            && passed < SKIPPED_PER_TURN_MAX.min(self.join_leave_queue.turns.len())
        {
            let Some(index) = self.next_join_leave_channel() else {
                self.join_leave_queue.drop_channel();
                continue;
            };
            if self.blocked(index, true, outlet).is_some() {
                self.join_leave_queue.skip_channel();
                passed += 1;
                continue;
            }
            passed = 0;
            told += 1;
            if let Some((event, client)) = self.join_leave_queue.pop() {
                self.send_join_leave(index, event, client, outlet);
            }
        }
        // Where none of so many can be told, what gives credit back is a turn too.
        told == SENT_PER_TURN_MAX && !self.join_leave_queue.is_empty()
    }

    fn next_join_leave_channel(&self) -> Option<u32> {
        let name = self.join_leave_queue.turns.front()?;
        self.find(name)
    }

    fn send_join_leave(
        &mut self,
        index: u32,
        event: FeedEvent,
        client: Arc<ClientInfo>,
        outlet: &mut impl Outlet,
    ) {
        let nothing = PayloadRef {
            kind: PayloadKind::Text,
            bytes: b"",
        };
        let info = PublicationInfo {
            client: Some(client),
            ..PublicationInfo::default()
        };
        let info = Arc::new(info);
        let (from, reply) = (self.me, None);
        let at_ms = self.now.wall_ms;
        let mut offer = NewPublication {
            channel: index,
            payload: PayloadSource::Borrowed(nothing),
            options: None,
            origin: Origin { from, reply },
            name: &self.channels[index].name,
            slot: self.channels[index].home.stream(),
            history: None,
            event,
            at_ms,
            info: Some(&info),
            wants_previous: false,
        };
        // Not ahead of what was published before.
        if matches!(self.engine.publish(&mut offer), OrderResult::Deferred) {
            self.channels[index].waiting += 1;
            return;
        }
        let ordered = OrderedPublication {
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
