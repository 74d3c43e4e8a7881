//! A model of the store that all nodes share: it behaves like the scripts of the engine on Redis, on a state that can
//! be rolled back. Offsets may have gaps.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use fastrand::Rng;
use veche_hub::{Epoch, Position};
use veche_nodes::NodeId;
use veche_nodes::engine::StoreState as Found;
use veche_nodes::engine::channel::{
    self, Check, Direction, Keep, Order, Publish, Published, Read, id_of, is_same_publication,
};
use veche_nodes::engine::peer::{Entries, LEASE_MS};

use super::channels::place_of;
use super::ledger::{Ledger, Serial};
use super::session::number_in_payload;
use crate::Failure;
use crate::failure::promise;

/// The maximum number of entries that the control stream stores.
const CONTROL_SIZE: usize = 10_000;

/// What a worker's engine port knew about the store's server when the port last connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    replication: u64,
    generation: u64,
}

/// A server process of the store, with its data.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) replication: u64,
    /// The replication id of the server whose replica this server was.
    before: u64,
    pub(super) state: State,
    /// Whether the server currently refuses all commands.
    pub(super) is_refusing: bool,
}

/// The first publication with an idempotency key: its number and its position.
type FirstPublication = (u64, Option<Position>);

/// Everything that a server stores.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    identity: Option<u64>,
    generation: u64,
    channels: BTreeMap<Arc<str>, Channel>,
    /// The first publication with each idempotency key, by channel and key.
    keys: BTreeMap<(Arc<str>, Box<str>), FirstPublication>,
    control: Control,
    /// The bans that a node may rely on: those in the control stream, except for the `halved` ones.
    pub(super) bans: BTreeSet<u32>,
    /// The names of bans whose table entries were lost when the store was emptied. If such a ban is appended to the
    /// control stream afterwards, only the stream has it, and a promotion discards the stream. The node that issued the
    /// ban notices the loss of data and repeats both orders.
    halved: BTreeSet<Bytes>,
    table: BTreeMap<Bytes, Bytes>,
    leases: BTreeMap<NodeId, (Bytes, u64)>,
}

#[derive(Clone, Debug)]
struct Stored {
    data: Bytes,
    before: u64,
}

#[derive(Clone, Debug, Default)]
struct Channel {
    epoch: Option<Epoch>,
    generation: u64,
    top: u64,
    top_id: u64,
    /// The channel's last entry in the ledger.
    serial: Serial,
    stored: BTreeMap<u64, Stored>,
    /// The numbers of all publications in the channel's current epoch.
    numbers: BTreeSet<u64>,
}

#[derive(Clone, Debug, Default)]
struct Control {
    epoch: Option<Epoch>,
    generation: u64,
    top: u64,
    entries: BTreeMap<u64, (u64, Bytes)>,
}

/// An item for all feeds that follow its topic.
pub(super) type TopicItem = (Arc<str>, channel::Event);

impl Server {
    pub(super) fn new(replication: u64, before: u64, state: State) -> Self {
        Self {
            replication,
            before,
            state,
            is_refusing: false,
        }
    }

    /// Returns whether the server's identity is recorded in its own data.
    pub(super) fn is_known(&self) -> bool {
        self.state.identity == Some(self.replication)
    }

    /// Compares this server with the identity in its data and with the state that a worker's engine port has recorded
    /// (`known`). Records the server's identity in the data.
    pub(super) fn verify(&mut self, known: &mut Option<Known>) -> Found {
        let state = &mut self.state;
        if state.identity != Some(self.replication) {
            let is_promoted = state.identity == Some(self.before);
            state.identity = Some(self.replication);
            if is_promoted {
                state.generation = self.replication;
            }
        }
        let now = Known {
            replication: self.replication,
            generation: state.generation,
        };
        let found = match *known {
            None => Found::Same,
            Some(known) if known == now => Found::Same,
            Some(known) if known.generation != now.generation => Found::Promoted,
            Some(_) => Found::Restarted,
        };
        *known = Some(now);
        found
    }

