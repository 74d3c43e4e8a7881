//! Subscriptions that wait for the engine: until it follows their channel, and until the
//! publications that they have missed were read.
//!
//! Such a subscription is not counted and receives nothing. All waiting subscriptions of a channel
//! share one read. When the read starts, the subscription that has missed most determines how far
//! back the read reaches. Subscriptions that arrive later use the same result, and another read is
//! made only for subscriptions that have missed more, or that already have an item that the read did
//! not find. Items that are delivered during the read are kept as the *tail*, so that the result of
//! the read can be joined with the feed, which has moved on.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::engine::{EngineReply, EngineReport, FeedItem, HistoryRead, HistorySegment, ReadStart};
use crate::feed_queue::FeedQueue;
use crate::membership::read_start;
use crate::{
    ConnectionId, Engine, Hub, HubMessage, HubReply, Outlet, Publication, RECOVERED_MAX, Recovered,
    Registration, Since, SubscribeOptions, SubscribeOutcome, Ticket, WorkerId,
};

/// Maximum payload bytes of the feed items that are kept for one channel during a read. If there are more, they are
/// dropped and the read is repeated.
const TAIL_BYTES_MAX: usize = 1 << 20;

/// Maximum number of history reads for one subscription. If no read can be joined with the feed, nothing is recovered.
const READS_MAX: u8 = 3;

/// The pending subscriptions by the index of the channel's entry.
pub(crate) type PendingJoins = BTreeMap<u32, ChannelJoins>;

/// The pending subscriptions of one channel.
#[derive(Debug)]
pub(crate) struct ChannelJoins {
    following: Following,
    subscribers: Vec<PendingSubscriber>,
    /// The read in progress, if any.
    reading: Option<HistoryRead>,
    /// The feed items delivered since the read was requested.
    tail: Vec<FeedItem>,
    tail_bytes: usize,
    /// Whether `tail` became too large and was dropped.
    is_truncated: bool,
}

/// Whether the engine follows a channel with pending subscriptions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Following {
    Begun,
    Done,
    Refused,
}

/// A subscription that the channel's home has not counted yet.
#[derive(Debug)]
pub(crate) struct PendingSubscriber {
    pub(crate) from: WorkerId,
    pub(crate) session: ConnectionId,
    pub(crate) ticket: Ticket,
    pub(crate) registration: Registration,
    pub(crate) options: SubscribeOptions,
    /// The number of reads of the history so far, at most [`READS_MAX`].
    reads: u8,
    /// Whether the subscription was refused because the engine can't follow the channel. The subscriber's worker was
    /// notified and will remove it.
    is_refused: bool,
}

impl PendingSubscriber {
    fn new(
        from: WorkerId,
        (session, ticket): (ConnectionId, Ticket),
        registration: Registration,
        subscribe_options: &SubscribeOptions,
    ) -> Self {
        Self {
            from,
            session,
            ticket,
            registration,
            options: subscribe_options.clone(),
            reads: 0,
            is_refused: false,
        }
    }
}

impl ChannelJoins {
    pub(crate) fn new(following: Following) -> Self {
        Self {
            following,
            subscribers: Vec::new(),
            reading: None,
            tail: Vec::new(),
            tail_bytes: 0,
            is_truncated: false,
        }
    }

    /// If a read is in progress, appends a feed item, which is about to be delivered, to `tail`.
    fn push_tail(&mut self, channel: &Arc<str>, before: u64, publication: &Publication) {
        if self.reading.is_none() || self.is_truncated {
            return;
        }
        self.tail_bytes += publication.payload.bytes.len();
        // A subscriber that has missed more than `RECOVERED_MAX` publications is not recovered anyway.
        if self.tail.len() == RECOVERED_MAX || self.tail_bytes > TAIL_BYTES_MAX {
            self.is_truncated = true;
            self.tail = Vec::new();
            return;
        }
        self.tail.push(FeedItem {
            channel: Arc::clone(channel),
            publication: publication.clone(),
            predecessor: before,
        });
    }
}

