//! The hub's state and the dispatch of messages. Start reading here.
//!
//! Channels and their homes are in `channel.rs`, subscribing in `membership.rs`, publishing in `publish.rs`,
//! publications that wait for credit in `stalled.rs`, fan-out in `sweep.rs`. The interface to the store is `engine.rs`;
//! the engine's reports are handled in `reports.rs` and `feed_queue.rs`, and subscriptions that wait for the engine in
//! `pending_joins.rs`. The in-memory engine is `memory.rs`, publications waiting for the disk are in `log.rs`,
//! publishers' shares of the budgets in `accounts.rs`. History requests are in `history.rs`, presence in `presence.rs`,
//! joins and leaves for subscribers in `join_leave_queue.rs`, queries to homes in `channel_query.rs`, user commands in
//! `user.rs`, and their completion in `command_acknowledgement.rs`.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::channel::Channels;
use crate::channel_events::ChannelEvents;
use crate::channel_members::Presence;
use crate::engine::EngineReply;
use crate::feed_queue::FeedQueues;
use crate::history_segment::ReadCounter;
use crate::idempotency::IdempotencyCache;
use crate::join_leave_queue::JoinLeaveQueue;
use crate::log_backpressure::LogBackpressure;
use crate::memory::MemoryEngine;
use crate::pending_joins::PendingJoins;
use crate::queue::SweepQueue;
use crate::reports::PendingReports;
use crate::stalled::Stalled;
use crate::subscription::Subscriptions;
use crate::user::LastSeen;
use crate::{
    Caller, ChannelName, Encodings, Engine, Homes, HubMessage, HubReply, Namespaces, NodeEngine,
    Now, Options, Outlet, WorkerId,
};

/// The hub of one worker, with the [engine](crate::engine) for the channels whose home is this worker.
pub struct Hub<E = NodeEngine> {
    pub(crate) me: WorkerId,
    pub(crate) workers: u16,
    pub(crate) options: Options,
    pub(crate) channels: Channels,
    pub(crate) subscriptions: Subscriptions,
    /// The channels with queued publications, in round-robin order.
    pub(crate) queued_channels: VecDeque<u32>,
    pub(crate) stalled: Stalled,
    pub(crate) log_backpressure: LogBackpressure,
    /// As the home of channels: the engine, which orders and stores publications.
    pub(crate) engine: E,
    pub(crate) pending_reports: PendingReports,
    /// For each channel without a slot, by the index of its entry: the number of its requests that wait in the engine.
    pub(crate) unslotted: BTreeMap<u32, u32>,
    pub(crate) feed_queues: FeedQueues,
    pub(crate) joins: PendingJoins,
    pub(crate) reads: ReadCounter,
    /// Whether sessions of this worker were just confirmed as subscribers. Until they have processed the confirmation,
    /// no publications are delivered.
    pub(crate) has_new_subscribers: bool,
    pub(crate) now: Now,
    pub(crate) namespaces: Arc<Namespaces>,
    pub(crate) history_answer_max: usize,
    /// The time in monotonic milliseconds until which the wall clock is not trusted.
    pub(crate) clock_grace_until_ms: u64,
    pub(crate) idempotency: IdempotencyCache,
    pub(crate) presence: Presence,
    pub(crate) join_leave_queue: JoinLeaveQueue,
    pub(crate) last_seen: LastSeen,
    pub(crate) channel_events: ChannelEvents,
    /// The number of publications queued for delivery to many subscribers.
    pub(crate) queued: usize,
    /// The payload bytes of the queued publications.
    pub(crate) queued_bytes: usize,
    /// The encodings of the publication that is being delivered without being queued.
    pub(crate) scratch: Encodings,
    /// Empty sweep queues for reuse.
    #[expect(
        clippy::vec_box,
        reason = "channels refer to these queues by thin pointers"
    )]
    pub(crate) spare_queues: Vec<Box<SweepQueue>>,
    /// As the home of channels: the number of channels with subscribers on any worker.
    pub(crate) occupied: u32,
    /// The number of personal channels among the occupied channels.
    pub(crate) users: u32,
    /// As the home of channels: the sum of the numbers of receivers of all publications so far.
    pub(crate) receivers_total: u64,
}

/// The immediate outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOutcome<T> {
    /// The home is on this worker and has returned this result.
    Done(T),
    /// The request was sent to a home on another worker, or waits for the log or the engine. If it has a ticket, the
    /// reply follows later.
    Pending,
}

