//! The part of an engine outside this process that runs in each home: it creates the orders to the engine and handles
//! the engine's events.
//!
//! This part has no sockets: its owner carries [orders](RemoteEngine::take_orders) to the engine and the engine's
//! [events](RemoteEngine::handle) back. Offsets need not be dense here.
//!
//! * *Publishing.* Publications wait until they are answered. After a loss of the connection,
//!   publications that are to be stored are ordered again and marked as repetitions, which the
//!   store recognises by their id. The id contains the number of the attempt: if the store has lost
//!   the first attempt and stores the second one at the same offset, the comparison with the last
//!   seen item finds the loss. Publications that are not to be stored fail, unless they have a key.
//!   All requests that have waited for [`PATIENCE`] without a connection fail.
//! * *Following.* The topic of a channel (the channel itself, or the wildcard channel that covers it) is subscribed
//!   first. Then the position of the channel is looked up, and the feed continues from this position. Items that arrive
//!   before the position is known are held.
//! * *Gaps.* After each loss of the feed, and after each [`LOOK_TICKS`] without an item, the top of the channel is compared
//!   with the last seen item. If the top is later, it is reported as an item, so that the hub closes the gap.
//! * *Epochs.* The epoch of a channel is the one in the store to which the orders go. When an item has another epoch,
//!   the store is asked for the channel's epoch; if it has changed, the position is lost. After a restart of the store,
//!   each channel in use is *unsure*: it is compared with the store before anything is published (*verification*). If
//!   its latest known publication is not stored, it starts a new epoch. A channel whose feed was interrupted is verified
//!   once the feed continues, or before the next request about it, so that one comparison also finds missed items.
//!   Without a connection, and until the verification, items wait, and the results of reads and of other comparisons are
//!   ignored: they may come from a store that has assigned the same offsets again. If the next connection is to another
//!   server, the waiting items are dropped.

mod calls;
mod data;
mod entries;
mod events;
mod members;
mod occupancy;
mod waiting;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use foldhash::fast::RandomState;
use veche_nodes::engine::channel::{self as wire, Direction, Keep};

use crate::engine::{Catalog, EngineReport, MemberChangeContext, QueryContext, RequestContext};
use crate::history_segment::{HistoryRead, ReadStart};
use crate::{
    Epoch, HistoryError, HistoryOptions, HistoryQuery, Namespaces, Position, PresenceError,
    RECOVERED_MAX,
};
use entries::{ChannelEntries, ChannelEntry, FeedState};
use waiting::Waiting;

/// The number of *ticks* for which orders wait for a connection. A tick is a call of
/// [`Engine::maintain`](crate::Engine::maintain) with
/// [`MaintenanceScope::Full`](crate::engine::MaintenanceScope::Full), about once a second.
const PATIENCE: u32 = 5;

/// The number of ticks after a reconnection for which a channel's comparison waits for the channel's feed to continue.
const FEED_TICKS: u32 = 2;

/// The number of ticks without an item after which the top of a channel is compared with the last seen item.
const LOOK_TICKS: u32 = 60;

/// The number of ticks within which each slot is checked once, and closed if it is unused.
const SPARE_TICKS: u32 = 15;

/// The minimum time for which the store keeps positions, in milliseconds. Subscribed channels are compared with the
/// store more often, which renews their positions.
const POSITION_TTL_MS_MIN: u64 = 5 * 60 * 1000;

