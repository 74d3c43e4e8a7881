//! The hubs of a simulated node, the lanes between them, and the model with which they are compared.

mod crash;
mod disk;
mod port;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use veche_hub::{
    Caller, CommandDispatch, ConnectionId, DeltaMode, Epoch, HistoryOptions, Hub, HubMessage,
    HubMessageClass, HubReply, NamespaceOptions, Namespaces, NoCredit, Now, Options, PayloadKind,
    PayloadRef, Position, PublishOutcome, RecoveryMode, RequestOutcome, Since, SubscribeError,
    SubscribeOptions, SubscribeOutcome, Ticket, USERS, UserAction, UserCommand, WorkerId,
};

use crate::common::{name, session, subscribe};
use disk::Disk;
use port::Port;

/// How the credits of a lane are counted.
#[derive(Clone, Copy)]
pub(crate) enum Lanes {
    /// Publications and deliveries each have their own pool of this many credits.
    Apart { credits: usize },
    /// There is one pool of this many credits; publications may use only half of it.
    Shared { credits: usize },
}

pub(crate) struct Setup {
    pub(crate) workers: u16,
    pub(crate) lanes: Lanes,
    pub(crate) queue_publications_max: usize,
    pub(crate) queue_bytes_max: usize,
    pub(crate) sessions: u32,
    pub(crate) channels: usize,
    /// Whether hubs have a log and processes can crash.
    pub(crate) is_logged: bool,
}

/// A subscriber: its worker, its session, and the channel.
type Member = (WorkerId, ConnectionId, String);

/// A subscription, from its request to its end.
#[derive(Debug)]
pub(crate) struct Life {
    member: Member,
    answered: bool,
    /// The number of publications in the channel's order when the home registered the subscription.
    since: Option<usize>,
    received: Vec<u64>,
    /// The positions of the received publications.
    positions: Vec<Option<Position>>,
    /// The offset from which the subscriber asked to recover.
    asked: Option<u64>,
    joined: Option<Box<SubscribeOutcome>>,
    ended: bool,
}

/// The history sizes of channels with a namespace and of personal channels. All other channels store nothing.
const CHAT_SIZE: usize = 6;
const USERS_SIZE: usize = 100_000;

fn namespaces() -> Namespaces {
    let namespace = |size: usize| NamespaceOptions {
        history: Some(HistoryOptions {
            size: size as u32,
            ttl_ms: 1_000,
            position_ttl_ms: 2_000,
            recovery: RecoveryMode::Missed,
            budget: veche_hub::Budget::COMMON,
        }),
        delta_mode: DeltaMode::Always,
        ..NamespaceOptions::default()
    };
    let mut namespaces = Namespaces::new();
    namespaces.insert("chat", namespace(CHAT_SIZE));
    namespaces.insert(USERS, namespace(USERS_SIZE));
    namespaces
}

/// Returns the history size of a channel.
fn remembered(channel: &str) -> usize {
    match channel.split_once(':') {
        Some(_) => CHAT_SIZE,
        None if channel.starts_with('#') => USERS_SIZE,
        None => 0,
    }
}

impl Life {
    /// Checks that the position at which the subscriber joined and the publications that it received agree with the
    /// channel's order, and that its recovery was complete exactly when all missed publications were stored.
    fn check_positions(&self, since: usize, order: &[u64]) {
        let channel = &self.member.2;
        let size = remembered(channel);
        if size == 0 {
            assert!(self.joined.is_none() && self.positions.iter().all(Option::is_none));
            return;
        }
        for (place, position) in self.positions.iter().enumerate() {
            let offset = position.expect("the channel remembers").offset;
            assert_eq!(offset as usize, since + place + 1, "{channel}");
        }
        let Some(joined) = &self.joined else {
            assert!(!self.answered);
            return;
        };
        assert_eq!(joined.position.offset as usize, since, "{channel}");
        let Some(asked) = self.asked else {
            assert_eq!(joined.recovered, None);
            return;
        };
        let asked = asked as usize;
        let is_there = asked <= since && since - asked <= size.min(since);
        let recovered = joined.recovered.as_ref().expect("asked for");
        assert_eq!(
            recovered.is_complete, is_there,
            "{asked} of {since}, {channel}"
        );
        let missed = if is_there { &order[asked..since] } else { &[] };
        let got = recovered
            .publications
            .iter()
            .enumerate()
            .map(|(place, one)| {
                let offset = one.position.expect("the channel remembers").offset;
                assert_eq!(offset as usize, asked + place + 1);
                u64::from_le_bytes(one.payload.bytes[..].try_into().expect("eight bytes"))
            });
        assert_eq!(got.collect::<Vec<_>>(), missed, "{channel}");
    }
}