impl<E: Engine> Hub<E> {
    /// At the channel's home: does the work of [`follows`](Self::follows) if any channel of this home has pending
    /// subscriptions.
    #[inline(never)]
    pub(crate) fn follows_pending(
        &mut self,
        index: u32,
        slot: Option<u32>,
        first_read: ReadStart,
    ) -> bool {
        let channel = &self.channels[index];
        match self.joins.get(&index).map(|pending| pending.following) {
            None if channel.total_subscribers() > 0 => return true,
            Some(Following::Done) => return true,
            Some(Following::Begun) => return false,
            None | Some(Following::Refused) => {}
        }
        let is_done = matches!(
            self.engine.follow(&channel.name, slot, first_read),
            EngineReply::Ready(())
        );
        let following = match is_done {
            true => Following::Done,
            false => Following::Begun,
        };
        match self.joins.get_mut(&index) {
            Some(pending) => pending.following = following,
            None if is_done => {}
            None => drop(self.joins.insert(index, ChannelJoins::new(following))),
        }
        is_done
    }

    /// At the channel's home: queues a subscriber until the engine has replied.
    #[inline(never)]
    pub(crate) fn add_pending_subscriber(
        &mut self,
        index: u32,
        from: WorkerId,
        caller: (ConnectionId, Ticket),
        registration: Registration,
        subscribe_options: &SubscribeOptions,
    ) {
        let pending_subscriber =
            PendingSubscriber::new(from, caller, registration, subscribe_options);
        if let Some(pending) = self.joins.get_mut(&index) {
            self.channels[index].waiting += 1;
            pending.subscribers.push(pending_subscriber);
            self.start_join_read(index);
        }
    }

    /// At the channel's home: returns the number of the channel's subscribers that wait for the engine.
    pub(crate) fn pending_joins(&self, index: u32) -> u32 {
        let pending = self.joins.get(&index);
        pending.map_or(0, |pending| pending.subscribers.len() as u32)
    }

    /// At the channel's home: if the subscription of a subscriber that has left is pending, removes it and returns
    /// `true`. The number of subscribers does not change, because pending ones are not counted.
    pub(crate) fn remove_pending_subscriber(
        &mut self,
        index: u32,
        from: WorkerId,
        registration: Registration,
    ) -> bool {
        let Some(pending) = self.joins.get_mut(&index) else {
            return false;
        };
        let is_it = |one: &PendingSubscriber| one.from == from && one.registration == registration;
        let Some(place) = pending.subscribers.iter().position(is_it) else {
            return false;
        };
        pending.subscribers.swap_remove(place);
        self.remove_joins_if_empty(index);
        true
    }

    /// At the channel's home: handles the engine's reply on whether it follows a channel.
    pub(crate) fn handle_following(
        &mut self,
        channel: &str,
        is_following: bool,
        outlet: &mut impl Outlet,
    ) {
        let Some(index) = self.find(channel) else {
            return;
        };
        let Some(pending) = self.joins.get_mut(&index) else {
            return;
        };
        if pending.following != Following::Begun {
            return;
        }
        if !is_following {
            pending.following = Following::Refused;
            return self.refuse_joins(index, outlet);
        }
        pending.following = Following::Done;
        // The feed begins at a new position. Items queued before it do not belong to this feed and are dropped.
        self.feed_queues.remove(&index);
        let pending_subscribers = std::mem::take(&mut pending.subscribers);
        for pending_subscriber in pending_subscribers {
            match pending_subscriber.is_refused {
                true => self.requeue(index, pending_subscriber),
                false => match self.join(index, &pending_subscriber.options) {
                    EngineReply::Ready(joined) => {
                        self.complete_join(index, &pending_subscriber, joined, outlet)
                    }
                    EngineReply::Deferred => self.requeue(index, pending_subscriber),
                },
            }
        }
        self.start_join_read(index);
        self.remove_joins_if_empty(index);
        self.evict_over_budget();
    }

    fn requeue(&mut self, index: u32, pending_subscriber: PendingSubscriber) {
        if let Some(pending) = self.joins.get_mut(&index) {
            pending.subscribers.push(pending_subscriber);
        }
    }

