//! A model of the external store that [`RemoteEngine`] uses. Its feed may overtake its answers. If it is lossy,
//! connections are cut at any moment, with orders, answers and items in flight.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use veche_hub::{Epoch, Hub, Options, Position, PublishOptions, RemoteEngine, WorkerId};
use veche_nodes::engine::StoreState as State;
use veche_nodes::engine::channel::{
    Direction, Event, Found, Keep, Members, Occupancy, Order, Publish, Published, Read, id_of,
    is_same_publication,
};
use veche_nodes::engine::peer::Entries;

use crate::bench::{Bench, Driven, TestOutlet};

/// Maximum number of times that a test cuts a connection, so that the test ends.
const CUTS_MAX: u32 = 12;

/// The stored state of a channel.
#[derive(Default)]
struct Channel {
    epoch: u64,
    top: u64,
    stored: BTreeMap<u64, Bytes>,
    version: Option<(String, u64)>,
    keys: HashMap<String, (u64, Option<Position>)>,
}

impl Channel {
    fn position(&self) -> Position {
        Position {
            epoch: Epoch::from_bits(self.epoch),
            offset: self.top,
        }
    }

    fn begin(&mut self, keep: &Keep) {
        if self.epoch == 0 {
            self.epoch = keep.epoch.bits();
        }
    }

    fn read(&self, read: &Read) -> Entries {
        let all = self.stored.iter();
        let mut entries: Vec<_> = all
            .filter(|(offset, _)| match (read.since, read.direction) {
                (None, _) => true,
                (Some(since), Direction::Reverse) => **offset < since,
                (Some(since), _) => **offset > since,
            })
            .map(|(offset, data)| (*offset, data.clone()))
            .collect();
        if read.direction != Direction::Forward {
            entries.reverse();
        }
        entries.truncate(read.limit);
        if read.direction == Direction::Latest {
            entries.reverse();
        }
        let first = entries.first();
        Entries {
            top: self.position(),
            before: first.map_or(self.top, |(offset, _)| offset - 1),
            entries,
        }
    }
}

pub(crate) struct Model {
    rng: fastrand::Rng,
    is_lossy: bool,
    cuts: u32,
    channels: HashMap<Arc<str>, Channel>,
    #[expect(
        clippy::type_complexity,
        reason = "members by channel and client, with their names and data"
    )]
    members: BTreeMap<(Arc<str>, Box<str>), (Box<str>, Bytes)>,
    occupied: BTreeSet<Arc<str>>,
    topics: BTreeSet<Arc<str>>,
    /// The topics whose subscription is in progress.
    following: VecDeque<Arc<str>>,
    orders: VecDeque<Order>,
    answers: VecDeque<Event>,
    feed: VecDeque<Event>,
    connection: u64,
    is_begun: bool,
    is_up: bool,
}

thread_local! {
    static MODEL: RefCell<Option<Model>> = const { RefCell::new(None) };
}

/// Returns a hub with a new model. The model belongs to the thread, and each test has its own thread.
pub(crate) fn remote(seed: u64, is_lossy: bool) -> Bench<RemoteEngine> {
    MODEL.set(Some(Model {
        rng: fastrand::Rng::with_seed(seed),
        is_lossy,
        cuts: 0,
        channels: HashMap::new(),
        members: BTreeMap::new(),
        occupied: BTreeSet::new(),
        topics: BTreeSet::new(),
        following: VecDeque::new(),
        orders: VecDeque::new(),
        answers: VecDeque::new(),
        feed: VecDeque::new(),
        connection: 0,
        is_begun: false,
        is_up: false,
    }));
    let engine = RemoteEngine::new(seed);
    let options = Options::default();
    Bench::with(Hub::with_engine(WorkerId(0), 1, 7, options, engine))
}

impl Driven for RemoteEngine {
    const KNOWS_SUBSCRIBERS: bool = false;

    fn drive(hub: &mut Hub<Self>, outlet: &mut TestOutlet) -> bool {
        let event = MODEL.with_borrow_mut(|model| {
            let model = model.as_mut().expect("a model");
            model.take(hub.engine().take_orders());
            model.step()
        });
        let Some(events) = event else {
            return false;
        };
        for event in events {
            hub.engine().handle(event);
        }
        while hub.take_reports(outlet) {}
        true
    }

