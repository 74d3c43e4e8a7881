//! Tests that two views of presence agree with the subscriptions: the presence that homes report,
//! and the presence that subscribers derive from joins and leaves. The order of events and the
//! number of workers vary.

mod common;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use veche_hub::{
    Caller, ChannelQuery, ClientInfo, ConnectionId, Delivery, FeedEvent, Hub, HubMessage,
    HubMessageClass, HubReply, NamespaceOptions, Namespaces, Now, Options, Outlet, PresenceError,
    PresenceStats, RequestOutcome, SubscribeOptions, Ticket, UserCommand, WorkerId,
};

use common::{name, session, subscribe};

/// In `room:1` connections join and leave; in `hall:1` users join and leave, and a user leaves
/// [`DELAY_MS`] after its last connection has gone.
const CHANNELS: [&str; 2] = ["room:1", "hall:1"];
const DELAY_MS: u64 = 30_000;

/// Number of sessions per worker. The first session of each worker observes during the whole test
/// and is not a member.
const SESSIONS: u32 = 7;

fn namespaces() -> Arc<Namespaces> {
    let mut namespaces = Namespaces::new();
    for (name, leave_delay_ms) in [("room", 0), ("hall", DELAY_MS)] {
        let options = NamespaceOptions {
            presence: true,
            join_leave: true,
            leave_delay_ms,
            ..NamespaceOptions::default()
        };
        namespaces.insert(name, options);
    }
    Arc::new(namespaces)
}

/// The members of a channel according to the joins and leaves that an observer has received.
#[derive(Default)]
struct Seen {
    clients: BTreeSet<String>,
    users: BTreeSet<String>,
}

/// The environment of the hubs: lanes, credits, and what sessions have received.
#[derive(Default)]
struct Wires {
    lanes: BTreeMap<(WorkerId, WorkerId), VecDeque<HubMessage>>,
    taken: BTreeMap<(WorkerId, WorkerId), usize>,
    /// The members as seen by the observer, by worker and channel.
    seen: BTreeMap<(WorkerId, String), Seen>,
    answers: Vec<(ConnectionId, Ticket, HubReply)>,
    /// The number of joins and leaves delivered to all sessions together.
    presence_events: usize,
}

struct Port<'w> {
    me: WorkerId,
    wires: &'w mut Wires,
}

/// Maximum number of deliveries in flight from one worker to another.
const CREDITS: usize = 3;

impl Outlet for Port<'_> {
    fn send_message(&mut self, to: WorkerId, mail: HubMessage) {
        if mail.class() == HubMessageClass::Deliver {
            *self.wires.taken.entry((self.me, to)).or_default() += 1;
        }
        let lane = self.wires.lanes.entry((self.me, to)).or_default();
        lane.push_back(mail);
    }

    fn has_credit(&self, to: WorkerId, _: HubMessageClass) -> bool {
        self.wires.taken.get(&(self.me, to)).copied().unwrap_or(0) < CREDITS
    }

    fn return_credit(&mut self, from: WorkerId, class: HubMessageClass) {
        assert_eq!(class, HubMessageClass::Deliver);
        *self.wires.taken.get_mut(&(from, self.me)).expect("taken") -= 1;
    }

    fn deliver(&mut self, session: ConnectionId, delivery: &mut Delivery<'_>) {
        self.wires.presence_events += 1;
        if session.index > 0 {
            return;
        }
        assert!(delivery.payload.bytes.is_empty() && delivery.position.is_none());
        let client = delivery.info.and_then(|info| info.client.as_ref());
        let client = client.expect("events have a user or client");
        let by_user = delivery.channel.starts_with("hall") && !client.user.is_empty();
        let key = (self.me, delivery.channel.to_owned());
        let seen = self.wires.seen.entry(key).or_default();
        let (set, member) = match by_user {
            true => (&mut seen.users, client.user.to_string()),
            false => (&mut seen.clients, client.client.to_string()),
        };
        let has_changed = match delivery.event {
            FeedEvent::Joined => set.insert(member),
            FeedEvent::Left => set.remove(&member),
            FeedEvent::Published => panic!("nothing is published"),
        };
        assert!(has_changed, "{:?} told twice of {client:?}", delivery.event);
    }

    fn send_reply(&mut self, session: ConnectionId, ticket: Ticket, answer: HubReply) {
        self.wires.answers.push((session, ticket, answer));
    }

    fn execute_command(&mut self, _: ConnectionId, _: &Arc<UserCommand>) {
        panic!("no commands are sent");
    }

    fn command_dispatched(&mut self, _: Caller, _: &Arc<UserCommand>) {
        panic!("no commands are sent");
    }
}

