//! Sends commands to the store: for a node's messages to other nodes, for its lease, and for the removal of the members
//! of ended nodes.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use redis::{Cmd, Value};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use veche_nodes::NodeId;
use veche_nodes::engine::peer::{Entries, Event, LEASE_MS, LEASE_RENEWAL_MS, Order};
use veche_nodes::engine::{StoreState, channel};
use veche_nodes::node::BLOCKS;

use super::commands::{self, PortClient};
use super::feed::Change;
use super::port::Events;
use super::replies::{bytes, entries, list, number, position, text};
use super::scripts::RedisScript;
use super::session::EngineSession;
use super::shared::SharedPorts;

/// The maximum number of stored entries of the control stream.
const CONTROL_SIZE: u32 = 10_000;

/// The time for which the entries of the control stream are stored.
const CONTROL_TTL: Duration = Duration::from_secs(7 * 86_400);
/// The time for which the position of the control stream is stored.
const CONTROL_POSITION_TTL: Duration = Duration::from_secs(30 * 86_400);

/// The difference between two successive epochs of the control stream. It is odd, so that no epoch repeats modulo 2^64.
const EPOCH_STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The maximum number of channels from which one run of the script `bury.lua` removes members.
const BURIED_MAX: usize = 100;

/// Executes the orders of a port until the port is dropped.
pub(super) async fn serve(
    shared: Arc<SharedPorts>,
    orders: UnboundedReceiver<Vec<Order>>,
    events: Arc<Events<Event>>,
    changes: UnboundedSender<Change>,
    probes: UnboundedReceiver<Vec<u8>>,
) {
    let client = Peers::new(changes);
    commands::run(shared, client, orders, probes, events).await;
}

struct Peers {
    /// Keeps the feed's task running: it ends when this sender is dropped.
    _changes: UnboundedSender<Change>,
    /// The number of epochs that this node has offered for the control stream.
    begun: Cell<u64>,
    /// The node's announcement, which is stored as the content of the lease.
    text: Bytes,
    /// Whether this node has held the lease before.
    has_lease: bool,
    has_left: bool,
    /// The number of publications in the store, as stated in the store's latest reply.
    stored: u64,
}

/// A job for the connection to the store: an order of the owner, or a periodic command.
pub(super) enum NodeJob {
    Order(Order),
    Renew,
    Bury,
    Vacate,
    Expire,
    Probe(Vec<u8>),
}

impl PortClient for Peers {
    type Order = Order;
    type Event = Event;
    type Job = NodeJob;

    const EVERY: Duration = Duration::from_millis(LEASE_RENEWAL_MS);

    fn connected(&mut self, _number: u64, store: StoreState) -> Event {
        if store != StoreState::Same {
            self.stored = 0;
        }
        Event::Up(store)
    }

    fn lost(&mut self) -> Event {
        Event::Down
    }

    fn stored(&self) -> u64 {
        self.stored
    }

    fn take(&mut self, order: Order, is_up: bool) -> Option<NodeJob> {
        if let Order::Announce(text) = order {
            self.text = text;
            return (is_up && !self.has_left).then_some(NodeJob::Renew);
        }
        self.has_left |= order == Order::Leave;
        is_up.then_some(NodeJob::Order(order))
    }

    fn timed(&mut self) -> Vec<NodeJob> {
        match self.has_left {
            true => Vec::new(),
            false => vec![
                NodeJob::Renew,
                NodeJob::Bury,
                NodeJob::Vacate,
                NodeJob::Expire,
            ],
        }
    }

    fn probe(channel: Vec<u8>) -> NodeJob {
        NodeJob::Probe(channel)
    }

    fn bytes(job: &NodeJob) -> usize {
        match job {
            NodeJob::Order(Order::Send { bytes, .. } | Order::Append { bytes, .. }) => bytes.len(),
            _ => 0,
        }
    }

