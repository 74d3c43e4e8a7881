//! The hub's state, and where mail goes. Start reading here.
//!
//! Who joins and leaves is in `membership.rs`, publishing in `publish.rs`, what can't go on for lack of credit in
//! `stalled.rs`, fan-out in `sweep.rs`. The seam of what orders and stores is `engine.rs`, what that reports is taken in
//! `reports.rs` and `lines.rs`, subscribers that wait for it are in `joins.rs`; the engine in memory is `memory.rs`, what waits until it is on disk `log.rs`, publishers'
//! shares of its budgets `accounts.rs`. What channels remember is asked for in `history.rs`, who is there is in
//! `presence.rs` and who is told of it in `announcements.rs`, what homes are asked in `question.rs`, what is done to users
//! in `user.rs`, when that is done in `settling.rs`.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::announcements::Announcements;
use crate::chain::Reads;
use crate::channel::{Channels, Home};
use crate::engine::Step;
use crate::happenings::Happenings;
use crate::holds::Holds;
use crate::homes;
use crate::joins::Joins;
use crate::lines::Lines;
use crate::memory::MemoryEngine;
use crate::presence::Presence;
use crate::queue::Queue;
use crate::recent::Recent;
use crate::reports::Arrived;
use crate::stalled::Stalled;
use crate::subscription::Subscriptions;
use crate::user::Gone;
use crate::{
    Answer, Caller, ChannelName, Encodings, Engine, Mail, Namespaces, NodeEngine, Now, Options,
    Outlet, WorkerId,
};

/// One worker's hub, with the [engine](crate::engine) of the channels whose home it is.
pub struct Hub<E = NodeEngine> {
    pub(crate) me: WorkerId,
    pub(crate) workers: u16,
    pub(crate) options: Options,
    pub(crate) channels: Channels,
    pub(crate) subscriptions: Subscriptions,
    /// Channels with a queue, in the order of their turns.
    pub(crate) busy: VecDeque<u32>,
    pub(crate) stalled: Stalled,
    pub(crate) holds: Holds,
    /// As home: orders and stores.
    pub(crate) engine: E,
    pub(crate) arrived: Arrived,
    /// Receipts of channels without a slot, by the channel's entry.
    pub(crate) unslotted: BTreeMap<u32, u32>,
    pub(crate) lines: Lines,
    pub(crate) joins: Joins,
    pub(crate) reads: Reads,
    /// Sessions of this worker were just told what they join; before they know, nothing is fed.
    pub(crate) has_admitted: bool,
    pub(crate) now: Now,
    pub(crate) namespaces: Arc<Namespaces>,
    pub(crate) history_answer_max: usize,
    /// Until then the wall clock may not be right, by the other one.
    pub(crate) doubts_clock_until: u64,
    pub(crate) recent: Recent,
    pub(crate) presence: Presence,
    pub(crate) announcements: Announcements,
    pub(crate) gone: Gone,
    pub(crate) happenings: Happenings,
    /// Publications that wait for a sweep, and the bytes of their payloads.
    pub(crate) queued: usize,
    pub(crate) queued_bytes: usize,
    /// For deliveries that are not queued.
    pub(crate) scratch: Encodings,
    /// Empty queues for the next channels that need one.
    #[expect(clippy::vec_box, reason = "channels hold them by a thin pointer")]
    pub(crate) spare_queues: Vec<Box<Queue>>,
    /// As home: channels with a subscriber anywhere, and how many of them are personal.
    pub(crate) occupied: u32,
    pub(crate) users: u32,
    /// As home: subscribers of all publications so far, together.
    pub(crate) handed: u64,
}

/// What became of a request at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<T> {
    /// The home is here and did it, with this result.
    Done(T),
    /// It is on its way to the home, or waits there for the log; if it had a ticket, its answer comes later.
    Pending,
}