struct World {
    hubs: Vec<Hub>,
    wires: Wires,
    generations: Vec<Vec<u32>>,
    /// The members, that is, all subscribers except the observers.
    members: BTreeMap<(WorkerId, ConnectionId, usize), Arc<ClientInfo>>,
    now_ms: u64,
}

impl World {
    fn new(workers: u16, seed: u64) -> Self {
        let namespaces = namespaces();
        let hub = |me| {
            let mut hub = Hub::new(WorkerId(me), workers, seed, Options::default());
            hub.set_history(Arc::clone(&namespaces), usize::MAX);
            hub
        };
        let mut world = Self {
            hubs: (0..workers).map(hub).collect(),
            wires: Wires::default(),
            generations: vec![vec![0; SESSIONS as usize]; workers.into()],
            members: BTreeMap::new(),
            now_ms: 0,
        };
        for worker in 0..workers {
            for channel in CHANNELS {
                let watcher = session(0);
                let (hub, mut port) = world.at(WorkerId(worker));
                let nobody = SubscribeOptions::default();
                let result = subscribe(hub, watcher, name(channel), Ticket(0), &nobody, &mut port);
                result.expect("there is room");
            }
        }
        world.settle();
        world
    }

    fn at(&mut self, worker: WorkerId) -> (&mut Hub, Port<'_>) {
        let hub = &mut self.hubs[usize::from(worker.0)];
        let port = Port {
            me: worker,
            wires: &mut self.wires,
        };
        (hub, port)
    }

    fn step(&mut self, random: &mut fastrand::Rng) {
        let worker = WorkerId(random.u16(0..self.hubs.len() as u16));
        let index = random.u32(1..SESSIONS);
        let generation = self.generations[usize::from(worker.0)][index as usize];
        let session = ConnectionId { index, generation };
        let channel = random.usize(..CHANNELS.len());
        match random.u8(..100) {
            0..30 => self.subscribe(worker, session, channel, random),
            30..50 => {
                self.members.remove(&(worker, session, channel));
                let (hub, mut port) = self.at(worker);
                hub.unsubscribe(session, name(CHANNELS[channel]), &mut port);
            }
            50..60 => {
                for channel in 0..CHANNELS.len() {
                    self.members.remove(&(worker, session, channel));
                }
                self.generations[usize::from(worker.0)][index as usize] += 1;
                let (hub, mut port) = self.at(worker);
                hub.close(session, &mut port);
            }
            60..85 => {
                let from = WorkerId(random.u16(0..self.hubs.len() as u16));
                self.carry(from, worker);
            }
            85..97 => {
                let (hub, mut port) = self.at(worker);
                hub.sweep(random.usize(1..20), &mut port);
            }
            _ => {
                self.pass(random.u64(1..DELAY_MS));
            }
        }
    }

    fn subscribe(
        &mut self,
        worker: WorkerId,
        session: ConnectionId,
        channel: usize,
        random: &mut fastrand::Rng,
    ) {
        if self.members.contains_key(&(worker, session, channel)) {
            return;
        }
        // Some clients are anonymous, and some users have several connections.
        let user = ["", "ann", "bob", "eve"][random.usize(..4)];
        let client = Arc::new(ClientInfo {
            user: user.into(),
            client: format!("{}-{}-{}", worker.0, session.index, random.u64(..)).into(),
            conn_info: None,
            chan_info: None,
        });
        let key = (worker, session, channel);
        self.members.insert(key, Arc::clone(&client));
        let subscribe_options = SubscribeOptions {
            client: Some(client),
            ..SubscribeOptions::default()
        };
        let (hub, mut port) = self.at(worker);
        let channel = name(CHANNELS[channel]);
        let result = subscribe(
            hub,
            session,
            channel,
            Ticket(0),
            &subscribe_options,
            &mut port,
        );
        result.expect("there is room");
    }

    fn pass(&mut self, ms: u64) {
        self.now_ms += ms;
        for hub in &mut self.hubs {
            hub.set_now(Now {
                mono_ms: self.now_ms,
                wall_ms: self.now_ms,
            });
            hub.maintain();
        }
    }

