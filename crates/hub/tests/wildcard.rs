//! Tests that a subscriber of a wildcard channel receives the same publications as the subscribers of each channel, in
//! the same order. The order of events and the number of workers vary, and lanes have few credits.

mod common;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use veche_hub::{
    Caller, ConnectionId, Delivery, FeedEvent, Hub, HubMessage, HubMessageClass, HubReply,
    NamespaceOptions, Namespaces, NoCredit, Options, Outlet, PayloadKind, PayloadRef,
    RequestOutcome, SubscribeOptions, Ticket, UserCommand, Wildcards, WorkerId,
};

use common::{name, session, subscribe};

const WILDCARD: &str = "news:*";
/// The channels that the wildcard channel covers; the next constant has those that it does not cover.
const HEARD: [&str; 3] = ["news:1", "news:2", "news:3"];
const UNHEARD: [&str; 3] = ["news:$secret", "news:4#ann", "chat:1"];

/// The number of credits of a lane that publications may use. Deliveries may use one more. Since [`Outlet::has_credit`]
/// covers two deliveries, another credit is kept in reserve.
const CREDITS: usize = 2;

/// The worker and the index of a subscriber's session.
type Who = (WorkerId, u32);

#[derive(Default)]
struct Wires {
    lanes: BTreeMap<(WorkerId, WorkerId), VecDeque<HubMessage>>,
    taken: BTreeMap<(WorkerId, WorkerId), usize>,
    /// The publications that each session has received, each as its channel and its number.
    given: BTreeMap<Who, Vec<(String, u32)>>,
}

struct Port<'w> {
    me: WorkerId,
    wires: &'w mut Wires,
}

impl Port<'_> {
    fn taken(&self, to: WorkerId) -> usize {
        self.wires.taken.get(&(self.me, to)).copied().unwrap_or(0)
    }
}

impl Outlet for Port<'_> {
    fn send_message(&mut self, to: WorkerId, mail: HubMessage) {
        if mail.class() != HubMessageClass::Control {
            *self.wires.taken.entry((self.me, to)).or_default() += 1;
            let taken = self.taken(to);
            assert!(
                taken <= CREDITS + 2,
                "{taken} messages sent, more than the lane's credits"
            );
        }
        let lane = self.wires.lanes.entry((self.me, to)).or_default();
        lane.push_back(mail);
    }

    fn has_credit(&self, to: WorkerId, class: HubMessageClass) -> bool {
        match class {
            HubMessageClass::Publish => self.taken(to) < CREDITS,
            HubMessageClass::Deliver => self.taken(to) < CREDITS + 1,
            HubMessageClass::Control => true,
        }
    }

    fn return_credit(&mut self, from: WorkerId, _: HubMessageClass) {
        let taken = self.wires.taken.get_mut(&(from, self.me));
        *taken.expect("it was taken") -= 1;
    }

    fn deliver(&mut self, session: ConnectionId, delivery: &mut Delivery<'_>) {
        assert_eq!(delivery.event, FeedEvent::Published);
        let among = delivery.info.and_then(|info| info.channel.as_deref());
        assert_eq!(among.is_some(), delivery.channel == WILDCARD);
        let channel = among.unwrap_or(delivery.channel).to_owned();
        let bytes = delivery.payload.bytes.try_into().expect("a number");
        let given = self.wires.given.entry((self.me, session.index));
        given
            .or_default()
            .push((channel, u32::from_be_bytes(bytes)));
    }

    fn send_reply(&mut self, _: ConnectionId, _: Ticket, _: HubReply) {}

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
    subscribed: BTreeMap<Who, &'static str>,
    published: u32,
}

impl World {
    fn new(workers: u16, seed: u64) -> Self {
        let mut namespaces = Namespaces::with_wildcards(Wildcards::new(["news"]));
        namespaces.insert("news", NamespaceOptions::default());
        let namespaces = Arc::new(namespaces);
        let hub = |me| {
            let mut hub = Hub::new(WorkerId(me), workers, seed, Options::default());
            hub.set_history(Arc::clone(&namespaces), usize::MAX);
            hub
        };
        Self {
            hubs: (0..workers).map(hub).collect(),
            wires: Wires::default(),
            subscribed: BTreeMap::new(),
            published: 0,
        }
    }

    fn at(&mut self, worker: WorkerId) -> (&mut Hub, Port<'_>) {
        let port = Port {
            me: worker,
            wires: &mut self.wires,
        };
        (&mut self.hubs[usize::from(worker.0)], port)
    }

    fn subscribe(&mut self, worker: WorkerId, index: u32, channel: &'static str) {
        let (hub, mut port) = self.at(worker);
        let subscribe_options = SubscribeOptions::default();
        let result = subscribe(
            hub,
            session(index),
            name(channel),
            Ticket(0),
            &subscribe_options,
            &mut port,
        );
        result.expect("there is room");
        self.subscribed.insert((worker, index), channel);
    }

    fn unsubscribe(&mut self, (worker, index): Who, channel: &str) {
        let (hub, mut port) = self.at(worker);
        assert!(hub.unsubscribe(session(index), name(channel), &mut port));
    }