/// The hub's gauges, for metrics. Sum them over the workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Channels with their home here that have a subscriber on any worker, personal ones included.
    pub channels: u32,
    /// Users with their home here that are connected to any worker.
    pub users: u32,
    /// Subscriptions of this worker's sessions.
    pub subscriptions: u32,
    /// Publications that wait here for a sweep.
    pub queued: u32,
    /// Bytes of their payloads.
    pub queued_bytes: u64,
    /// What waits here, their home, for credit: publications, and what is in the log already.
    pub stalled: u32,
    /// Publications that wait here, their home, for the log, and what has its place behind them.
    pub pending: u32,
    /// Entries of the table of channels, in either role.
    pub entries: u32,
    /// Streams of channels that remember, with their home here.
    pub streams: u32,
    /// Bytes that these take with their publications.
    pub history_bytes: u64,
}

impl Hub {
    /// The hub of worker `me` of `workers`. `seed` must be the same for all of them, and one that
    /// peers can't guess: it decides about hash collisions.
    ///
    /// # Panics
    /// If `me` is not one of `workers`.
    pub fn new(me: WorkerId, workers: u16, seed: u64, options: Options) -> Self {
        let engine = NodeEngine::Memory(MemoryEngine::new(options.epoch_seed));
        Self::with_engine(me, workers, seed, options, engine)
    }

    /// The budgets of what channels remember: its namespace, `None` for the common one; the
    /// bytes that streams with publications take of it here, and may take here.
    pub fn budgets(&self) -> impl Iterator<Item = (Option<&str>, usize, usize)> {
        let memory = match &self.engine {
            NodeEngine::Memory(engine) => Some(engine),
            NodeEngine::Remote(_) => None,
        };
        memory.into_iter().flat_map(|one| one.streams.budgets())
    }

    /// Publications that channels had to forget before their time, for lack of room, so far.
    pub fn evicted_total(&self) -> u64 {
        match &self.engine {
            NodeEngine::Memory(engine) => engine.streams.evicted(),
            NodeEngine::Remote(_) => 0,
        }
    }
}

impl<E: Engine> Hub<E> {
    /// The same on another engine.
    ///
    /// # Panics
    /// If `me` is not one of `workers`.
    pub fn with_engine(me: WorkerId, workers: u16, seed: u64, options: Options, engine: E) -> Self {
        assert!(me.0 < workers, "worker {} of {workers}", me.0);
        Self {
            me,
            workers,
            options,
            channels: Channels::new(seed),
            subscriptions: Subscriptions::new(),
            busy: VecDeque::new(),
            stalled: Stalled::new(workers),
            holds: Holds::new(workers),
            engine,
            arrived: Arrived::new(),
            unslotted: BTreeMap::new(),
            lines: Lines::new(),
            joins: Joins::new(),
            reads: Reads::default(),
            has_admitted: false,
            now: Now::default(),
            namespaces: Arc::default(),
            history_answer_max: usize::MAX,
            doubts_clock_until: 0,
            recent: Recent::default(),
            presence: Presence::default(),
            announcements: Announcements::default(),
            gone: Gone::default(),
            happenings: Happenings::default(),
            queued: 0,
            queued_bytes: 0,
            scratch: Encodings::default(),
            spare_queues: Vec::new(),
            occupied: 0,
            users: 0,
            handed: 0,
        }
    }