/// Gauges of a hub, to be summed over all workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HubGauges {
    /// The number of channels, including personal ones, with this worker as home and a subscriber on any worker.
    pub channels: u32,
    /// The number of users with this worker as home and a connection on any worker.
    pub users: u32,
    /// The number of subscriptions of this worker's sessions.
    pub subscriptions: u32,
    /// The number of publications queued for delivery to many subscribers of this worker.
    pub queued: u32,
    /// Payload bytes of the queued publications.
    pub queued_bytes: u64,
    /// The number of publications that wait for credit at this home, plus the engine's reports that were not handled
    /// yet, plus the channels with queued feed items.
    pub stalled: u32,
    /// The number of this home's requests that wait for the log or for an engine outside the process.
    pub pending: u32,
    /// The number of entries in the channel table, whatever their role.
    pub entries: u32,
    /// The number of streams of channels whose home is this worker.
    pub streams: u32,
    /// The memory in bytes of the streams of channels whose home is this worker, including their publications.
    pub history_bytes: u64,
}

impl Hub {
    /// Creates the hub of worker `me` of `workers`. `seed` must be the same for all hubs, and unknown to peers, because
    /// with the seed a peer could choose names whose hashes collide.
    ///
    /// # Panics
    /// If `me` is not less than `workers`.
    pub fn new(me: WorkerId, workers: u16, seed: u64, options: Options) -> Self {
        let engine = NodeEngine::Memory(MemoryEngine::new(options.epoch_seed));
        Self::with_engine(me, workers, seed, options, engine)
    }

    /// Iterates over the history budgets of this worker: the namespace (`None` for the common budget), the bytes used
    /// by streams with publications, and the limit in bytes.
    pub fn budgets(&self) -> impl Iterator<Item = (Option<&str>, usize, usize)> {
        let memory = match &self.engine {
            NodeEngine::Memory(engine) => Some(engine),
            NodeEngine::Remote(_) => None,
        };
        memory.into_iter().flat_map(|one| one.streams.budgets())
    }

    /// Returns the number of publications that were evicted before their expiry because a budget was exceeded.
    pub fn evicted_total(&self) -> u64 {
        match &self.engine {
            NodeEngine::Memory(engine) => engine.streams.evicted(),
            NodeEngine::Remote(_) => 0,
        }
    }
}

impl<E: Engine> Hub<E> {
    /// Creates a hub with the given engine.
    ///
    /// # Panics
    /// If `me` is not less than `workers`.
    pub fn with_engine(me: WorkerId, workers: u16, seed: u64, options: Options, engine: E) -> Self {
        assert!(me.0 < workers, "worker {} of {workers}", me.0);
        Self {
            me,
            workers,
            options,
            channels: Channels::new(me, Homes::new(seed, workers)),
            subscriptions: Subscriptions::new(),
            queued_channels: VecDeque::new(),
            stalled: Stalled::new(workers),
            log_backpressure: LogBackpressure::new(workers),
            engine,
            pending_reports: PendingReports::new(),
            unslotted: BTreeMap::new(),
            feed_queues: FeedQueues::new(),
            joins: PendingJoins::new(),
            reads: ReadCounter::default(),
            has_new_subscribers: false,
            now: Now::default(),
            namespaces: Arc::default(),
            history_answer_max: usize::MAX,
            clock_grace_until_ms: 0,
            idempotency: IdempotencyCache::default(),
            presence: Presence::default(),
            join_leave_queue: JoinLeaveQueue::default(),
            last_seen: LastSeen::default(),
            channel_events: ChannelEvents::default(),
            queued: 0,
            queued_bytes: 0,
            scratch: Encodings::default(),
            spare_queues: Vec::new(),
            occupied: 0,
            users: 0,
            receivers_total: 0,
        }
    }