    fn forget_members(&mut self) {
        MODEL.with_borrow_mut(|model| model.as_mut().expect("a model").members.clear());
        self.handle(Event::Forgotten);
    }
}

impl Model {
    fn take(&mut self, orders: &mut Vec<Order>) {
        for order in orders.drain(..) {
            match order {
                Order::Begin(number) => self.is_begun = number == self.connection,
                Order::Follow(topic) => self.following.push_back(topic),
                Order::Unfollow(topic) => {
                    self.topics.remove(&topic);
                    self.following.retain(|one| *one != topic);
                }
                order if self.is_up && self.is_begun => self.orders.push_back(order),
                _ => {}
            }
        }
    }

    /// Makes one random event happen, and returns the resulting events of the engine; `None` if nothing is in flight.
    fn step(&mut self) -> Option<Vec<Event>> {
        if !self.is_up {
            self.is_up = true;
            self.is_begun = false;
            self.connection += 1;
            return Some(vec![Event::Up(self.connection, State::Same)]);
        }
        let is_idle = self.orders.is_empty()
            && self.answers.is_empty()
            && self.feed.is_empty()
            && self.following.is_empty();
        if is_idle {
            return None;
        }
        if self.is_lossy && self.cuts < CUTS_MAX && self.rng.u8(..20) == 0 {
            self.cuts += 1;
            return Some(self.cut());
        }
        Some(match self.rng.u8(..4) {
            0 => self.following.pop_front().map(|topic| {
                self.topics.insert(Arc::clone(&topic));
                Event::Followed(topic)
            }),
            1 => {
                if let Some(order) = self.orders.pop_front() {
                    self.carry_out(order);
                }
                None
            }
            2 => self.answers.pop_front(),
            _ => self.feed.pop_front(),
        })
        .map(|event| event.into_iter().collect())
    }

    /// Cuts one of the two connections, that of the feed or that of orders. Everything in flight on it is lost.
    fn cut(&mut self) -> Vec<Event> {
        if self.rng.bool() {
            self.feed.clear();
            let topics = std::mem::take(&mut self.topics);
            self.following.extend(topics);
            return vec![Event::Interrupted];
        }
        // The first few orders are executed, but their answers are lost.
        for _ in 0..self.rng.usize(..=self.orders.len()) {
            if let Some(order) = self.orders.pop_front() {
                self.carry_out(order);
            }
        }
        self.orders.clear();
        self.answers.clear();
        self.is_up = false;
        vec![Event::Down]
    }

    fn carry_out(&mut self, order: Order) {
        let answer = match order {
            Order::Publish(publish) => self.publish(&publish),
            Order::Check(check) => {
                let channel = self.channels.entry(check.channel).or_default();
                if check
                    .ended
                    .is_some_and(|ended| ended.bits() == channel.epoch)
                {
                    *channel = Channel::default();
                }
                channel.begin(&check.keep);
                let latest = channel.stored.last_key_value();
                let is_later = check
                    .seen
                    .is_some_and(|(seen, _)| channel.top > seen.offset);
                Event::Checked {
                    ticket: check.ticket,
                    found: Some(Found {
                        top: channel.position(),
                        id: latest.and_then(|(_, data)| id_of(data)).unwrap_or(0),
                        latest: latest
                            .filter(|_| is_later)
                            .map(|(offset, data)| (offset - 1, data.clone())),
                        entries: check.read.map(|read| Box::new(channel.read(&read))),
                    }),
                }
            }
            Order::Read(read) => {
                let channel = self.channels.entry(Arc::clone(&read.channel)).or_default();
                channel.begin(&read.keep);
                Event::Entries {
                    ticket: read.ticket,
                    entries: Some(Box::new(channel.read(&read))),
                }
            }
            Order::Remove { ticket, channel } => {
                self.channels.entry(channel).or_default().stored.clear();
                Event::Removed {
                    ticket,
                    is_removed: true,
                }
            }
            Order::Member(member) => {
                let key = (member.channel, member.client);
                match member.data {
                    Some(data) => drop(self.members.insert(key, (member.user, data))),
                    None => drop(self.members.remove(&key)),
                }
                Event::Member {
                    ticket: member.ticket,
                    is_elsewhere: false,
                }
            }
            Order::Members {
                ticket,
                channel,
                only_counts,
            } => {
                let of = self
                    .members
                    .iter()
                    .filter(|((name, _), _)| *name == channel);
                let found: Vec<_> = of.map(|(_, member)| member.clone()).collect();
                let users: BTreeSet<_> = found.iter().map(|(user, _)| user.clone()).collect();
                let found = match only_counts {
                    true => Members::Counts(found.len() as u32, users.len() as u32),
                    false => Members::List(found.into_iter().map(|(_, data)| data).collect()),
                };
                Event::Members {
                    ticket,
                    found: Some(found),
                }
            }
            Order::Occupancy(order) => Event::Occupancy {
                ticket: order.ticket,
                outcome: Some(self.occupy(&order)),
            },
            Order::Begin(_) | Order::Follow(_) | Order::Unfollow(_) => return,
        };
        self.answers.push_back(answer);
    }