/// The environment of the hubs (lanes and credits), and the model.
pub(crate) struct Wires {
    pub(crate) setup: Lanes,
    pub(crate) lanes: BTreeMap<(WorkerId, WorkerId), VecDeque<HubMessage>>,
    /// The number of credits in use, by sender, receiver and class.
    pub(crate) taken: BTreeMap<(WorkerId, WorkerId, Class2), usize>,
    /// The returned credits that have not reached the sender yet.
    pub(crate) returning: Vec<(WorkerId, WorkerId, Class2)>,
    /// The publications of each channel, in the order in which its home accepted them.
    pub(crate) orders: BTreeMap<String, Vec<u64>>,
    /// The subscriptions, by the ticket of their request.
    pub(crate) lives: BTreeMap<Ticket, Life>,
    pub(crate) current: BTreeMap<Member, Ticket>,
    /// The worker that sent each publication, by the publication's number. The numbers of one worker increase.
    pub(crate) sources: BTreeMap<u64, WorkerId>,
    /// The publications without a reply: channel, number, and whether the home has accepted the publication.
    pub(crate) published: BTreeMap<Ticket, (String, u64, bool)>,
    /// The last reply to a publication.
    pub(crate) answered: Option<PublishOutcome>,
    pub(crate) disconnected: Vec<(WorkerId, ConnectionId)>,
    pub(crate) disconnects: BTreeMap<Ticket, CommandDispatch>,
    /// The workers whose sessions have not executed a command yet, with the command and its caller.
    pub(crate) settling: Vec<(WorkerId, Caller, Arc<UserCommand>)>,
    /// The number of acknowledgements received for each ticket.
    pub(crate) settled: BTreeMap<Ticket, u32>,
    /// The epochs of channels with history.
    pub(crate) epochs: BTreeMap<String, Epoch>,
    /// The number of deliveries whose `previous` payload the receiver had received before.
    pub(crate) previous: u64,
}

/// `HubMessageClass` as a key: 0 for publications, 1 for deliveries.
type Class2 = u8;

pub(crate) struct World {
    options: Options,
    hubs: Vec<Hub>,
    /// The logs, if hubs have logs.
    disk: Option<Disk>,
    wires: Wires,
    sessions: Vec<Vec<ConnectionId>>,
    channels: Vec<String>,
    /// The publications of each worker that were refused and will be retried, in order.
    paused: Vec<VecDeque<(String, u64)>>,
    next: u32,
}

impl World {
    pub(crate) fn new(setup: &Setup, seed: u64) -> Self {
        let options = Options {
            channel_queue_publications_max: setup.queue_publications_max,
            queue_bytes_max: setup.queue_bytes_max,
            ..Options::default()
        };
        let workers = setup.workers;
        let sessions = (0..setup.sessions).map(session);
        let sessions: Vec<_> = sessions.collect();
        let channels = ["news", "#tester01", "chat:1", "#tester02", "chat:2", "вече"];
        let mut world = Self {
            options,
            hubs: Vec::new(),
            disk: setup.is_logged.then(Disk::default),
            wires: Wires::new(setup.lanes),
            sessions: vec![sessions; workers.into()],
            channels: channels[..setup.channels]
                .iter()
                .map(ToString::to_string)
                .collect(),
            paused: vec![VecDeque::new(); workers.into()],
            next: 0,
        };
        world.begin(workers, seed);
        world
    }