    /// Takes a mail from the hub of another worker.
    pub fn receive(&mut self, from: WorkerId, mail: Mail, outlet: &mut impl Outlet) {
        match mail {
            Mail::Subscribe {
                channel,
                session,
                ticket,
                registration,
                joining,
            } => {
                let caller = (session, ticket);
                let joined = self.count_in(from, channel, caller, registration, &joining);
                if let Step::Done(joined) = joined {
                    outlet.mail(
                        from,
                        Mail::Subscribed {
                            session,
                            ticket,
                            registration,
                            joined,
                        },
                    );
                }
            }
            Mail::Subscribed {
                session,
                ticket,
                registration,
                joined,
            } => {
                self.subscribed(session, ticket, registration, joined, outlet);
            }
            Mail::Unsubscribe {
                channel,
                client,
                registration,
            } => self.count_out(from, &channel, client.as_ref(), registration),
            Mail::Refused {
                session,
                ticket,
                registration,
            } => self.refused(session, ticket, registration, outlet),
            Mail::Publish {
                channel,
                payload,
                terms,
                reply,
            } => {
                self.receive_publish(from, &channel, payload, terms, reply, outlet);
            }
            Mail::Deliver {
                channel,
                publication,
                previous,
            } => {
                self.receive_deliver(from, &channel, publication, previous, outlet);
            }
            Mail::Ask {
                channel,
                question,
                session,
                ticket,
            } => {
                self.receive_question(from, &channel, &question, (session, ticket), outlet);
            }
            Mail::List {
                pattern,
                session,
                ticket,
            } => self.receive_list(from, &pattern, (session, ticket), outlet),
            Mail::Answer {
                session,
                ticket,
                answer,
            } => outlet.answer(session, ticket, answer),
            Mail::InstructAll {
                channel,
                instruction,
                reply,
            } => {
                let caller = reply.map(|(session, ticket)| Caller {
                    worker: from,
                    session,
                    ticket,
                });
                let instructed = self.pass_on(&channel, &instruction, caller, outlet);
                if let Some((session, ticket)) = reply {
                    let answer = Answer::Instructed(instructed);
                    let mail = Mail::Answer {
                        session,
                        ticket,
                        answer,
                    };
                    outlet.mail(from, mail);
                }
            }
            Mail::Instruct {
                channel,
                instruction,
                caller,
            } => self.begin_instruction(&channel, &instruction, caller, outlet),
            Mail::Settle { caller } => self.settled(caller, outlet),
            Mail::Lost { channel } => self.tell_lost(&channel, outlet),
            Mail::LogFull { is_full } => self.holds.set(from, is_full),
        }
    }

    /// The gauges as they stand.
    pub fn counts(&self) -> Counts {
        let gauges = self.engine.gauges();
        Counts {
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

    /// Whether publications wait for credit, for room in a queue or for their turn after the log: [`Counts::stalled`].
    pub fn has_stalled(&self) -> bool {
        self.stalled() > 0
    }

    fn stalled(&self) -> usize {
        self.stalled.len() + self.reports()
    }

    /// Joins and leaves that were not told for lack of room, so far.
    pub fn untold_total(&self) -> u64 {
        self.announcements.untold()
    }

    /// As home: subscribers of all publications that were ordered here so far, together.
    pub fn handed_total(&self) -> u64 {
        self.handed
    }

    /// How many workers there are.
    pub fn workers(&self) -> u16 {
        self.workers
    }

    /// Whose hub this is.
    pub fn worker(&self) -> WorkerId {
        self.me
    }

    /// The worker that orders a channel: all hubs of one seed agree.
    pub fn home_of(&self, channel: ChannelName<'_>) -> WorkerId {
        self.home(self.channels.hash(channel.as_str()), channel.as_str())
    }

    pub(crate) fn home(&self, hash: u64, name: &str) -> WorkerId {
        let hash = match self.wildcard_of(name) {
            None => hash,
            // All channels that are heard together are ordered together.
            Some(wildcard) => self.channels.hash(wildcard),
        };
        homes::scale(hash, self.workers)
    }

    /// The channel's entry, which is made if there is none.
    pub(crate) fn entry(&mut self, hash: u64, name: &str) -> u32 {
        if let Some(index) = self.channels.find(hash, name) {
            return index;
        }
        let home = match self.home(hash, name) {
            home if home == self.me => Home::HERE,
            home => Home::away(home),
        };
        self.channels.insert(hash, Arc::from(name), home)
    }

    pub(crate) fn find(&self, channel: &str) -> Option<u32> {
        self.channels.find(self.channels.hash(channel), channel)
    }

    /// The name to send, shared with the entry if there is one.
    pub(crate) fn channel_name(&self, hash: u64, name: &str) -> Arc<str> {
        match self.channels.find(hash, name) {
            Some(index) => self.channels[index].name.clone(),
            None => Arc::from(name),
        }
    }
}