    /// Handles a message from the hub of another worker.
    pub fn receive(&mut self, from: WorkerId, mail: HubMessage, outlet: &mut impl Outlet) {
        match mail {
            HubMessage::Subscribe {
                channel,
                session,
                ticket,
                registration,
                subscribe_options,
            } => {
                let caller = (session, ticket);
                let joined = self.register_subscriber(
                    from,
                    channel,
                    caller,
                    registration,
                    &subscribe_options,
                );
                if let EngineReply::Ready(joined) = joined {
                    outlet.send_message(
                        from,
                        HubMessage::Subscribed {
                            session,
                            ticket,
                            registration,
                            joined,
                        },
                    );
                }
            }
            HubMessage::Subscribed {
                session,
                ticket,
                registration,
                joined,
            } => {
                self.subscription_confirmed(session, ticket, registration, joined, outlet);
            }
            HubMessage::Unsubscribe {
                channel,
                client,
                registration,
            } => self.unregister_subscriber(from, &channel, client.as_ref(), registration),
            HubMessage::Refused {
                session,
                ticket,
                registration,
            } => self.subscription_refused(session, ticket, registration, outlet),
            HubMessage::Publish {
                channel,
                payload,
                terms,
                reply,
            } => {
                self.receive_publish(from, &channel, payload, terms, reply, outlet);
            }
            HubMessage::Deliver {
                channel,
                publication,
                previous,
            } => {
                self.receive_deliver(from, &channel, publication, previous, outlet);
            }
            HubMessage::Query {
                channel,
                query,
                session,
                ticket,
            } => {
                self.receive_query(from, &channel, &query, (session, ticket), outlet);
            }
            HubMessage::List {
                pattern,
                session,
                ticket,
            } => self.receive_list(from, &pattern, (session, ticket), outlet),
            HubMessage::Answer {
                session,
                ticket,
                answer,
            } => outlet.send_reply(session, ticket, answer),
            HubMessage::CommandUser {
                channel,
                instruction,
                reply,
            } => {
                let caller = reply.map(|(session, ticket)| Caller {
                    worker: from,
                    session,
                    ticket,
                });
                let instructed = self.broadcast_command(&channel, &instruction, caller, outlet);
                if let Some((session, ticket)) = reply {
                    let answer = HubReply::CommandDispatched(instructed);
                    let mail = HubMessage::Answer {
                        session,
                        ticket,
                        answer,
                    };
                    outlet.send_message(from, mail);
                }
            }
            HubMessage::Command {
                channel,
                instruction,
                caller,
            } => self.execute_for_sessions(&channel, &instruction, caller, outlet),
            HubMessage::Acknowledge { caller } => self.command_acknowledged(caller, outlet),
            HubMessage::Lost { channel } => self.notify_lost(&channel, outlet),
            HubMessage::LogFull { is_full } => self.log_backpressure.set(from, is_full),
        }
    }

    /// Returns the current gauges.
    pub fn gauges(&self) -> HubGauges {
        let gauges = self.engine.gauges();
        HubGauges {
            channels: self.occupied,
            users: self.users,
            subscriptions: self.subscriptions.len(),
            queued: self.queued as u32,
            queued_bytes: self.queued_bytes as u64,
            stalled: self.stalled() as u32,
            pending: gauges.waiting as u32,
            entries: self.channels.len() as u32,
            streams: gauges.channels as u32,
            history_bytes: gauges.bytes as u64,
        }
    }

    /// Returns whether publications wait for credit or for room in a queue, or reports of the engine wait to be
    /// handled; see [`HubGauges::stalled`].
    pub fn has_stalled(&self) -> bool {
        self.stalled() > 0
    }

    fn stalled(&self) -> usize {
        self.stalled.len() + self.reports()
    }

    /// Returns the number of joins and leaves dropped because the queue was full.
    pub fn dropped_join_leaves_total(&self) -> u64 {
        self.join_leave_queue.dropped()
    }

    /// As the home of channels: returns the sum of the numbers of receivers of all publications ordered by this worker.
    pub fn receivers_total(&self) -> u64 {
        self.receivers_total
    }

    /// Returns the number of workers.
    pub fn workers(&self) -> u16 {
        self.workers
    }

    /// Returns the number of this hub's worker.
    pub fn worker(&self) -> WorkerId {
        self.me
    }

    /// Returns the worker that orders a channel's publications. All hubs with the same seed return the same worker.
    pub fn home_of(&self, channel: ChannelName<'_>) -> WorkerId {
        self.home_of_name(channel.as_str())
    }

    /// Like [`home_of`](Self::home_of), for a name that was checked before.
    pub(crate) fn home_of_name(&self, name: &str) -> WorkerId {
        let hash = self.channels.hash(name);
        self.channels.home(hash, name, &self.namespaces)
    }

    pub(crate) fn find(&self, channel: &str) -> Option<u32> {
        self.channels.find(self.channels.hash(channel), channel)
    }

    /// Returns a channel's name for use in a message. If the channel has an entry, the memory of
    /// the entry's name is shared.
    pub(crate) fn channel_name(&self, hash: u64, name: &str) -> Arc<str> {
        match self.channels.find(hash, name) {
            Some(index) => self.channels[index].name.clone(),
            None => Arc::from(name),
        }
    }
}