    /// Starts a process with the given number of workers, and restores the stored streams in it.
    fn begin(&mut self, workers: u16, seed: u64) {
        let namespaces = Arc::new(namespaces());
        let hub = |me| {
            let options = Options {
                epoch_seed: seed ^ u64::from(me),
                ..self.options.clone()
            };
            let mut hub = Hub::new(WorkerId(me), workers, seed, options);
            hub.set_history(Arc::clone(&namespaces), usize::MAX);
            hub
        };
        self.hubs = (0..workers).map(hub).collect();
        if let Some(disk) = &mut self.disk {
            disk.begin(workers);
            for hub in &mut self.hubs {
                hub.enable_log();
            }
            for restored in disk.restored() {
                let home = self.hubs[0].home_of(name(&restored.channel));
                let hub = &mut self.hubs[usize::from(home.0)];
                assert_eq!(hub.restore(restored.clone()), Ok(true));
            }
        }
    }

    /// Performs one random action.
    pub(crate) fn step(&mut self, random: &mut fastrand::Rng) {
        if self.disk.is_some() && random.u8(0..4) == 0 {
            return self.step_of_log(random);
        }
        let worker = WorkerId(random.u16(0..self.hubs.len() as u16));
        match random.u8(0..100) {
            0..20 => {
                let session = self.any_session(worker, random);
                let channel = self.any_channel(random);
                let asked = self.any_offset(&channel, random);
                self.subscribe(worker, session, &channel, asked);
            }
            20..30 => {
                let session = self.any_session(worker, random);
                let channel = self.any_channel(random);
                self.unsubscribe(worker, session, &channel);
            }
            30..33 => {
                let session = self.any_session(worker, random);
                self.close(worker, session);
            }
            33..55 => {
                let channel = self.any_channel(random);
                let number = self.number();
                self.paused[usize::from(worker.0)].push_back((channel, number.into()));
                self.publish_paused(worker);
            }
            55..60 => {
                self.publish_paused(worker);
            }
            60..85 => {
                let from = WorkerId(random.u16(0..self.hubs.len() as u16));
                self.carry(from, worker);
            }
            85..90 => {
                self.return_credits(random.usize(..8));
            }
            90..92 => {
                let (hub, mut port) = self.at(worker);
                hub.sweep(0, &mut port);
            }
            _ => {
                let deliveries_max = random.usize(1..60);
                let (hub, mut port) = self.at(worker);
                hub.sweep(deliveries_max, &mut port);
            }
        }
    }

    /// Delivers all messages in flight and all queued publications. Fails if this does not end.
    pub(crate) fn settle(&mut self, random: &mut fastrand::Rng) {
        // Each round makes progress, and no case needs as many rounds as this.
        for _ in 0..200_000 {
            let mut is_quiet = true;
            for from in self.workers() {
                for to in self.workers() {
                    is_quiet &= !self.carry(from, to);
                }
            }
            self.return_credits(usize::MAX);
            for worker in self.workers() {
                let deliveries_max = random.usize(1..200);
                let (hub, mut port) = self.at(worker);
                is_quiet &= !hub.sweep(deliveries_max, &mut port);
                is_quiet &= !self.publish_paused(worker);
                is_quiet &= !self.write_log(worker);
            }
            is_quiet &= self.wires.returning.is_empty();
            is_quiet &= self.wires.lanes.values().all(VecDeque::is_empty);
            if is_quiet {
                break;
            }
        }
        for (worker, hub) in self.hubs.iter().enumerate() {
            let counts = hub.gauges();
            let waiting = (counts.stalled, counts.queued, counts.queued_bytes);
            assert_eq!(waiting, (0, 0, 0), "stuck on worker {worker}");
            assert_eq!(counts.pending, 0, "stuck on worker {worker}");
            assert!(
                self.paused[worker].is_empty(),
                "a source of worker {worker} is stuck"
            );
        }
        assert!(
            self.wires.lanes.values().all(VecDeque::is_empty),
            "mail is stuck"
        );
        assert!(
            self.wires.taken.values().all(|taken| *taken == 0),
            "credits are lost"
        );
        assert!(
            self.wires.published.is_empty(),
            "publications without an answer"
        );
    }