    fn carry(&mut self, from: WorkerId, to: WorkerId) -> bool {
        let lane = self.wires.lanes.get_mut(&(from, to));
        let Some(mail) = lane.and_then(VecDeque::pop_front) else {
            return false;
        };
        let (hub, mut port) = self.at(to);
        hub.receive(from, mail, &mut port);
        true
    }

    fn settle(&mut self) {
        let workers = self.hubs.len() as u16;
        loop {
            let mut is_quiet = true;
            for from in 0..workers {
                for to in 0..workers {
                    while self.carry(WorkerId(from), WorkerId(to)) {
                        is_quiet = false;
                    }
                }
                let (hub, mut port) = self.at(WorkerId(from));
                is_quiet &= !hub.sweep(100, &mut port);
            }
            if is_quiet && self.wires.lanes.values().all(VecDeque::is_empty) {
                return;
            }
        }
    }

    fn ask(&mut self, worker: WorkerId, channel: &str, query: ChannelQuery) -> HubReply {
        let caller = session(0);
        self.wires.answers.clear();
        let (hub, mut port) = self.at(worker);
        match hub.query((caller, Ticket(9)), name(channel), query, &mut port) {
            RequestOutcome::Done(answer) => answer,
            RequestOutcome::Pending => {
                self.settle();
                let found = self.wires.answers.pop().expect("an answer");
                assert_eq!((found.0, found.1), (caller, Ticket(9)));
                found.2
            }
        }
    }

    /// Checks presence and the observers' views when nothing is in flight and all leave delays have ended.
    fn check(&mut self) {
        self.settle();
        self.pass(DELAY_MS);
        self.settle();
        for (place, channel) in CHANNELS.into_iter().enumerate() {
            let members = self.members.iter().filter(|(key, _)| key.2 == place);
            let members: Vec<_> = members.map(|(_, client)| Arc::clone(client)).collect();
            let clients: BTreeSet<_> = members.iter().map(|one| one.client.to_string()).collect();
            let users: BTreeSet<_> = members.iter().map(|one| one.user.to_string()).collect();
            for worker in 0..self.hubs.len() as u16 {
                let worker = WorkerId(worker);
                let HubReply::Presence(Ok(present)) =
                    self.ask(worker, channel, ChannelQuery::Presence)
                else {
                    panic!("no presence");
                };
                let present = present.iter().map(|one| one.client.to_string());
                assert_eq!(present.collect::<BTreeSet<_>>(), clients, "{channel}");
                let stats = PresenceStats {
                    clients: clients.len() as u32,
                    users: users.len() as u32,
                };
                let found = self.ask(worker, channel, ChannelQuery::PresenceStats);
                assert_eq!(found, HubReply::PresenceStats(Ok(stats)), "{channel}");

                let key = (worker, channel.to_owned());
                let seen = self.wires.seen.entry(key).or_default();
                let by_user = |one: &&Arc<ClientInfo>| place == 1 && !one.user.is_empty();
                let named = members.iter().filter(by_user);
                let named: BTreeSet<_> = named.map(|one| one.user.to_string()).collect();
                let others = members.iter().filter(|one| !by_user(one));
                let others: BTreeSet<_> = others.map(|one| one.client.to_string()).collect();
                assert_eq!((&seen.users, &seen.clients), (&named, &others), "{channel}");
            }
        }
    }
}

#[test]
fn all_workers_agree_on_members() {
    for seed in 0..60 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut world = World::new(random.u16(1..4), seed);
        for _ in 0..8 {
            for _ in 0..random.usize(1..200) {
                world.step(&mut random);
            }
            world.check();
        }
    }
}