    fn command(&self, shared: &SharedPorts, session: &EngineSession, job: &NodeJob) -> Cmd {
        let EngineSession { scripts, fence, .. } = session;
        let (keys, node) = (&shared.keys, shared.settings.node);
        let mut command;
        match job {
            NodeJob::Order(Order::Send { to, bytes }) => {
                command = redis::cmd("PUBLISH");
                command.arg(match to {
                    Some(to) => keys.of_node("n", *to),
                    None => keys.single("nodes"),
                });
                command.arg(&bytes[..]);
            }
            NodeJob::Order(Order::Append { bytes, .. }) => {
                let meta = keys.single("control:m");
                let stream = keys.single("control:s");
                let generation = keys.single("generation");
                let stored = keys.single("stored");
                let used: [&[u8]; 6] = [&meta, &stream, &generation, &meta, &fence.key, &stored];
                command = scripts.run(RedisScript::Publish, &used);
                command.arg(keys.single("control")).arg("").arg(&bytes[..]);
                command.arg(CONTROL_SIZE);
                command.arg(CONTROL_TTL.as_millis() as u64);
                command.arg(CONTROL_POSITION_TTL.as_millis() as u64);
                command.arg(self.next_epoch(node));
                command.arg("").arg("").arg("").arg("").arg("");
                command.arg(fence.number);
            }
            NodeJob::Order(Order::ReadControl { since, .. }) => {
                let meta = keys.single("control:m");
                let stream = keys.single("control:s");
                let generation = keys.single("generation");
                command = scripts.run(RedisScript::Read, &[&meta, &stream, &generation]);
                command.arg(self.next_epoch(node));
                command.arg(CONTROL_POSITION_TTL.as_millis() as u64);
                command.arg(since).arg(CONTROL_SIZE);
                command.arg("latest");
            }
            NodeJob::Order(Order::Leave) => {
                command = redis::cmd("DEL");
                command.arg(keys.of_node("lease", node));
            }
            NodeJob::Order(Order::ReadLeases { .. }) => {
                command = scripts.run(RedisScript::Leases, &[&keys.single("leases")]);
                command.arg(keys.leases());
            }
            NodeJob::Order(Order::Store {
                table,
                name,
                value,
                until_s,
                ..
            }) => {
                let [values, ends] = keys.table(table);
                command = scripts.run(RedisScript::Store, &[&values, &ends]);
                command
                    .arg(&name[..])
                    .arg(value.as_deref().unwrap_or_default());
                match until_s {
                    Some(until_s) => command.arg(until_s),
                    None => command.arg(""),
                };
            }
            NodeJob::Expire => {
                let [values, ends] = keys.table(BLOCKS);
                command = scripts.run(RedisScript::Store, &[&values, &ends]);
                command.arg("").arg("").arg("");
            }
            NodeJob::Order(Order::ReadTable { table, .. }) => {
                let [values, _] = keys.table(table);
                command = redis::cmd("HGETALL");
                command.arg(values);
            }
            NodeJob::Renew | NodeJob::Order(Order::Announce(_)) => {
                let lease = keys.of_node("lease", node);
                command = scripts.run(RedisScript::Renew, &[&lease, &keys.single("leases")]);
                command
                    .arg(node.to_string())
                    .arg(&self.text[..])
                    .arg(LEASE_MS);
            }
            NodeJob::Bury => {
                command = scripts.run(RedisScript::Bury, &[&keys.single("pn")]);
                command.arg(node.to_string()).arg(keys.leases());
                command.arg(keys.named("pn", "")).arg(keys.members(""));
                command.arg(BURIED_MAX);
            }
            NodeJob::Vacate => {
                command = scripts.run(RedisScript::Vacate, &[&keys.single("on")]);
                command.arg(node.to_string()).arg(keys.leases());
                command.arg(keys.named("on", "")).arg(keys.occupants(""));
                command.arg(BURIED_MAX);
            }
            NodeJob::Probe(channel) => {
                command = redis::cmd("PUBLISH");
                command.arg(channel.as_slice()).arg("");
            }
        }
        command
    }