    /// Executes an order. Returns its answer and the item that it publishes.
    pub(super) fn carry_out(
        &mut self,
        order: Order,
        ledger: &mut Ledger,
        random: &mut Rng,
    ) -> Result<(channel::Event, Option<TopicItem>), Failure> {
        let state = &mut self.state;
        let is_refusing = self.is_refusing;
        Ok(match order {
            Order::Publish(publish) => {
                let (result, item) = match is_refusing {
                    true => (Published::Refused, None),
                    false => state.publish(&publish, ledger, random)?,
                };
                let ticket = publish.ticket;
                (channel::Event::Published { ticket, result }, item)
            }
            Order::Check(check) => {
                let ticket = check.ticket;
                let found = (!is_refusing).then(|| state.check(&check, ledger));
                (channel::Event::Checked { ticket, found }, None)
            }
            Order::Read(read) => {
                let ticket = read.ticket;
                let entries = (!is_refusing).then(|| Box::new(state.read(&read, ledger)));
                (channel::Event::Entries { ticket, entries }, None)
            }
            Order::Remove { ticket, channel } => {
                if !is_refusing && let Some(channel) = state.channels.get_mut(&channel) {
                    channel.stored.clear();
                }
                let is_removed = !is_refusing;
                (channel::Event::Removed { ticket, is_removed }, None)
            }
            Order::Member(member) => {
                let (ticket, is_elsewhere) = (member.ticket, false);
                let event = channel::Event::Member {
                    ticket,
                    is_elsewhere,
                };
                (event, None)
            }
            Order::Occupancy(order) => {
                let (ticket, outcome) = (order.ticket, None);
                (channel::Event::Occupancy { ticket, outcome }, None)
            }
            Order::Members { ticket, .. } => (
                channel::Event::Members {
                    ticket,
                    found: None,
                },
                None,
            ),
            Order::Begin(_) | Order::Follow(_) | Order::Unfollow(_) => {
                unreachable!("the connection keeps it")
            }
        })
    }

    /// Returns the position of a channel, and the channel's entry in the ledger.
    pub(super) fn top(&self, channel: &str) -> Option<(Position, Serial)> {
        let found = self.state.channels.get(channel)?;
        let offset = found.top;
        let epoch = found.epoch?;
        let is_current = found.generation == self.state.generation;
        is_current.then_some((Position { epoch, offset }, found.serial))
    }

    /// Returns whether a publication was stored in the channel's current epoch.
    pub(super) fn has(&self, channel: &str, number: u64) -> bool {
        let found = self.state.channels.get(channel);
        found.is_some_and(|found| found.numbers.contains(&number))
    }

    /// Returns the number of publications after a position; `None` if some of them are not stored.
    pub(super) fn stored_behind(&self, channel: &str, position: Position) -> Option<usize> {
        let found = self.state.channels.get(channel)?;
        let mut behind = found.stored.range(position.offset + 1..);
        match behind.next() {
            None => (found.top == position.offset).then_some(0),
            Some((_, first)) => (first.before <= position.offset).then(|| behind.count() + 1),
        }
    }
}

impl State {
    fn channel(&mut self, name: &Arc<str>, keep: &Keep, ledger: &mut Ledger) -> &mut Channel {
        let generation = self.generation;
        let channel = self.channels.entry(Arc::clone(name)).or_default();
        if channel.epoch.is_none() || channel.generation != generation {
            channel.begin(name, generation, keep, ledger);
        }
        channel
    }