    /// Records occupancy for a single node, as the Lua script of the Redis engine does.
    fn occupy(&mut self, order: &Occupancy) -> (bool, u64) {
        let is_known = self.occupied.contains(&order.channel);
        if order.is_occupied {
            self.occupied.insert(Arc::clone(&order.channel));
            return (!is_known || order.is_repeated, 1);
        }
        self.occupied.remove(&order.channel);
        (is_known || order.is_repeated, 1)
    }

    fn publish(&mut self, publish: &Publish) -> Event {
        let result = self.result(publish);
        Event::Published {
            ticket: publish.ticket,
            result,
        }
    }

    fn result(&mut self, publish: &Publish) -> Published {
        let id = id_of(&publish.data).expect("a publication");
        let channel = self
            .channels
            .entry(Arc::clone(&publish.channel))
            .or_default();
        let key = publish.key.as_deref();
        if let Some((first, position)) = key.and_then(|key| channel.keys.get(key)) {
            return match is_same_publication(*first, id) {
                true => Published::Done(*position, None),
                false => Published::Skipped(*position),
            };
        }
        let mut position = None;
        if let Some(keep) = &publish.keep {
            channel.begin(keep);
            if let Some(since) = publish.repeats_since {
                let is_of = since.epoch == channel.position().epoch;
                let since = if is_of { since.offset } else { 0 };
                let mut behind = channel.stored.range(since + 1..);
                if let Some((offset, _)) = behind.find(|(_, data)| {
                    id_of(data).is_some_and(|other| is_same_publication(other, id))
                }) {
                    let offset = *offset;
                    return Published::Done(
                        Some(Position {
                            offset,
                            ..channel.position()
                        }),
                        None,
                    );
                }
                let first = channel.stored.range(since + 1..).next();
                if channel.top > since && first.is_none_or(|(offset, _)| *offset > since + 1) {
                    return Published::Unknown;
                }
            }
            if let Some(version) = &publish.version {
                let stored = channel.version.as_ref();
                if stored.is_some_and(|(epoch, number)| {
                    **epoch == *version.epoch && *number >= version.number
                }) {
                    return Published::Skipped(Some(channel.position()));
                }
                channel.version = Some((version.epoch.to_string(), version.number));
            }
            channel.top += 1;
            channel.stored.insert(channel.top, publish.data.clone());
            position = Some(channel.position());
        }
        if let Some(key) = key {
            channel.keys.insert(key.to_owned(), (id, position));
        }
        let topic = publish.topic.as_ref().unwrap_or(&publish.channel);
        let is_followed = self.topics.contains(topic);
        if is_followed {
            self.feed.push_back(Event::Item {
                channel: Arc::clone(&publish.channel),
                place: position.map(|position| (position, position.offset - 1)),
                data: publish.data.clone(),
            });
        }
        Published::Done(position, Some(u32::from(is_followed)))
    }
}

/// The reply to a repetition waits until the outcome of the first publication is known, even in a channel without
/// history.
#[test]
fn a_repetition_waits_for_the_first() {
    for seed in 0..20 {
        let mut bench = remote(seed, false);
        bench.settle();
        let passing = PublishOptions {
            idempotency_key: Some("key".into()),
            skip_history: true,
            ..PublishOptions::default()
        };
        bench.publish_with("a", Some(passing.clone()));
        bench.publish_with("b", Some(passing));
        assert!(bench.published.is_empty());
        bench.settle();
        let skipped: Vec<_> = bench.published.iter().map(|one| one.is_skipped).collect();
        assert_eq!(skipped, [false, true]);
    }
}