    /// Publishes the next number to a channel. Returns whether the publication was accepted.
    fn publish(&mut self, worker: WorkerId, channel: &str) -> bool {
        let number = self.published.to_be_bytes();
        let payload = PayloadRef {
            kind: PayloadKind::Binary,
            bytes: &number,
        };
        let (hub, mut port) = self.at(worker);
        match hub.publish(None, name(channel), payload, None, &mut port) {
            Ok(RequestOutcome::Done(_) | RequestOutcome::Pending) => self.published += 1,
            Err(NoCredit) => return false,
        }
        true
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
        loop {
            let mut is_quiet = true;
            for from in 0..self.hubs.len() as u16 {
                for to in 0..self.hubs.len() as u16 {
                    while self.carry(WorkerId(from), WorkerId(to)) {
                        is_quiet = false;
                    }
                }
                let (hub, mut port) = self.at(WorkerId(from));
                is_quiet &= !hub.sweep(100, &mut port);
            }
            let left: u32 = self.hubs.iter().map(|hub| hub.gauges().stalled).sum();
            let lanes = self.wires.lanes.values();
            if is_quiet && left == 0 && lanes.clone().all(VecDeque::is_empty) {
                return;
            }
        }
    }

    fn run(&mut self, random: &mut fastrand::Rng, steps: usize) -> BTreeMap<&'static str, u32> {
        let mut taken = BTreeMap::new();
        for _ in 0..steps {
            let worker = WorkerId(random.u16(0..self.hubs.len() as u16));
            match random.u8(..100) {
                0..30 => {
                    let channel = match random.bool() {
                        true => HEARD[random.usize(..3)],
                        false => UNHEARD[random.usize(..3)],
                    };
                    if self.publish(worker, channel) {
                        *taken.entry(channel).or_default() += 1;
                    }
                }
                30..80 => {
                    let from = WorkerId(random.u16(0..self.hubs.len() as u16));
                    self.carry(from, worker);
                }
                _ => {
                    let (hub, mut port) = self.at(worker);
                    hub.sweep(random.usize(1..40), &mut port);
                }
            }
        }
        self.settle();
        taken
    }

    /// Checks that all subscribers of a channel have received the same publications.
    fn check(&self, taken: &BTreeMap<&'static str, u32>) {
        let mut orders: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
        for (session, subscribed) in &self.subscribed {
            let given = self.wires.given.get(session).map_or(&[][..], |given| given);
            let hears = |channel: &&str| *channel == *subscribed || *subscribed == WILDCARD;
            let expected: Vec<_> = match *subscribed {
                WILDCARD => HEARD.to_vec(),
                one => vec![one],
            };
            assert!(
                given
                    .iter()
                    .all(|(channel, _)| expected.contains(&&**channel))
            );
            for channel in expected.into_iter().filter(hears) {
                let numbers = given.iter().filter(|(one, _)| one == channel);
                let numbers: Vec<u32> = numbers.map(|(_, number)| *number).collect();
                assert_eq!(
                    numbers.len() as u32,
                    taken.get(channel).copied().unwrap_or(0)
                );
                let first = orders.entry(channel).or_insert_with(|| numbers.clone());
                assert_eq!(*first, numbers, "{session:?} {channel}");
            }
        }
    }
}

#[test]
fn wildcard_and_direct_subscribers_receive_the_same() {
    for seed in 0..60 {
        let mut random = fastrand::Rng::with_seed(seed);
        let workers = random.u16(1..4);
        let mut world = World::new(workers, seed);
        let homes = HEARD.map(|channel| world.hubs[0].home_of(name(channel)));
        assert!(
            homes
                .iter()
                .all(|home| *home == world.hubs[0].home_of(name(WILDCARD)))
        );
        for worker in 0..workers {
            // With 3 subscribers, publications are delivered immediately; with 24, by sweeps.
            let many = [3, 24][random.usize(..2)];
            for index in 0..many {
                world.subscribe(WorkerId(worker), index, WILDCARD);
            }
            for index in many..many + 24 {
                let channels = [HEARD, UNHEARD].concat();
                let channel = channels[random.usize(..channels.len())];
                world.subscribe(WorkerId(worker), index, channel);
            }
        }
        world.settle();
        let taken = world.run(&mut random, 1000);
        assert!(
            taken.values().sum::<u32>() > 20,
            "{seed} {workers} {taken:?}"
        );
        world.check(&taken);

        // A session that has unsubscribed receives nothing more, while the others still receive everything.
        let all: Vec<_> = world.subscribed.clone().into_iter().collect();
        for (session, channel) in all {
            if channel == WILDCARD && random.bool() {
                world.unsubscribe(session, channel);
                world.subscribed.remove(&session);
                world.wires.given.remove(&session);
            }
        }
        world.settle();
        world.wires.given.clear();
        let taken = world.run(&mut random, 300);
        world.check(&taken);
        let receivers = world.wires.given.keys();
        assert!(
            receivers
                .clone()
                .all(|session| world.subscribed.contains_key(session))
        );
    }
}

#[test]
fn wildcard_subscribers_suffice() {
    let mut world = World::new(1, 7);
    let me = WorkerId(0);
    assert!(world.publish(me, "news:1"));
    world.subscribe(me, 0, WILDCARD);
    assert!(world.publish(me, "news:1"));
    world.settle();
    assert_eq!(world.wires.given[&(me, 0)], [("news:1".to_owned(), 1)]);
    assert_eq!(world.hubs[0].gauges().entries, 1, "it is forgotten at once");
}