    fn publish(
        &mut self,
        publish: &Publish,
        ledger: &mut Ledger,
        random: &mut Rng,
    ) -> Result<(Published, Option<TopicItem>), Failure> {
        let id = id_of(&publish.data).unwrap_or_default();
        let number = number_of(&publish.data);
        let key = publish.key.clone();
        let key = key.map(|key| (Arc::clone(&publish.channel), key));
        if let Some((first, position)) = key.as_ref().and_then(|key| self.keys.get(key)) {
            let result = match is_same_publication(*first, id) {
                true => Published::Done(*position, None),
                false => Published::Skipped(*position),
            };
            return Ok((result, None));
        }
        let Some(keep) = &publish.keep else {
            return Ok((Published::Unknown, None));
        };
        let generation = self.generation;
        let channel = self
            .channels
            .entry(Arc::clone(&publish.channel))
            .or_default();
        let is_new = channel.epoch.is_none() || channel.generation != generation;
        if let Some(since) = publish.repeats_since.filter(|_| !is_new) {
            let is_of = channel.epoch == Some(since.epoch);
            let since = if is_of { since.offset } else { 0 };
            let mut behind = channel.stored.range(since + 1..);
            if let Some((offset, _)) = behind.find(|(_, one)| {
                id_of(&one.data).is_some_and(|other| is_same_publication(other, id))
            }) {
                let position = channel.position_at(*offset);
                return Ok((Published::Done(position, None), None));
            }
            let first = channel.stored.range(since + 1..).next();
            if channel.top > since && first.is_none_or(|(_, first)| first.before > since) {
                return Ok((Published::Unknown, None));
            }
        }
        if is_new {
            channel.begin(&publish.channel, generation, keep, ledger);
        }
        let before = channel.top;
        channel.top += random.u64(1..4);
        channel.top_id = id;
        let Some(position) = channel.position_at(channel.top) else {
            return Ok((Published::Unknown, None));
        };
        let place = place_of(&publish.channel);
        channel.serial = ledger.store(place, position, number, channel.serial);
        promise!(
            channel.numbers.insert(number),
            "a publication is stored once",
            "publication {number} of channel {place} again at {position}"
        );
        let data = publish.data.clone();
        channel.stored.insert(
            channel.top,
            Stored {
                data: data.clone(),
                before,
            },
        );
        while channel.stored.len() > keep.size as usize {
            channel.stored.pop_first();
        }
        if let Some(key) = key {
            self.keys.insert(key, (id, Some(position)));
        }
        let item = channel::Event::Item {
            channel: Arc::clone(&publish.channel),
            place: Some((position, before)),
            data,
        };
        let topic = publish.topic.as_ref().unwrap_or(&publish.channel);
        let result = Published::Done(Some(position), Some(1));
        Ok((result, Some((Arc::clone(topic), item))))
    }

    fn check(&mut self, check: &Check, ledger: &mut Ledger) -> channel::Found {
        let generation = self.generation;
        let channel = self.channel(&check.channel, &check.keep, ledger);
        if channel.epoch == check.ended {
            channel.begin(&check.channel, generation, &check.keep, ledger);
        }
        let seen = check.seen.filter(|_| check.is_verifying);
        if let Some((seen, id)) = seen.filter(|(seen, _)| channel.epoch == Some(seen.epoch)) {
            let is_lost = if seen.offset > channel.top {
                true
            } else if seen.offset == 0 || id == 0 {
                false
            } else if seen.offset == channel.top {
                channel.top_id != id
            } else {
                let stored = channel.stored.get(&seen.offset);
                stored.is_none_or(|stored| id_of(&stored.data) != Some(id))
            };
            if is_lost {
                channel.begin(&check.channel, generation, &check.keep, ledger);
            }
        }
        let top = channel.position();
        let is_later = check.seen.is_some_and(|(seen, _)| top.offset > seen.offset);
        let latest = channel.stored.get(&top.offset).filter(|_| is_later);
        channel::Found {
            top,
            id: channel.top_id,
            latest: latest.map(|latest| (latest.before, latest.data.clone())),
            entries: check.read.as_ref().map(|read| Box::new(channel.read(read))),
        }
    }

    fn read(&mut self, read: &Read, ledger: &mut Ledger) -> Entries {
        self.channel(&read.channel, &read.keep, ledger).read(read)
    }

    /// Drops the publications of a channel.
    pub(super) fn evict_stream(&mut self, channel: &str) {
        if let Some(channel) = self.channels.get_mut(channel) {
            channel.stored.clear();
        }
    }

    /// Drops the position of a channel.
    pub(super) fn evict_position(&mut self, channel: &str) {
        if let Some(channel) = self.channels.get_mut(channel) {
            channel.epoch = None;
        }
    }

    /// Appends an entry to the control stream. Returns the entry's position and the offset of the preceding entry.
    pub(super) fn append(&mut self, epoch: Epoch, bytes: Bytes) -> (Position, u64) {
        let generation = self.generation;
        let control = &mut self.control;
        let epoch = control.begin(generation, epoch);
        let before = control.top;
        control.top += 1;
        control.entries.insert(control.top, (before, bytes));
        while control.entries.len() > CONTROL_SIZE {
            control.entries.pop_first();
        }
        let offset = control.top;
        (Position { epoch, offset }, before)
    }