#[test]
fn a_page_reload_is_no_leave_and_no_join() {
    let mut world = World::new(1, 1);
    let worker = WorkerId(0);
    let session = |generation| ConnectionId {
        index: 1,
        generation,
    };
    let join = |world: &mut World, generation: u32| {
        let client = ClientInfo {
            user: "ann".into(),
            client: format!("ann-{generation}").into(),
            conn_info: None,
            chan_info: None,
        };
        let subscribe_options = SubscribeOptions {
            client: Some(Arc::new(client)),
            ..SubscribeOptions::default()
        };
        let (hub, mut port) = world.at(worker);
        let channel = name(CHANNELS[1]);
        let result = subscribe(
            hub,
            session(generation),
            channel,
            Ticket(0),
            &subscribe_options,
            &mut port,
        );
        result.expect("there is room");
        world.settle();
    };
    let users = |world: &World| {
        let seen = &world.wires.seen[&(worker, CHANNELS[1].to_owned())];
        seen.users.len()
    };
    let count = |world: &mut World| {
        let answer = world.ask(worker, CHANNELS[1], ChannelQuery::PresenceStats);
        let HubReply::PresenceStats(Ok(stats)) = answer else {
            panic!("{answer:?}");
        };
        stats.clients
    };
    join(&mut world, 0);
    for generation in 0..3 {
        let (hub, mut port) = world.at(worker);
        hub.close(session(generation), &mut port);
        world.pass(DELAY_MS - 1);
        world.settle();
        // The user is announced once. A second announcement would fail an assertion in the outlet.
        assert_eq!((users(&world), count(&mut world)), (1, 1));
        join(&mut world, generation + 1);
        assert_eq!((users(&world), count(&mut world)), (1, 1));
    }
    let (hub, mut port) = world.at(worker);
    hub.close(session(3), &mut port);
    assert!(world.hubs[0].needs_maintenance());
    world.pass(DELAY_MS);
    world.settle();
    assert_eq!((users(&world), count(&mut world)), (0, 0));
    assert!(!world.hubs[0].needs_maintenance());
}

#[test]
fn last_members_may_return() {
    let mut world = World::new(1, 1);
    let worker = WorkerId(0);
    // Closes the observer, so that the channel has no subscribers besides the two users.
    let (hub, mut port) = world.at(worker);
    hub.close(session(0), &mut port);
    let users = ["ann", "bob"];
    let join = |world: &mut World, generation: u32| {
        for (place, user) in users.into_iter().enumerate() {
            let client = ClientInfo {
                user: user.into(),
                client: format!("{user}-{generation}").into(),
                conn_info: None,
                chan_info: None,
            };
            let subscribe_options = SubscribeOptions {
                client: Some(Arc::new(client)),
                ..SubscribeOptions::default()
            };
            let session = ConnectionId {
                index: place as u32 + 1,
                generation,
            };
            let (hub, mut port) = world.at(worker);
            let result = subscribe(
                hub,
                session,
                name(CHANNELS[1]),
                Ticket(0),
                &subscribe_options,
                &mut port,
            );
            result.expect("there is room");
        }
    };
    let leave = |world: &mut World, generation: u32| {
        for index in 1..=2 {
            let (hub, mut port) = world.at(worker);
            hub.close(ConnectionId { index, generation }, &mut port);
        }
    };
    let present = |world: &mut World| {
        let HubReply::Presence(Ok(present)) =
            world.ask(worker, CHANNELS[1], ChannelQuery::Presence)
        else {
            panic!("no presence");
        };
        let names = present.iter().map(|one| one.client.to_string());
        names.collect::<BTreeSet<_>>()
    };
    let named = |generation: u32| {
        let names = users.map(|user| format!("{user}-{generation}"));
        BTreeSet::from(names)
    };
    join(&mut world, 0);
    world.settle();
    for generation in 0..3 {
        // All clients disconnect, and return before the leave delay ends.
        leave(&mut world, generation);
        world.pass(DELAY_MS - 1);
        assert_eq!(present(&mut world), named(generation));
        world.wires.presence_events = 0;
        join(&mut world, generation + 1);
        world.settle();
        assert_eq!(present(&mut world), named(generation + 1));
        assert_eq!(world.wires.presence_events, 0, "nobody has joined");
    }
    leave(&mut world, 3);
    world.pass(DELAY_MS);
    assert_eq!(present(&mut world), BTreeSet::new());
    assert!(!world.hubs[0].needs_maintenance());
    assert_eq!(world.hubs[0].session_resources().count(), 0);
}

#[test]
fn channels_without_presence_say_so() {
    let mut world = World::new(2, 2);
    for query in [ChannelQuery::Presence, ChannelQuery::PresenceStats] {
        match world.ask(WorkerId(0), "other:1", query) {
            HubReply::Presence(Err(why)) | HubReply::PresenceStats(Err(why)) => {
                assert_eq!(why, PresenceError::Off);
            }
            other => panic!("{other:?}"),
        }
    }
}