    /// Checks that each subscriber has received all publications since its registration, in order.
    pub(crate) fn check_sequences(&self) {
        for (channel, order) in &self.wires.orders {
            for worker in self.workers() {
                let is_from = |number: &&u64| self.wires.sources[*number] == worker;
                let is_sorted = order.iter().filter(is_from).is_sorted();
                assert!(
                    is_sorted,
                    "{worker:?} was overtaken by itself on {channel}: {order:?}"
                );
            }
        }
        for (ticket, life) in &self.wires.lives {
            let order = self
                .wires
                .orders
                .get(&life.member.2)
                .map_or(&[][..], Vec::as_slice);
            let Some(since) = life.since else {
                assert!(
                    life.ended && life.received.is_empty(),
                    "{ticket:?} {life:?}"
                );
                continue;
            };
            life.check_positions(since, order);
            let due = &order[since..];
            if life.ended {
                assert!(
                    due.starts_with(&life.received),
                    "{ticket:?} {life:?} not in {due:?}"
                );
            } else {
                assert!(life.answered, "{ticket:?} {life:?}");
                assert_eq!(life.received, due, "{ticket:?} {:?}", life.member);
            }
        }
    }

    /// Checks, when nothing is in flight, that a publication is delivered to exactly the current subscribers.
    pub(crate) fn check_handed(&mut self) {
        let mut totals = (0, 0, 0);
        for channel in self.channels.clone() {
            let members = self
                .wires
                .current
                .keys()
                .filter(|member| member.2 == channel);
            let expected = members.count() as u32;
            let home = self.hubs[0].home_of(name(&channel));
            let number = self.number();
            let outcome = self.publish(home, &channel, number.into());
            let published = match outcome {
                Ok(RequestOutcome::Done(published)) => published,
                Ok(RequestOutcome::Pending) if self.disk.is_some() && remembered(&channel) > 0 => {
                    self.settle(&mut fastrand::Rng::with_seed(1));
                    self.wires.answered.take().expect("it was answered")
                }
                _ => panic!("{channel}: {outcome:?}"),
            };
            let PublishOutcome {
                receivers: handed,
                position,
                ..
            } = published;
            assert_eq!(handed, Some(expected), "{channel}");
            let offset = position.map(|position| position.offset as usize);
            let order = self.wires.orders.get(&channel);
            let top = order.map(Vec::len).filter(|_| remembered(&channel) > 0);
            assert_eq!(offset, top, "{channel}");
            totals.0 += u32::from(expected > 0);
            totals.1 += u32::from(expected > 0 && name(&channel).user().is_some());
            totals.2 += expected;
            self.settle(&mut fastrand::Rng::with_seed(1));
        }
        self.check_sequences();
        let counts = self.hubs.iter().map(Hub::gauges);
        let found = counts.fold((0, 0, 0), |sum, counts| {
            (
                sum.0 + counts.channels,
                sum.1 + counts.users,
                sum.2 + counts.subscriptions,
            )
        });
        assert_eq!(found, totals, "channels, users, subscriptions");
    }