    /// At the channel's home: refuses the pending subscriptions of a channel that the engine can't follow. Other
    /// workers are notified by [`HubMessage::Refused`].
    fn refuse_joins(&mut self, index: u32, outlet: &mut impl Outlet) {
        let Some(pending) = self.joins.get_mut(&index) else {
            return;
        };
        let mut here = Vec::new();
        for pending_subscriber in &mut pending.subscribers {
            if pending_subscriber.is_refused {
                continue;
            }
            pending_subscriber.is_refused = true;
            let (session, ticket) = (pending_subscriber.session, pending_subscriber.ticket);
            let registration = pending_subscriber.registration;
            match pending_subscriber.from == self.me {
                true => here.push((session, ticket, registration)),
                false => outlet.send_message(
                    pending_subscriber.from,
                    HubMessage::Refused {
                        session,
                        ticket,
                        registration,
                    },
                ),
            }
        }
        for (session, ticket, registration) in here {
            self.subscription_refused(session, ticket, registration, outlet);
        }
    }

    /// At the channel's home: counts a subscriber that was pending, and confirms its subscription.
    fn complete_join(
        &mut self,
        index: u32,
        pending_subscriber: &PendingSubscriber,
        joined: Option<Box<SubscribeOutcome>>,
        outlet: &mut impl Outlet,
    ) {
        self.channels[index].waiting -= 1;
        let client = pending_subscriber.options.client.as_ref();
        let (session, ticket) = (pending_subscriber.session, pending_subscriber.ticket);
        let registration = pending_subscriber.registration;
        if pending_subscriber.from == self.me {
            self.has_new_subscribers = true;
            self.make_live(index, registration.slot);
            self.member_joined(index, client);
            return outlet.send_reply(session, ticket, HubReply::Subscribed(joined));
        }
        self.add_remote_subscriber(index, pending_subscriber.from, client);
        let mail = HubMessage::Subscribed {
            session,
            ticket,
            registration,
            joined,
        };
        outlet.send_message(pending_subscriber.from, mail);
    }

    /// At the channel's home: starts a read for the pending subscribers of a channel, unless one is in progress.
    pub(crate) fn start_join_read(&mut self, index: u32) {
        let slot = self.channels[index].home.stream();
        let history = self.namespaces.of(&self.channels[index].name).history;
        let (Some(pending), Some(slot), Some(history)) =
            (self.joins.get_mut(&index), slot, history)
        else {
            return;
        };
        if pending.following != Following::Done || pending.reading.is_some() {
            return;
        }
        // While a gap in the feed is being closed, the position at which subscribers would join moves. The read is
        // started afterwards.
        if self
            .feed_queues
            .get(&index)
            .is_some_and(FeedQueue::is_healing)
        {
            return;
        }
        let waiting = pending.subscribers.iter().filter(|one| !one.is_refused);
        let starts = waiting.map(|one| read_start(&one.options, history.recovery));
        let Some(reach) = starts.min() else {
            return;
        };
        let read = self.reads.next(reach, false);
        pending.reading = Some(read);
        pending.tail.clear();
        (pending.tail_bytes, pending.is_truncated) = (0, false);
        self.engine.read_since(slot, read);
    }

    /// At the channel's home: keeps a feed item, which is about to be delivered, for subscribers
    /// that wait for a read.
    pub(crate) fn append_to_join_tail(&mut self, index: u32, slot: u32, publication: &Publication) {
        if let Some(pending) = self.joins.get_mut(&index) {
            let before = self.engine.position(slot).offset;
            pending.push_tail(&self.channels[index].name, before, publication);
        }
    }