    fn answer(
        &mut self,
        shared: &SharedPorts,
        job: NodeJob,
        reply: Option<Value>,
        events: &mut Vec<Event>,
    ) {
        events.push(match job {
            NodeJob::Order(Order::Append { ticket, .. }) => Event::Appended {
                ticket,
                position: reply.and_then(|reply| {
                    let mut parts = list(reply)?;
                    let position = position(&bytes(parts.nth(1)?)?);
                    let count = parts.nth(1).and_then(|count| number(&count));
                    self.stored = count.map_or(self.stored, |count| count as u64);
                    position
                }),
            },
            NodeJob::Order(Order::ReadControl { ticket, .. }) => Event::ControlRead {
                ticket,
                stream: reply.and_then(control),
            },
            NodeJob::Order(Order::ReadLeases { ticket }) => Event::Leases {
                ticket,
                nodes: reply.and_then(leases),
            },
            NodeJob::Order(Order::Store { ticket, .. }) => Event::Stored {
                ticket,
                is_stored: reply.is_some(),
            },
            NodeJob::Order(Order::ReadTable { ticket, .. }) => Event::Table {
                ticket,
                values: reply.and_then(table),
            },
            NodeJob::Renew => {
                let had_ended = reply.and_then(|reply| number(&reply)) == Some(1);
                // The lease had ended, so other nodes may have removed this node's members meanwhile.
                if std::mem::replace(&mut self.has_lease, true) && had_ended {
                    shared.tell_homes(&channel::Event::Forgotten);
                }
                return;
            }
            NodeJob::Bury => return departed(shared, reply),
            NodeJob::Vacate => return vacated(shared, reply),
            NodeJob::Order(Order::Send { .. } | Order::Announce(_) | Order::Leave)
            | NodeJob::Expire
            | NodeJob::Probe(_) => return,
        });
    }
}

impl Peers {
    fn new(changes: UnboundedSender<Change>) -> Self {
        Self {
            _changes: changes,
            begun: Cell::new(0),
            text: Bytes::new(),
            has_lease: false,
            has_left: false,
            stored: 0,
        }
    }

    /// Returns the epoch of a control stream that this node begins. It differs at each call, since the store may lose the
    /// stream repeatedly.
    fn next_epoch(&self, node: NodeId) -> u64 {
        let count = self.begun.get();
        self.begun.set(count + 1);
        let bits = node.0.wrapping_add(count.wrapping_mul(EPOCH_STEP));
        veche_types::Epoch::from_bits(bits).bits()
    }
}

fn control(reply: Value) -> Option<Entries> {
    let mut parts = list(reply)?;
    let top = position(&bytes(parts.next()?)?)?;
    let mut entries = entries(parts.next()?)?;
    entries.reverse();
    let before = entries.first().map_or(top.offset, |(first, _)| {
        // This engine assigns consecutive offsets.
        first.saturating_sub(1)
    });
    Some(Entries {
        top,
        before,
        entries,
    })
}

fn leases(reply: Value) -> Option<Vec<(NodeId, Bytes)>> {
    let mut parts = list(reply)?;
    let mut nodes = Vec::new();
    while let Some(node) = parts.next() {
        let node = u64::from_str_radix(&text(node)?, 16).ok()?;
        nodes.push((NodeId(node), bytes(parts.next()?)?.into()));
    }
    Some(nodes)
}

fn table(reply: Value) -> Option<Vec<(Bytes, Bytes)>> {
    let mut parts = list(reply)?;
    let mut values = Vec::new();
    while let Some(name) = parts.next() {
        values.push((bytes(name)?.into(), bytes(parts.next()?)?.into()));
    }
    Some(values)
}

/// Notifies home workers of removed members.
fn departed(shared: &SharedPorts, reply: Option<Value>) {
    let Some(mut parts) = reply.and_then(list) else {
        return;
    };
    while let (Some(name), Some(data), Some(stays)) = (parts.next(), parts.next(), parts.next()) {
        let (Some(name), Some(data)) = (text(name), bytes(data)) else {
            return;
        };
        shared.tell_homes(&channel::Event::Departed {
            channel: name.into(),
            data: data.into(),
            is_elsewhere: bytes(stays).as_deref() == Some(b"1"),
        });
    }
}

/// Notifies home workers of channels whose last subscribers are gone.
fn vacated(shared: &SharedPorts, reply: Option<Value>) {
    let Some(mut parts) = reply.and_then(list) else {
        return;
    };
    let Some(at_ms) = parts.next().and_then(|time| number(&time)) else {
        return;
    };
    for channel in parts.filter_map(text) {
        shared.tell_homes(&channel::Event::Vacated {
            channel: channel.into(),
            at_ms: at_ms as u64,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With a repeated epoch, a store that has lost the stream would assign positions of the lost stream again.
    #[test]
    fn a_stream_never_begins_twice_in_one_epoch() {
        let (changes, _) = tokio::sync::mpsc::unbounded_channel();
        let peers = Peers::new(changes);
        let epochs = (0..1_000).map(|_| peers.next_epoch(NodeId(7)));
        let epochs: std::collections::HashSet<_> = epochs.collect();
        assert_eq!(epochs.len(), 1_000);
    }
}