    /// Checks that a disconnect of a user reaches, counts and unsubscribes all of the user's connections.
    pub(crate) fn check_disconnect(&mut self, random: &mut fastrand::Rng) {
        for worker in self.workers() {
            let channel = if worker.0 % 2 == 0 {
                "#tester01"
            } else {
                "#tester02"
            };
            let members = self
                .wires
                .current
                .keys()
                .filter(|member| member.2 == channel);
            let mut expected: Vec<_> = members.map(|member| (member.0, member.1)).collect();
            let ticket = Ticket(self.number());
            let from = Some((
                ConnectionId {
                    index: 9,
                    generation: 9,
                },
                ticket,
            ));
            let (hub, mut port) = self.at(worker);
            let outcome = {
                let disconnect = UserAction::Disconnect {
                    code: 3000,
                    reason: Arc::from("begone"),
                };
                hub.send_user_command(
                    from,
                    &channel[1..],
                    UserCommand::to_all(disconnect),
                    &mut port,
                )
            };
            self.settle(random);
            let instructed = match outcome {
                Ok(RequestOutcome::Done(instructed)) => instructed,
                Ok(RequestOutcome::Pending) => self.wires.disconnects[&ticket],
                Err(error) => panic!("{error}"),
            };
            assert_eq!(instructed.connections, expected.len() as u32);
            let mut disconnected = std::mem::take(&mut self.wires.disconnected);
            disconnected.sort();
            expected.sort();
            assert_eq!(disconnected, expected);
            for (worker, session) in disconnected {
                self.close(worker, session);
            }
            assert_eq!(self.wires.settled.get(&ticket), None, "nothing is done yet");
            for (worker, caller, instruction) in std::mem::take(&mut self.wires.settling) {
                let (hub, mut port) = self.at(worker);
                hub.acknowledge_command(caller, &instruction, &mut port);
            }
            self.settle(random);
            let settled = self.wires.settled.remove(&ticket).unwrap_or_default();
            assert_eq!(settled, instructed.pending_acknowledgements);
        }
    }

    /// Returns the number of deliveries whose `previous` payload the receiver had received before.
    pub(crate) fn previous(&self) -> u64 {
        self.wires.previous
    }

    /// Closes all sessions, and checks that no resources are left.
    pub(crate) fn end(&mut self) {
        for worker in self.workers() {
            for session in self.sessions[usize::from(worker.0)].clone() {
                self.close(worker, session);
            }
        }
        self.settle(&mut fastrand::Rng::with_seed(2));
        self.check_disk();
        for hub in &mut self.hubs {
            // At the first time, all publications have expired; at the second, all positions.
            for wall_ms in [1_000, 61_000] {
                hub.set_now(Now {
                    mono_ms: 3_600_000,
                    wall_ms,
                });
                hub.maintain();
            }
            assert_eq!(
                hub.gauges(),
                veche_hub::HubGauges::default(),
                "something is left"
            );
        }
        self.settle(&mut fastrand::Rng::with_seed(3));
        if let Some(disk) = &self.disk {
            assert!(disk.streams.is_empty(), "something is left on disk");
        }
    }

    /// Returns an offset with which a subscriber may return: that of a publication, or one beyond the last.
    fn any_offset(&self, channel: &str, random: &mut fastrand::Rng) -> Option<u64> {
        let is_known = self.wires.epochs.contains_key(channel);
        let count = self.wires.orders.get(channel).map_or(0, Vec::len) as u64;
        let lowest = count.saturating_sub(10);
        (is_known && random.u8(0..4) > 0).then(|| random.u64(lowest..count + 2))
    }

    fn subscribe(
        &mut self,
        worker: WorkerId,
        session: ConnectionId,
        channel: &str,
        asked: Option<u64>,
    ) {
        let epoch = self.wires.epochs.get(channel).copied();
        let since = asked.map(|offset| Arc::from([Since { epoch, offset }]));
        let member = (worker, session, channel.to_owned());
        let ticket = Ticket(self.number());
        let is_new = !self.wires.current.contains_key(&member);
        if is_new {
            let life = Life {
                member: member.clone(),
                answered: false,
                since: None,
                received: Vec::new(),
                positions: Vec::new(),
                asked,
                joined: None,
                ended: false,
            };
            self.wires.lives.insert(ticket, life);
            self.wires.current.insert(member, ticket);
        }
        let (hub, mut port) = self.at(worker);
        let subscribe_options = SubscribeOptions {
            since,
            ..SubscribeOptions::default()
        };
        let result = subscribe(
            hub,
            session,
            name(channel),
            ticket,
            &subscribe_options,
            &mut port,
        );
        let expected = if is_new {
            Ok(())
        } else {
            Err(SubscribeError::AlreadySubscribed)
        };
        assert_eq!(result, expected);
    }