    /// Returns the entries of the control stream after an offset.
    pub(super) fn read_control(&mut self, epoch: Epoch, since: u64) -> Entries {
        let generation = self.generation;
        let control = &mut self.control;
        let epoch = control.begin(generation, epoch);
        let offset = control.top;
        let found: Vec<_> = control.entries.range(since + 1..).collect();
        let first = found.first();
        Entries {
            top: Position { epoch, offset },
            before: first.map_or(offset, |(_, (before, _))| *before),
            entries: found
                .into_iter()
                .map(|(offset, (_, bytes))| (*offset, bytes.clone()))
                .collect(),
        }
    }

    pub(super) fn table(&self) -> &BTreeMap<Bytes, Bytes> {
        &self.table
    }

    /// Sets or removes a value of the table of bans.
    pub(super) fn store(&mut self, name: Bytes, value: Option<Bytes>) {
        self.halved.remove(&name);
        match value {
            Some(value) => self.table.insert(name, value),
            None => self.table.remove(&name),
        };
    }

    /// Records that the entry of a ban was appended to the control stream.
    pub(super) fn banned(&mut self, number: u32) {
        if !self.halved.contains(format!("user:{number}").as_bytes()) {
            self.bans.insert(number);
        }
    }

    /// Loses all data.
    pub(super) fn flush(&mut self) {
        let halved = std::mem::take(&mut self.table).into_keys().collect();
        *self = Self {
            halved,
            ..Self::default()
        };
    }

    /// Renews the lease of a node.
    pub(super) fn renew(&mut self, node: NodeId, text: Bytes, now_ms: u64) {
        self.leases.insert(node, (text, now_ms + LEASE_MS));
    }

    pub(super) fn end_lease(&mut self, node: NodeId) {
        self.leases.remove(&node);
    }

    pub(super) fn leases(&self, now_ms: u64) -> Vec<(NodeId, Bytes)> {
        let valid = self.leases.iter().filter(|(_, (_, until))| *until > now_ms);
        valid.map(|(id, (text, _))| (*id, text.clone())).collect()
    }
}

impl Channel {
    /// Begins a new epoch of a channel, and discards the publications of the previous epoch.
    fn begin(&mut self, name: &str, generation: u64, keep: &Keep, ledger: &mut Ledger) {
        let serial = ledger.begin(place_of(name), keep.epoch);
        *self = Self {
            epoch: Some(keep.epoch),
            generation,
            serial,
            ..Self::default()
        };
    }

    fn position_at(&self, offset: u64) -> Option<Position> {
        let epoch = self.epoch?;
        Some(Position { epoch, offset })
    }

    fn position(&self) -> Position {
        Position {
            epoch: self.epoch.unwrap_or(Epoch::UNKNOWN),
            offset: self.top,
        }
    }

    fn read(&self, read: &Read) -> Entries {
        let all = self.stored.iter();
        let mut found: Vec<_> = all
            .filter(|(offset, _)| match (read.since, read.direction) {
                (None, _) => true,
                (Some(since), Direction::Reverse) => **offset < since,
                (Some(since), _) => **offset > since,
            })
            .collect();
        if read.direction != Direction::Forward {
            found.reverse();
        }
        found.truncate(read.limit);
        if read.direction == Direction::Latest {
            found.reverse();
        }
        let top = self.position();
        let is_chain = found.last().is_none_or(|(last, _)| **last == top.offset);
        let before = match found.first() {
            Some((_, first)) if is_chain => first.before,
            _ => top.offset,
        };
        let entries = found.into_iter();
        Entries {
            top,
            before,
            entries: entries
                .map(|(offset, one)| (*offset, one.data.clone()))
                .collect(),
        }
    }
}

impl Control {
    fn begin(&mut self, generation: u64, new: Epoch) -> Epoch {
        if let Some(epoch) = self.epoch.filter(|_| self.generation == generation) {
            return epoch;
        }
        *self = Self {
            epoch: Some(new),
            generation,
            ..Self::default()
        };
        new
    }
}

/// Returns the number of an encoded publication.
fn number_of(data: &Bytes) -> u64 {
    number_in_payload(data).unwrap_or_default()
}