    /// At the channel's home: handles the result of a read, and completes the subscriptions for
    /// which it is sufficient.
    pub(crate) fn complete_joins(
        &mut self,
        index: u32,
        read: HistoryRead,
        chain: Option<&HistorySegment>,
        outlet: &mut impl Outlet,
    ) {
        let (slot, history) = (
            self.channels[index].home.stream(),
            self.namespaces.of(&self.channels[index].name).history,
        );
        let Some(pending) = self.joins.get_mut(&index) else {
            return;
        };
        if pending.reading != Some(read) {
            return;
        }
        pending.reading = None;
        let (Some(slot), Some(history)) = (slot, history) else {
            return self.complete_joins_without_history(index, outlet);
        };
        let pending_subscribers = std::mem::take(&mut pending.subscribers);
        let position = self.engine.position(slot);
        let reaches = |offset| chain.is_some_and(|chain| chain.index_after(offset).is_some());
        let is_behind = |since: &Since| since.is_after(position) && reaches(since.offset);
        let is_after_read = |since: &Since| chain.is_some_and(|chain| since.is_after(chain.top));
        let fed = chain.and_then(|chain| chain.clone().up_to(position, &pending.tail));
        let is_empty = fed
            .as_ref()
            .is_some_and(|fed| read.start <= ReadStart::Since(0) && fed.publications.is_empty());
        let mut is_ahead = false;
        for mut pending_subscriber in pending_subscribers {
            if pending_subscriber.is_refused {
                self.requeue(index, pending_subscriber);
                continue;
            }
            pending_subscriber.reads += 1;
            // Another read may recover more if this read did not reach back far enough, or if the history segment
            // that it returned can't be joined to the feed yet.
            let since = pending_subscriber
                .options
                .since
                .as_deref()
                .unwrap_or_default();
            let knows_more = since.iter().any(is_behind);
            let start = read_start(&pending_subscriber.options, history.recovery);
            let reaches_further = start < read.start;
            // The first read may have been executed before the subscriber arrived, and before the store got an item
            // that the subscriber already has.
            let is_read_older = pending_subscriber.reads == 1 && since.iter().any(is_after_read);
            let is_open = chain.is_some() && (fed.is_none() || reaches_further);
            let recovered = match (&pending_subscriber.options.since, &fed) {
                (None, _) => None,
                (Some(_), None) => Some(Recovered::default()),
                (Some(since), Some(fed)) => {
                    let latest_max = if pending_subscriber.options.recover_all {
                        RECOVERED_MAX
                    } else {
                        1
                    };
                    Some(fed.recover(since, history.recovery, latest_max))
                }
            };
            let is_whole = recovered.as_ref().is_none_or(|one| one.is_complete);
            let needs_more = knows_more || is_read_older || (is_open && !is_whole);
            if needs_more && pending_subscriber.reads < READS_MAX {
                is_ahead |= knows_more;
                self.requeue(index, pending_subscriber);
                continue;
            }
            if is_empty {
                self.record_empty(index);
            }
            let joined = SubscribeOutcome {
                position,
                recovered,
            };
            self.complete_join(index, &pending_subscriber, Some(Box::new(joined)), outlet);
        }
        if is_ahead {
            // Some subscribers already have items, for example from another node, that this node has not delivered yet.
            // So this node's feed has a gap, which is closed first.
            self.request_gap(index, slot);
        }
        self.start_join_read(index);
        self.remove_joins_if_empty(index);
        self.evict_over_budget();
    }

    /// At the channel's home: abandons the read for pending subscribers of a channel that no longer has history.
    pub(crate) fn abandon_join_read(&mut self, index: u32) {
        let reading = self.joins.get(&index).and_then(|pending| pending.reading);
        if let Some(read) = reading {
            let name = Arc::clone(&self.channels[index].name);
            self.pending_reports
                .push_back(EngineReport::Segment(name, read, None));
        }
    }

    /// At the channel's home: completes the pending subscriptions of a channel that no longer has history; nothing is
    /// recovered.
    fn complete_joins_without_history(&mut self, index: u32, outlet: &mut impl Outlet) {
        let Some(pending) = self.joins.get_mut(&index) else {
            return;
        };
        if pending.following != Following::Done {
            return;
        }
        pending.reading = None;
        let pending_subscribers = std::mem::take(&mut pending.subscribers);
        let (refused, waiting): (Vec<_>, Vec<_>) = pending_subscribers
            .into_iter()
            .partition(|one| one.is_refused);
        pending.subscribers = refused;
        for pending_subscriber in waiting {
            self.complete_join(index, &pending_subscriber, None, outlet);
        }
        self.remove_joins_if_empty(index);
    }

    /// At the channel's home: removes the record of a channel's pending subscriptions if there are none. Stops
    /// following the channel if it has no subscribers either.
    fn remove_joins_if_empty(&mut self, index: u32) {
        let pending = self.joins.get(&index);
        if pending.is_none_or(|pending| !pending.subscribers.is_empty()) {
            return;
        }
        let following = self.joins.remove(&index).map(|pending| pending.following);
        let channel = &self.channels[index];
        if channel.total_subscribers() == 0 && following != Some(Following::Refused) {
            self.engine.unfollow(&channel.name, channel.home.stream());
        }
    }
}