    fn unsubscribe(&mut self, worker: WorkerId, session: ConnectionId, channel: &str) {
        let was_there = self.wires.leave(&(worker, session, channel.to_owned()));
        let (hub, mut port) = self.at(worker);
        assert_eq!(
            hub.unsubscribe(session, name(channel), &mut port),
            was_there
        );
    }

    fn close(&mut self, worker: WorkerId, session: ConnectionId) {
        for channel in self.channels.clone() {
            self.wires.leave(&(worker, session, channel));
        }
        let known = &mut self.sessions[usize::from(worker.0)][session.index as usize];
        let had_any = self.hubs[usize::from(worker.0)].gauges().subscriptions > 0;
        if *known == session {
            known.generation += 1;
        }
        let (hub, mut port) = self.at(worker);
        hub.close(session, &mut port);
        if had_any {
            // Calls with a stale id must have no effect.
            assert!(!hub.unsubscribe(session, name("news"), &mut port));
            hub.close(session, &mut port);
        }
    }

    /// Retries the refused publications of a worker. Returns whether any was accepted.
    fn publish_paused(&mut self, worker: WorkerId) -> bool {
        let mut has_gone = false;
        while let Some((channel, number)) = self.paused[usize::from(worker.0)].pop_front() {
            if self.publish(worker, &channel, number).is_err() {
                self.paused[usize::from(worker.0)].push_front((channel, number));
                break;
            }
            has_gone = true;
        }
        has_gone
    }

    fn publish(
        &mut self,
        worker: WorkerId,
        channel: &str,
        number: u64,
    ) -> Result<RequestOutcome<PublishOutcome>, NoCredit> {
        let ticket = Ticket(self.number());
        let from = Some((
            ConnectionId {
                index: 7,
                generation: 7,
            },
            ticket,
        ));
        let bytes = &number.to_le_bytes();
        self.wires.sources.insert(number, worker);
        let (hub, mut port) = self.at(worker);
        let payload = PayloadRef {
            kind: PayloadKind::Binary,
            bytes,
        };
        let outcome = hub.publish(from, name(channel), payload, None, &mut port)?;
        match outcome {
            RequestOutcome::Done(_) => self.wires.order(channel, number),
            RequestOutcome::Pending => {
                self.wires
                    .published
                    .insert(ticket, (channel.to_owned(), number, false));
            }
        }
        Ok(outcome)
    }

    /// Delivers one message from one worker to another. Returns `false` if there is none.
    fn carry(&mut self, from: WorkerId, to: WorkerId) -> bool {
        let mail = self
            .wires
            .lanes
            .get_mut(&(from, to))
            .and_then(VecDeque::pop_front);
        let Some(mail) = mail else { return false };
        let (hub, mut port) = self.at(to);
        hub.receive(from, mail, &mut port);
        true
    }

    fn return_credits(&mut self, count: usize) {
        let count = count.min(self.wires.returning.len());
        for lane in self.wires.returning.drain(..count) {
            let taken = self.wires.taken.get_mut(&lane).expect("it was taken");
            *taken = taken.checked_sub(1).expect("credits go back once");
        }
    }

    fn at(&mut self, worker: WorkerId) -> (&mut Hub, Port<'_>) {
        let hub = &mut self.hubs[usize::from(worker.0)];
        (
            hub,
            Port {
                me: worker,
                wires: &mut self.wires,
            },
        )
    }

    fn workers(&self) -> impl Iterator<Item = WorkerId> + use<> {
        (0..self.hubs.len() as u16).map(WorkerId)
    }

    fn any_session(&self, worker: WorkerId, random: &mut fastrand::Rng) -> ConnectionId {
        *random
            .choice(&self.sessions[usize::from(worker.0)])
            .expect("there are sessions")
    }

    /// Returns a random channel: in half of the cases the first one, which therefore has many subscribers.
    fn any_channel(&self, random: &mut fastrand::Rng) -> String {
        let index = if random.bool() {
            0
        } else {
            random.usize(..self.channels.len())
        };
        self.channels[index].clone()
    }

    fn number(&mut self) -> u32 {
        self.next += 1;
        self.next
    }
}