/// The part of an engine outside this process that runs in each home. The engine is shared with other nodes.
#[derive(Debug)]
pub struct RemoteEngine {
    entries: ChannelEntries,
    /// The requests, each with the value of `ticks_apart` at the time when it was ordered.
    waiting: Waiting<(u32, Task)>,
    waiting_bytes: usize,
    orders: Vec<wire::Order>,
    reports: VecDeque<EngineReport>,
    rng: fastrand::Rng,
    /// The number of the current connection, if any.
    connection: Option<u64>,
    namespaces: Namespaces,
    /// The wildcard topics that are followed.
    topics: HashMap<Arc<str>, Topic, RandomState>,
    /// The channels whose feed was requested and is not live yet, each with the tick of the request.
    begun: VecDeque<(u32, Arc<str>)>,
    ticks: u32,
    /// The number of ticks without a connection.
    ticks_apart: u32,
    now_ms: u64,
    /// The indices at which the two periodic checks of channels continue: the check for missed items, and the check for
    /// unused slots.
    next_checks: [u32; 2],
    ignored: u64,
    /// Whether some channels were not compared yet with the present store, which may have lost data or been replaced.
    has_unsure: bool,
    /// The tick at which the last connection was opened.
    connected_at: u32,
    /// The channels whose first read was answered since the last pass over the reports.
    first_reads: Vec<u32>,
    /// Whether the store has lost members or occupied channels of this home, so that they must be recorded again.
    has_forgotten: bool,
    /// The changes of occupancy that were not sent yet, oldest first. `recording` contains the channels for which a
    /// change was sent and is not answered yet.
    unrecorded: VecDeque<Box<wire::Occupancy>>,
    recording: HashSet<Arc<str>, RandomState>,
}

#[derive(Debug, Default)]
struct Topic {
    followers: u32,
    is_live: bool,
}

/// A request that waits for the engine's answer.
#[derive(Debug)]
enum Task {
    Publish {
        request_context: RequestContext,
        slot: Option<u32>,
        publish: Box<wire::Publish>,
        /// `None` if the order was not sent yet.
        sent_at: Option<SentAt>,
    },
    Fence(RequestContext),
    /// A comparison with the store. `known` is the latest known offset of the channel when the comparison was ordered.
    Check {
        check: Box<wire::Check>,
        known: u64,
    },
    History {
        request_context: RequestContext,
        query: HistoryQuery,
        answer_max: usize,
        read: Box<wire::Read>,
        expired_ms: u64,
    },
    Chain {
        read: HistoryRead,
        order: Box<wire::Read>,
        expired_ms: u64,
    },
    Remove {
        request_context: RequestContext,
        channel: Arc<str>,
    },
    Member {
        notice: Option<MemberChangeContext>,
        member: Box<wire::Member>,
    },
    Occupancy(Box<wire::Occupancy>),
    Presence {
        caller: QueryContext,
        channel: Arc<str>,
        only_counts: bool,
    },
}

/// The state of a publication's channel when the order was first sent.
#[derive(Clone, Copy, Debug)]
struct SentAt {
    /// The latest known position.
    position: Position,
    /// The value of [`ChannelEntry::epochs_ended`].
    epochs_ended: u32,
}

impl SentAt {
    /// Returns the position after which an attempt may have stored the publication. The position is unknown if the epoch
    /// of the channel's `entry` has ended since: a store that returns to an older copy of its data may continue an
    /// earlier epoch, with offsets that are lower than the position.
    fn search_from(self, entry: Option<&ChannelEntry>) -> Position {
        match entry {
            Some(entry) if entry.epochs_ended == self.epochs_ended => self.position,
            _ => Position::UNKNOWN,
        }
    }
}

impl Task {
    /// Returns the channel whose stored publications the request reads or changes, if any.
    fn channel(&self) -> Option<&Arc<str>> {
        match self {
            Self::Publish { publish, .. } => publish.keep.map(|_| &publish.channel),
            Self::Check { check, .. } => Some(&check.channel),
            Self::History { read, .. } | Self::Chain { order: read, .. } => Some(&read.channel),
            Self::Remove { channel, .. } => Some(channel),
            _ => None,
        }
    }

    /// Returns whether this is the comparison that an unsure channel waits for, its *verification*.
    fn is_verification(&self) -> bool {
        matches!(self, Self::Check { check, .. } if check.is_verifying)
    }
}

