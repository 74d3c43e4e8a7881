//! Connections of a port to the store: one for commands, one for the feed. Messages may take any
//! time; if a connection is lost, its messages in flight are lost too.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use fastrand::Rng;
use veche_nodes::engine::channel::{Event, Order};

use super::store::Known;

/// A port's connection for commands, with the orders and answers in flight.
#[derive(Debug)]
pub(super) struct Link<O, E> {
    /// The server to which the connection leads; `None` without a connection.
    pub(super) server: Option<u32>,
    pub(super) known: Option<Known>,
    pub(super) orders: VecDeque<O>,
    pub(super) answers: VecDeque<E>,
}

impl<O, E> Default for Link<O, E> {
    fn default() -> Self {
        Self {
            server: None,
            known: None,
            orders: VecDeque::new(),
            answers: VecDeque::new(),
        }
    }
}

impl<O, E> Link<O, E> {
    /// Loses the connection, and all orders and answers in flight.
    pub(super) fn lose(&mut self) {
        self.server = None;
        self.orders.clear();
        self.answers.clear();
    }
}

/// A simulated port, by which a home uses the store.
#[derive(Debug, Default)]
pub(super) struct SimulatedPort {
    pub(super) link: Link<Order, Event>,
    /// The number of the connection.
    number: u64,
    /// Whether the home has handled the event that reports the current connection.
    is_begun: bool,
    pub(super) feed: Feed,
}

impl SimulatedPort {
    /// Queues the orders of a home. Commands are dropped until the home has handled the event that reports the
    /// connection.
    pub(super) fn take(&mut self, orders: &mut Vec<Order>) {
        for order in orders.drain(..) {
            match order {
                Order::Begin(number) => self.is_begun = number == self.number,
                Order::Follow(topic) => self.feed.changes.push_back((topic, true)),
                Order::Unfollow(topic) => self.feed.changes.push_back((topic, false)),
                order if self.link.server.is_some() && self.is_begun => {
                    self.link.orders.push_back(order);
                }
                _ => {}
            }
        }
    }

    /// Opens a connection to a server. Returns the connection's number.
    pub(super) fn connected(&mut self, server: u32) -> u64 {
        self.link.server = Some(server);
        self.number += 1;
        self.is_begun = false;
        self.number
    }
}

/// The connection over which a port receives its feed.
#[derive(Debug, Default)]
pub(super) struct Feed {
    pub(super) server: Option<u32>,
    /// Whether the server sends nothing more, although the connection seems alive.
    pub(super) is_silent: bool,
    changes: VecDeque<(Arc<str>, bool)>,
    followed: BTreeSet<Arc<str>>,
    subscribed: BTreeSet<Arc<str>>,
    items: VecDeque<Event>,
    /// Topics whose subscription has yet to be confirmed to the home.
    confirmed: VecDeque<Arc<str>>,
    /// Whether the home has yet to learn that a connection was lost.
    is_interrupted: bool,
}

/// The faults that may affect the items of a feed within an epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FeedFaults {
    /// Whether items overtake each other.
    pub(super) reorders: bool,
    /// Whether some items arrive twice.
    pub(super) repeats: bool,
    /// Whether items are lost without an error.
    pub(super) loses: bool,
}

impl Feed {
    /// Loses the connection, and all items in flight.
    pub(super) fn lose(&mut self) {
        self.is_interrupted |= self.server.take().is_some();
        self.is_silent = false;
        self.subscribed.clear();
        self.items.clear();
        self.confirmed.clear();
    }

    /// Connects, and subscribes to all followed topics.
    pub(super) fn connected(&mut self, server: u32) {
        self.server = Some(server);
        self.subscribed.clone_from(&self.followed);
        self.confirmed.extend(self.followed.iter().cloned());
    }

    /// Applies the latest change of subscription of each topic since the last call. Returns whether there was a
    /// change.
    pub(super) fn change(&mut self) -> bool {
        let mut last = BTreeMap::new();
        for (topic, is_followed) in self.changes.drain(..) {
            match is_followed {
                true => self.followed.insert(Arc::clone(&topic)),
                false => self.followed.remove(&topic),
            };
            last.insert(topic, is_followed);
        }
        let has_changed = !last.is_empty();
        for (topic, is_followed) in last {
            if self.server.is_none() {
                continue;
            }
            match is_followed {
                true => {
                    self.subscribed.insert(Arc::clone(&topic));
                    self.confirmed.push_back(topic);
                }
                false => {
                    self.subscribed.remove(&topic);
                }
            }
        }
        has_changed
    }

    /// Queues an item that a server publishes, if the feed is connected to that server and subscribed to the topic.
    pub(super) fn publish(&mut self, server: u32, topic: &Arc<str>, item: &Event) {
        let is_delivered = self.server == Some(server) && !self.is_silent;
        if is_delivered && self.subscribed.contains(topic) {
            self.items.push_back(item.clone());
        }
    }

    /// Returns the next event. The confirmation of a subscription never precedes an item that was published before the
    /// subscription, and may follow later items.
    pub(super) fn next(&mut self, faults: FeedFaults, random: &mut Rng) -> Option<Event> {
        if std::mem::take(&mut self.is_interrupted) {
            return Some(Event::Interrupted);
        }
        if let Some(topic) = self.confirmed.pop_front_if(|_| random.bool()) {
            return Some(Event::Followed(topic));
        }
        if faults.loses && random.u8(..32) == 0 {
            self.items.pop_front();
        }
        if faults.reorders && self.items.len() > 1 && random.u8(..8) == 0 {
            let place = random.usize(1..self.items.len().min(4));
            self.items.swap(0, place);
        }
        if faults.repeats && random.u8(..16) == 0 {
            return self.items.front().cloned();
        }
        let item = self.items.pop_front();
        item.or_else(|| self.confirmed.pop_front().map(Event::Followed))
    }
}
