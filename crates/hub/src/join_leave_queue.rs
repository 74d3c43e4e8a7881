//! The queue of joins and leaves to send to subscribers. The joins and leaves of one channel stay
//! in order. A channel that has to wait does not delay other channels.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use foldhash::fast::RandomState;

use crate::engine::{NewPublication, OrderResult};
use crate::message::Origin;
use crate::payload::{OrderedPublication, PayloadSource};
use crate::{ClientInfo, Engine, FeedEvent, Hub, Outlet, PayloadKind, PayloadRef, PublicationInfo};

/// Maximum number of joins and leaves queued on one worker; further ones are dropped.
const QUEUED_MAX: usize = 65_536;

/// Maximum number of joins and leaves sent in one turn of a worker.
const SENT_PER_TURN_MAX: usize = 256;

/// Maximum number of blocked channels skipped in a row in one turn.
const SKIPPED_PER_TURN_MAX: usize = 1024;

type PendingEvents = VecDeque<(FeedEvent, Arc<ClientInfo>)>;

/// The joins and leaves queued at the home. They are stored by channel name, because the channel's entry may be removed
/// before they are sent.
#[derive(Default)]
pub(crate) struct JoinLeaveQueue {
    channels: HashMap<Arc<str>, PendingEvents, RandomState>,
    /// The channels with queued events, in round-robin order.
    turns: VecDeque<Arc<str>>,
    queued: usize,
    dropped: u64,
    /// Whether an item was added, or a blocked channel may be able to continue, since the last attempt to send.
    may_progress: bool,
}

impl JoinLeaveQueue {
    pub(crate) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// Records that a blocked channel may be able to continue, so that the next turn tries to send.
    pub(crate) fn mark_unblocked(&mut self) {
        self.may_progress |= !self.turns.is_empty();
    }

    /// Returns whether an attempt to send may succeed without waiting for credit.
    pub(crate) fn may_progress(&self) -> bool {
        self.may_progress
    }

    /// Returns the number of queued joins and leaves.
    pub(crate) fn queued(&self) -> usize {
        self.queued.max(self.turns.len()).max(self.channels.len())
    }

    /// Returns the number of joins and leaves dropped so far because the queue was full.
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

    /// Removes and returns the first item of the current channel, and makes the next channel the current one.
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

    /// Drops all items of the current channel, because the channel no longer has subscribers.
    fn drop_channel(&mut self) {
        let name = self.turns.pop_front();
        let waiting = name.and_then(|name| self.channels.remove(&name));
        self.queued -= waiting.map_or(0, |waiting| waiting.len());
    }

    /// Makes the next channel the current one; the skipped one moves to the end of the order.
    fn skip_channel(&mut self) {
        if !self.turns.is_empty() {
            self.turns.rotate_left(1);
        }
    }
}

impl<E: Engine> Hub<E> {
    /// At the channel's home: sends queued joins and leaves until there is no more room. Returns
    /// whether the next turn can send more without waiting for credit.
    pub(crate) fn send_join_leaves(&mut self, outlet: &mut impl Outlet) -> bool {
        self.join_leave_queue.may_progress = false;
        let mut sent = 0;
        // The number of consecutive channels skipped so far.
        let mut passed = 0;
        while sent < SENT_PER_TURN_MAX
            && passed < SKIPPED_PER_TURN_MAX.min(self.join_leave_queue.turns.len())
        {
            let Some(index) = self.next_join_leave_channel() else {
                self.join_leave_queue.drop_channel();
                continue;
            };
            if self.blocked(index, true, outlet).is_some() {
                self.join_leave_queue.skip_channel();
                passed += 1;
                self.channels.release(index);
                continue;
            }
            passed = 0;
            sent += 1;
            if let Some((event, client)) = self.join_leave_queue.pop() {
                self.send_join_leave(index, event, client, outlet);
            }
            self.channels.release(index);
        }
        // If the limit per turn was not reached, the remaining channels are blocked: they wait until credit returns.
        sent == SENT_PER_TURN_MAX && !self.join_leave_queue.is_empty()
    }

    fn next_join_leave_channel(&mut self) -> Option<u32> {
        let name = self.join_leave_queue.turns.front()?;
        let found = self.find(name);
        if found.is_some() || !self.engine.reaches_others() {
            return found;
        }
        let name = Arc::clone(name);
        let hash = self.channels.hash(&name);
        Some(self.channels.entry(hash, &name, &self.namespaces))
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
        let has_slot = self.channels[index].home.stream().is_some();
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
        // A deferred join or leave waits in the engine behind earlier publications, which it must not overtake.
        if matches!(self.engine.publish(&mut offer), OrderResult::Deferred) {
            return self.wait_in_engine(index, has_slot);
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