impl RemoteEngine {
    /// Returns an engine without a connection. `seed` must differ between all engines of all nodes.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            entries: ChannelEntries::default(),
            waiting: Waiting::default(),
            waiting_bytes: 0,
            orders: Vec::new(),
            reports: VecDeque::new(),
            rng: fastrand::Rng::with_seed(seed),
            connection: None,
            namespaces: Namespaces::new(),
            topics: HashMap::default(),
            begun: VecDeque::new(),
            ticks: 0,
            ticks_apart: 0,
            now_ms: 0,
            next_checks: [0; 2],
            ignored: 0,
            has_unsure: false,
            connected_at: 0,
            first_reads: Vec::new(),
            has_forgotten: false,
            unrecorded: VecDeque::new(),
            recording: HashSet::default(),
        }
    }

    /// Returns the pending orders in sequence. The owner removes those that it sends to the engine.
    pub fn take_orders(&mut self) -> &mut Vec<wire::Order> {
        &mut self.orders
    }

    /// Returns the number of messages that were ignored because they are malformed or because this node does not follow
    /// their channel.
    #[must_use]
    pub fn ignored(&self) -> u64 {
        self.ignored
    }

    /// Returns the storage parameters of a channel for an order. Their epoch is still unknown; it is set when the order
    /// is sent.
    fn keep(&self, history: &HistoryOptions) -> Keep {
        let position_ttl_ms = history.position_ttl_ms.max(history.ttl_ms);
        Keep {
            size: history.size,
            ttl_ms: history.ttl_ms,
            position_ttl_ms: position_ttl_ms.max(POSITION_TTL_MS_MIN),
            epoch: Epoch::UNKNOWN,
        }
    }

    /// Returns the wildcard channel that is the topic of a channel; `None` if the channel itself is the topic.
    fn topic(&self, name: &str) -> Option<&str> {
        self.namespaces.wildcards().channel_for(name)
    }

    /// Queues a request, and sends it to the engine now or as soon as the engine is connected.
    fn order(&mut self, task: Task) {
        let ticket = self.waiting.next();
        self.waiting.push((self.ticks_apart, task));
        if self.connection.is_some() {
            self.send(ticket);
        }
    }

    fn send(&mut self, ticket: u64) {
        let Some((_, task)) = self.waiting.get_mut(ticket) else {
            return;
        };
        // Each attempt gets a new epoch. The store may have executed the first attempt and lost its result, so the
        // second attempt must not begin a stream with the same epoch.
        let epoch = Epoch::from_bits(self.rng.u64(..));
        let order = match task {
            Task::Fence(_) => return,
            Task::Publish {
                publish,
                sent_at,
                slot,
                ..
            } => {
                if sent_at.is_some() {
                    publish.data = data::next_attempt(&publish.data);
                }
                let mut publish = publish.clone();
                publish.ticket = ticket;
                if let Some(keep) = &mut publish.keep {
                    keep.epoch = epoch;
                }
                let entry = slot.and_then(|slot| self.entries.get(slot));
                publish.repeats_since = sent_at
                    .filter(|_| publish.keep.is_some())
                    .map(|sent_at| sent_at.search_from(entry));
                if sent_at.is_none() {
                    let latest = entry.and_then(ChannelEntry::latest);
                    *sent_at = Some(SentAt {
                        position: latest.map_or(Position::UNKNOWN, |(position, _)| position),
                        epochs_ended: entry.map_or(0, |entry| entry.epochs_ended),
                    });
                }
                wire::Order::Publish(publish)
            }
            Task::Check { check, .. } => {
                check.ticket = ticket;
                check.keep.epoch = epoch;
                wire::Order::Check(check.clone())
            }
            Task::History { read, .. } | Task::Chain { order: read, .. } => {
                read.ticket = ticket;
                read.keep.epoch = epoch;
                wire::Order::Read(read.clone())
            }
            Task::Remove { channel, .. } => wire::Order::Remove {
                ticket,
                channel: Arc::clone(channel),
            },
            Task::Member { notice, member } => {
                member.ticket = ticket;
                member.finds_user = notice.is_some();
                wire::Order::Member(member.clone())
            }
            Task::Occupancy(occupancy) => {
                occupancy.ticket = ticket;
                let order = wire::Order::Occupancy(occupancy.clone());
                occupancy.is_repeated = true;
                order
            }
            Task::Presence {
                channel,
                only_counts,
                ..
            } => wire::Order::Members {
                ticket,
                channel: Arc::clone(channel),
                only_counts: *only_counts,
            },
        };
        self.orders.push(order);
    }

    /// Counts a request about a channel with a slot, and orders the comparison that must precede it.
    fn begin_request(&mut self, slot: u32) {
        if let Some(entry) = self.entries.get_mut(slot) {
            entry.waiting += 1;
        }
        self.verify(slot);
    }

    /// Orders the verification of an unsure channel, unless it is ordered already. Called before each request about a
    /// channel, because nothing may be published before the verification.
    fn verify(&mut self, place: u32) {
        if self.can_verify(place) {
            self.check(place, true);
        }
    }

    /// Orders the verification of an unsure channel, or an ordinary comparison if the channel is sure or its
    /// verification is ordered already. A second verification would name the same publication, which later publications
    /// may have displaced from the store meanwhile.
    fn compare(&mut self, place: u32) {
        self.check(place, self.can_verify(place));
    }

    fn can_verify(&self, place: u32) -> bool {
        let entry = self.entries.get(place);
        self.connection.is_some() && entry.is_some_and(ChannelEntry::is_unverified)
    }

    /// Orders a comparison of a channel with the store. An ordinary comparison names the last item seen in the feed. A
    /// verification (`is_verifying`) names the latest known publication, and the channel begins a new epoch if the
    /// store does not have that publication.
    fn check(&mut self, place: u32, is_verifying: bool) {
        let Some(entry) = self.entries.get(place) else {
            return;
        };
        let Some(history) = self.namespaces.of(&entry.name).history else {
            return self.go_on_without_history(place);
        };
        let first_read = entry.first_read.as_deref();
        let first_read = first_read.filter(|_| matches!(entry.feed, FeedState::Placing(_)));
        let read = first_read.map(|first| self.segment_read(&entry.name, &history, first.start));
        let seen = match (entry.feed, is_verifying) {
            (_, true) => entry.latest(),
            (FeedState::Placing(_), false) => None,
            (_, false) => Some((
                Position {
                    epoch: entry.epoch,
                    offset: entry.seen,
                },
                0,
            )),
        };
        let known = entry.known.0;
        let channel = Arc::clone(&entry.name);
        let ended = Some(entry.ended).filter(|ended| *ended != Epoch::UNKNOWN);
        let keep = self.keep(&history);
        let check = wire::Check {
            ticket: 0,
            channel,
            keep,
            seen,
            is_verifying,
            ended,
            read,
        };
        if let Some(entry) = self.entries.get_mut(place) {
            entry.is_verifying |= is_verifying;
            entry.needs_comparison = false;
        }
        self.order(Task::Check {
            check: Box::new(check),
            known,
        });
    }

    /// Makes a channel continue without the comparison that it waits for. A reload has removed the channel's history,
    /// so its publications no longer have positions to compare.
    fn go_on_without_history(&mut self, place: u32) {
        let Some(entry) = self.entries.get_mut(place) else {
            return;
        };
        entry.is_in_doubt = false;
        // Without the comparison, the store may be an older copy of the channel.
        entry.forget_epoch();
        if let FeedState::Placing(_) = entry.feed {
            entry.feed = FeedState::Live;
            let report = EngineReport::Following(Arc::clone(&entry.name), true);
            self.reports.push_back(report);
        }
        self.become_sure(place);
    }

    /// Creates the order that reads the latest publications of a channel, back to `start`.
    fn segment_read(
        &self,
        channel: &Arc<str>,
        history: &HistoryOptions,
        start: ReadStart,
    ) -> Box<wire::Read> {
        let (since, limit) = match start {
            ReadStart::Since(since) => (Some(since), RECOVERED_MAX),
            ReadStart::TopOnly => (None, 0),
        };
        Box::new(wire::Read {
            ticket: 0,
            channel: Arc::clone(channel),
            keep: self.keep(history),
            since,
            limit,
            direction: Direction::Latest,
        })
    }

    /// Requests the position at which the feed of a subscribed channel continues. Returns `true` if no position
    /// is needed, because the channel has no slot.
    fn place(&mut self, place: u32) -> bool {
        let ticks = self.ticks;
        let Some(entry) = self.entries.get_mut(place) else {
            return false;
        };
        if entry.channel.is_none() {
            entry.feed = FeedState::Live;
            return true;
        }
        entry.feed = FeedState::Placing(ticks);
        self.compare(place);
        false
    }

    /// Fails the requests that have waited for too long without a connection, and refuses to follow
    /// the channels whose feed has not started in time.
    fn lose_patience(&mut self) {
        if self.connection.is_none() {
            self.ticks_apart = self.ticks_apart.wrapping_add(1);
            let ticks = self.ticks_apart;
            let is_over = |(since, _): &(u32, Task)| ticks.wrapping_sub(*since) >= PATIENCE;
            while let Some((_, task)) = self.waiting.take_first_if(is_over) {
                self.give_up(task);
            }
        }
        while let Some((since, _)) = self.begun.front()
            && self.ticks.wrapping_sub(*since) >= PATIENCE
        {
            if let Some((_, name)) = self.begun.pop_front() {
                self.lose_patience_with(name);
            }
        }
    }

    /// Refuses to follow a channel whose feed has not started in time.
    fn lose_patience_with(&mut self, name: Arc<str>) {
        let entry = self.entries.find_mut(&name);
        let Some(FeedState::Begun(since) | FeedState::Placing(since)) =
            entry.map(|entry| entry.feed)
        else {
            return;
        };
        if self.ticks.wrapping_sub(since) < PATIENCE {
            return self.begun.push_back((since, name));
        }
        self.stop_following(&name);
        self.reports.push_back(EngineReport::Following(name, false));
    }

    /// Completes a task without a result.
    fn give_up(&mut self, task: Task) {
        let report = match task {
            Task::Publish {
                request_context,
                publish,
                ..
            } => {
                self.waiting_bytes -= publish.data.len();
                EngineReport::Failed(request_context)
            }
            Task::Fence(request_context) => EngineReport::Fence(request_context),
            Task::History {
                request_context, ..
            } => EngineReport::History(request_context, Err(HistoryError::Unavailable)),
            Task::Chain { read, order, .. } => EngineReport::Segment(order.channel, read, None),
            Task::Remove {
                request_context, ..
            } => EngineReport::Removed(request_context, Err(HistoryError::Unavailable)),
            Task::Member { notice, .. } => {
                self.has_forgotten = true;
                match notice {
                    Some(notice) => EngineReport::Member(notice, true),
                    None => return,
                }
            }
            Task::Presence {
                caller,
                only_counts,
                ..
            } => match only_counts {
                true => EngineReport::PresenceStats(caller, Err(PresenceError::Unavailable)),
                false => EngineReport::Presence(caller, Err(PresenceError::Unavailable)),
            },
            Task::Occupancy(occupancy) => return self.requeue_unrecorded(occupancy),
            Task::Check { check, .. } => return self.note_unanswered(&check),
        };
        self.reports.push_back(report);
    }

    /// Records that a comparison with the store got no answer, so that it is repeated.
    fn note_unanswered(&mut self, check: &wire::Check) {
        let Some(entry) = self.entries.find_mut(&check.channel) else {
            return;
        };
        if check.is_verifying {
            (entry.is_verifying, entry.was_unsure) = (false, true);
            self.has_unsure = true;
        } else {
            entry.needs_comparison = true;
        }
    }

    fn stop_following(&mut self, name: &Arc<str>) {
        let Some(place) = self.entries.find(name) else {
            return;
        };
        let topic = self.topic(name).map(Arc::from);
        let Some(entry) = self.entries.get_mut(place).filter(|one| one.is_followed) else {
            return;
        };
        entry.is_followed = false;
        entry.feed = FeedState::Off;
        entry.is_interrupted = false;
        (entry.held, entry.previous, entry.first_read) = (None, None, None);
        match topic {
            None => self.orders.push(wire::Order::Unfollow(Arc::clone(name))),
            Some(topic) => self.drop_follower(topic),
        }
        self.entries.release(place);
    }

    fn drop_follower(&mut self, name: Arc<str>) {
        let Some(topic) = self.topics.get_mut(&name) else {
            return;
        };
        topic.followers -= 1;
        if topic.followers > 0 {
            return;
        }
        self.topics.remove(&name);
        // Channels that only the wildcard channel covered are no longer followed.
        for place in 0..self.entries.end() {
            let entry = self.entries.get(place);
            let is_of = entry.is_some_and(|one| self.topic(&one.name) == Some(&*name));
            if is_of && let Some(entry) = self.entries.get_mut(place) {
                entry.feed = FeedState::Off;
                entry.is_interrupted = false;
                entry.held = None;
            }
        }
        self.orders.push(wire::Order::Unfollow(name));
    }

    /// For channels that have received no item lately, compares the last seen item with the top position in the store.
    /// Each call checks a part of the channels.
    fn check_missed(&mut self) {
        let part = self.entries.end().div_ceil(LOOK_TICKS);
        for _ in 0..part {
            let place = self.next_check(0);
            let Some(entry) = self.entries.get_mut(place) else {
                continue;
            };
            let is_due = !std::mem::take(&mut entry.is_fresh) || entry.needs_comparison;
            if is_due && entry.feed == FeedState::Live && entry.has_position() && !entry.is_unsure {
                self.check(place, false);
            }
        }
    }

    /// Closes unused slots. Each call checks a part of the slots.
    fn check_spare(&mut self, catalog: &Catalog<'_>, gone: &mut Vec<u32>) {
        let part = self.entries.end().div_ceil(SPARE_TICKS);
        for _ in 0..part {
            let place = self.next_check(1);
            let entry = self.entries.get_mut(place);
            let is_spare = |entry: &&mut ChannelEntry| !entry.is_followed && entry.waiting == 0;
            let Some(entry) = entry.filter(is_spare) else {
                continue;
            };
            if let Some(channel) = entry.channel {
                if catalog.is_position_used(channel) {
                    continue;
                }
                entry.channel = None;
                gone.push(channel);
            }
            self.entries.release(place);
        }
    }

    /// Orders the verifications of unsure channels that were not ordered yet or have failed. Channels with an
    /// interrupted feed are verified when the feed continues, or here if the feed does not continue in time.
    fn check_unsure(&mut self) {
        if !std::mem::take(&mut self.has_unsure) {
            return;
        }
        let is_late = self.ticks.wrapping_sub(self.connected_at) >= FEED_TICKS;
        for place in 0..self.entries.end() {
            let entry = self.entries.get(place);
            let Some(entry) = entry.filter(|one| one.is_unverified()) else {
                continue;
            };
            match entry.is_interrupted && !is_late {
                true => self.has_unsure = true,
                false => self.check(place, true),
            }
        }
    }

    fn next_check(&mut self, which: usize) -> u32 {
        let next_place = &mut self.next_checks[which];
        *next_place = (*next_place + 1) % self.entries.end().max(1);
        *next_place
    }
}
