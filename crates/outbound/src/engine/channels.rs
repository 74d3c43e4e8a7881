//! Converts the orders of home workers about their channels to Redis commands.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use redis::{Cmd, Value};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use veche_nodes::engine::StoreState;
use veche_nodes::engine::channel::{
    Check, Direction, Event, Found, Keep, Member, Members, Order, Publish, Published, Read,
};
use veche_nodes::engine::peer::Entries;
use veche_types::Position;

use super::commands::{self, PortClient};
use super::feed::Change;
use super::occupancy;
use super::port::Events;
use super::replies::{bytes, entries, list, number, position, text};
use super::scripts::RedisScript;
use super::session::EngineSession;
use super::shared::SharedPorts;

/// The time for which idempotency keys are stored, in milliseconds, as in the hub.
const KEY_TTL_MS: u64 = 5 * 60 * 1000;

/// The maximum number of members that are listed. If a channel has more members, they are only
/// counted.
const LISTED_MAX: usize = 10_000;

/// The maximum number of channels that one command compares. It is limited because Redis executes
/// no other command during the comparison.
const CHECKS_MAX: usize = 64;

/// The approximate size of one comparison in bytes, for the limit of a batch.
const CHECK_BYTES: usize = 256;

/// Executes the orders of a port until the port is dropped.
pub(super) async fn serve(
    shared: Arc<SharedPorts>,
    orders: UnboundedReceiver<Vec<Order>>,
    events: Arc<Events<Event>>,
    changes: UnboundedSender<Change>,
    probes: UnboundedReceiver<Vec<u8>>,
) {
    let client = Channels {
        changes,
        number: 0,
        is_begun: false,
        stored: 0,
    };
    commands::run(shared, client, orders, probes, events).await;
}

struct Channels {
    changes: UnboundedSender<Change>,
    /// The number of the current connection, counted from 1.
    number: u64,
    /// Whether the home worker has handled the event that reports the current connection.
    is_begun: bool,
    /// The number of publications in the store, as stated in the store's latest reply.
    stored: u64,
}

/// An order that becomes one command, several orders that share one command, or a probe of the feed.
pub(super) enum HomeJob {
    Order(Order),
    Compare(Vec<Check>),
    Probe(Vec<u8>),
}

impl PortClient for Channels {
    type Order = Order;
    type Event = Event;
    type Job = HomeJob;

    const EVERY: Duration = Duration::from_secs(3_600);

    fn connected(&mut self, number: u64, store: StoreState) -> Event {
        (self.number, self.is_begun) = (number, false);
        if store != StoreState::Same {
            self.stored = 0;
        }
        Event::Up(number, store)
    }

    fn lost(&mut self) -> Event {
        Event::Down
    }

    fn stored(&self) -> u64 {
        self.stored
    }

    fn take(&mut self, order: Order, is_up: bool) -> Option<HomeJob> {
        match order {
            Order::Begin(number) => self.is_begun = number == self.number,
            Order::Follow(topic) => drop(self.changes.send(Change::Follow(topic))),
            Order::Unfollow(topic) => drop(self.changes.send(Change::Unfollow(topic))),
            Order::Check(check) if is_up && self.is_begun => {
                return Some(HomeJob::Compare(vec![*check]));
            }
            order if is_up && self.is_begun => return Some(HomeJob::Order(order)),
            _ => {}
        }
        None
    }

    fn join(last: &mut HomeJob, next: HomeJob) -> Option<HomeJob> {
        match (last, next) {
            (HomeJob::Compare(checks), HomeJob::Compare(more))
                if checks.len() < CHECKS_MAX && !has_read(checks) && !has_read(&more) =>
            {
                checks.extend(more);
                None
            }
            (_, next) => Some(next),
        }
    }

    /// Only comparisons are independent of each other: each concerns one channel and contains the position that the
    /// node had seen when the comparison was ordered.
    fn is_independent(job: &HomeJob) -> bool {
        matches!(job, HomeJob::Compare(_))
    }

    fn timed(&mut self) -> Vec<HomeJob> {
        Vec::new()
    }

    fn probe(channel: Vec<u8>) -> HomeJob {
        HomeJob::Probe(channel)
    }

    fn bytes(job: &HomeJob) -> usize {
        match job {
            HomeJob::Order(Order::Publish(publish)) => publish.data.len(),
            HomeJob::Compare(checks) => checks.len() * CHECK_BYTES,
            _ => 0,
        }
    }

    fn command(&self, shared: &SharedPorts, session: &EngineSession, job: &HomeJob) -> Cmd {
        match job {
            HomeJob::Order(Order::Publish(order)) => publish(shared, session, order),
            HomeJob::Compare(checks) => check(shared, session, checks),
            HomeJob::Order(Order::Read(order)) => read(shared, session, order),
            HomeJob::Order(Order::Remove { channel, .. }) => {
                let (stream, fence) = (shared.keys.stream(channel), &session.fence);
                let mut command = session
                    .scripts
                    .run(RedisScript::Remove, &[&stream, &fence.key]);
                command.arg(fence.number);
                command
            }
            HomeJob::Order(Order::Member(order)) => member(shared, session, order),
            HomeJob::Order(Order::Occupancy(order)) => occupancy::command(shared, session, order),
            HomeJob::Order(Order::Members {
                channel,
                only_counts,
                ..
            }) => {
                let key = shared.keys.members(channel);
                let mut command = session.scripts.run(RedisScript::Members, &[&key]);
                command.arg(shared.settings.node.to_string());
                command.arg(shared.keys.leases());
                match only_counts {
                    true => command.arg("counts"),
                    false => command.arg(LISTED_MAX),
                };
                command
            }
            HomeJob::Probe(channel) => {
                let mut command = redis::cmd("PUBLISH");
                command.arg(channel.as_slice()).arg("");
                command
            }
            // Orders to begin, follow, unfollow or check are handled earlier and do not get here.
            HomeJob::Order(
                Order::Begin(_) | Order::Follow(_) | Order::Unfollow(_) | Order::Check(_),
            ) => redis::cmd("PING"),
        }
    }

    fn answer(
        &mut self,
        _shared: &SharedPorts,
        job: HomeJob,
        reply: Option<Value>,
        events: &mut Vec<Event>,
    ) {
        let order = match job {
            HomeJob::Order(order) => order,
            HomeJob::Compare(checks) => {
                let mut replies = reply.and_then(list).into_iter().flatten();
                return events.extend(checks.into_iter().map(|check| Event::Checked {
                    ticket: check.ticket,
                    found: replies.next().and_then(|reply| found(&check, reply)),
                }));
            }
            HomeJob::Probe(_) => return,
        };
        events.push(match order {
            Order::Publish(order) => Event::Published {
                ticket: order.ticket,
                result: match reply {
                    None => Published::Refused,
                    Some(reply) => {
                        published(&order, reply, &mut self.stored).unwrap_or(Published::Unknown)
                    }
                },
            },
            Order::Read(order) => Event::Entries {
                ticket: order.ticket,
                entries: reply.and_then(|reply| read_entries(&order, reply)),
            },
            Order::Remove { ticket, .. } => Event::Removed {
                ticket,
                is_removed: reply.is_some(),
            },
            Order::Member(order) => Event::Member {
                ticket: order.ticket,
                is_elsewhere: reply.and_then(|reply| number(&reply)) == Some(1),
            },
            Order::Occupancy(order) => Event::Occupancy {
                ticket: order.ticket,
                outcome: reply.and_then(occupancy::outcome),
            },
            Order::Members {
                ticket,
                only_counts,
                ..
            } => Event::Members {
                ticket,
                found: reply.and_then(|reply| members(reply, only_counts)),
            },
            Order::Begin(_) | Order::Follow(_) | Order::Unfollow(_) | Order::Check(_) => return,
        });
    }
}

fn publish(shared: &SharedPorts, session: &EngineSession, order: &Publish) -> Cmd {
    let keys = &shared.keys;
    let channel = &*order.channel;
    let topic = order.topic.as_deref();
    let head = topic.map_or(String::new(), |_| format!("{}:{channel}", channel.len()));
    let topic = keys.topic(topic.unwrap_or(channel));
    if order.keep.is_none() && order.key.is_none() {
        let mut command = redis::cmd("PUBLISH");
        let mut message = Vec::with_capacity(head.len() + 1 + order.data.len());
        message.extend_from_slice(head.as_bytes());
        message.push(b'u');
        message.extend_from_slice(&order.data);
        command.arg(topic).arg(message);
        return command;
    }
    let result = match &order.key {
        Some(key) => keys.result(channel, key),
        None => keys.meta(channel),
    };
    let (meta, stream) = (keys.meta(channel), keys.stream(channel));
    let generation = keys.single("generation");
    let EngineSession { scripts, fence, .. } = session;
    let stored = keys.single("stored");
    let used: [&[u8]; 6] = [&meta, &stream, &generation, &result, &fence.key, &stored];
    let mut command = scripts.run(RedisScript::Publish, &used);
    command.arg(topic).arg(head).arg(&order.data[..]);
    match &order.keep {
        None => command.arg("").arg("").arg("").arg(""),
        Some(keep) => {
            let lasting = Lasting::new(keep);
            command.arg(keep.size).arg(lasting.ttl_ms);
            command.arg(lasting.position_ttl_ms).arg(keep.epoch.bits())
        }
    };
    match order.key {
        None => command.arg(""),
        Some(_) => command.arg(KEY_TTL_MS),
    };
    match &order.version {
        None => command.arg("").arg(""),
        // The version is zero-padded, because the script compares versions as texts, which order correctly at equal
        // length.
        Some(version) => command
            .arg(format!("{:020}", version.number))
            .arg(&*version.epoch),
    };
    match order.repeats_since {
        None => command.arg("").arg(""),
        Some(since) => command.arg(since.offset).arg(since.epoch.bits()),
    };
    command.arg(fence.number);
    if let Some(keep) = &order.keep {
        Lasting::new(keep).mark(&mut command);
    }
    command
}

/// The lifetimes of a channel's keys in Redis: the configured times plus twice the
/// [slack](Self::slack_ms). A publication within the slack after the lifetimes were set need not
/// set them again, which saves two commands.
struct Lasting {
    ttl_ms: u64,
    position_ttl_ms: u64,
    /// For this many milliseconds after the lifetimes of a channel's keys were set, publications
    /// need not set them again. The clocks of nodes may differ by up to this time.
    slack_ms: u64,
    /// The milliseconds since 1970 plus both configured times, stored with the channel. Because the
    /// mark contains the configured times, changing them causes the lifetimes to be set again.
    mark: u64,
}

impl Lasting {
    #[expect(
        clippy::disallowed_methods,
        reason = "all nodes compare this wall-clock time, and workers never call this function"
    )]
    fn new(keep: &Keep) -> Self {
        let slack_ms = keep.ttl_ms.min(keep.position_ttl_ms) / 8;
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now_ms = since_1970.unwrap_or_default().as_millis() as u64;
        let configured = keep.ttl_ms.saturating_add(keep.position_ttl_ms);
        Self {
            ttl_ms: keep.ttl_ms.saturating_add(slack_ms * 2).max(1),
            position_ttl_ms: keep.position_ttl_ms.saturating_add(slack_ms * 2).max(1),
            slack_ms,
            mark: now_ms.saturating_add(configured),
        }
    }

    fn mark(&self, command: &mut Cmd) {
        command.arg(self.mark).arg(self.slack_ms);
    }
}

fn check(shared: &SharedPorts, session: &EngineSession, checks: &[Check]) -> Cmd {
    let EngineSession { scripts, fence, .. } = session;
    let mut keys = Vec::with_capacity(2 + 2 * checks.len());
    keys.push(shared.keys.single("generation"));
    keys.push(fence.key.clone());
    for check in checks {
        keys.push(shared.keys.meta(&check.channel));
        keys.push(shared.keys.stream(&check.channel));
    }
    let mut command = scripts.run(RedisScript::Check, &keys);
    command.arg(fence.number);
    for check in checks {
        let lasting = Lasting::new(&check.keep);
        command.arg(check.keep.epoch.bits());
        command.arg(lasting.position_ttl_ms);
        match check.seen {
            None => command.arg("").arg("0").arg(""),
            Some((position, id)) => {
                command.arg(position.epoch.bits()).arg(position.offset);
                match id {
                    0 => command.arg(""),
                    id => command.arg(&id.to_be_bytes()),
                }
            }
        };
        command.arg(u8::from(check.is_verifying));
        match check.ended {
            None => command.arg(""),
            Some(ended) => command.arg(ended.bits()),
        };
        lasting.mark(&mut command);
        match &check.read {
            None => command.arg("").arg("0"),
            Some(read) => command.arg(read.since.unwrap_or_default()).arg(limit(read)),
        };
    }
    command
}

/// Returns whether one of these comparisons also reads publications. Each comparison that does so runs as a script of
/// its own, so that Redis can execute other commands between the scripts.
fn has_read(checks: &[Check]) -> bool {
    checks.iter().any(|check| check.read.is_some())
}

/// Returns the maximum number of publications of a read, as Redis accepts it.
fn limit(read: &Read) -> usize {
    read.limit.min(u32::MAX as usize)
}

fn read(shared: &SharedPorts, session: &EngineSession, order: &Read) -> Cmd {
    let keys = &shared.keys;
    let (meta, stream) = (keys.meta(&order.channel), keys.stream(&order.channel));
    let generation = keys.single("generation");
    let used: [&[u8]; 3] = [&meta, &stream, &generation];
    let mut command = session.scripts.run(RedisScript::Read, &used);
    let lasting = Lasting::new(&order.keep);
    command.arg(order.keep.epoch.bits());
    command.arg(lasting.position_ttl_ms);
    match order.since {
        None => command.arg(""),
        Some(since) => command.arg(since),
    };
    command.arg(limit(order));
    command.arg(match order.direction {
        Direction::Forward => "forward",
        Direction::Reverse => "reverse",
        Direction::Latest => "latest",
    });
    lasting.mark(&mut command);
    command
}

fn member(shared: &SharedPorts, session: &EngineSession, order: &Member) -> Cmd {
    let (keys, node) = (&shared.keys, shared.settings.node);
    let members = keys.members(&order.channel);
    let channels = keys.of_node("pn", node);
    let nodes = keys.single("pn");
    let EngineSession { scripts, fence, .. } = session;
    let used: [&[u8]; 4] = [&members, &channels, &nodes, &fence.key];
    let mut command = scripts.run(RedisScript::Member, &used);
    command
        .arg(node.to_string())
        .arg(&*order.client)
        .arg(&*order.user);
    command.arg(order.data.as_deref().unwrap_or_default());
    command.arg(&*order.channel).arg(u8::from(order.finds_user));
    command.arg(keys.leases()).arg(fence.number);
    command
}

fn published(order: &Publish, reply: Value, stored: &mut u64) -> Option<Published> {
    if order.keep.is_none() && order.key.is_none() {
        return Some(Published::Done(None, Some(number(&reply)? as u32)));
    }
    let mut parts = list(reply)?;
    Some(match &*text(parts.next()?)? {
        "done" => {
            let position = position(&bytes(parts.next()?)?);
            let nodes = number(&parts.next()?)?;
            if let Some(count) = parts.next().and_then(|count| number(&count)) {
                *stored = count as u64;
            }
            Published::Done(position, u32::try_from(nodes).ok())
        }
        "skipped" => Published::Skipped(position(&bytes(parts.next()?)?)),
        _ => Published::Unknown,
    })
}

fn found(check: &Check, reply: Value) -> Option<Found> {
    if let Value::Int(_) = reply {
        // The channel's position is the one that the node has seen.
        let (top, id) = check.seen?;
        return Some(Found {
            top,
            id,
            latest: None,
            entries: None,
        });
    }
    let mut parts = list(reply)?;
    let top = position(&bytes(parts.next()?)?)?;
    let id = parts.next().and_then(bytes);
    let id = id.and_then(|id| Some(u64::from_be_bytes(*id.first_chunk()?)));
    let latest = parts.next().and_then(bytes);
    // This engine assigns consecutive offsets, so the offset of the previous publication is one less.
    let latest = latest.map(|data| (top.offset.saturating_sub(1), Bytes::from(data)));
    let read = check.read.as_deref().zip(parts.next());
    Some(Found {
        top,
        id: id.unwrap_or_default(),
        latest,
        entries: read.and_then(|(read, list)| read_list(read, top, list)),
    })
}

fn read_entries(order: &Read, reply: Value) -> Option<Box<Entries>> {
    let mut parts = list(reply)?;
    let top = position(&bytes(parts.next()?)?)?;
    read_list(order, top, parts.next()?)
}

/// Parses the reply with which Redis answers the read `order` of a channel. `top` is the position of the channel. Returns `None` if the reply is
/// malformed.
fn read_list(order: &Read, top: Position, list: Value) -> Option<Box<Entries>> {
    let mut entries = entries(list)?;
    if order.direction == Direction::Latest {
        entries.reverse();
    }
    Some(Box::new(Entries {
        top,
        before: before(top, &entries, order),
        entries,
    }))
}

/// Returns the offset that precedes the first of these entries, whose offsets are consecutive. If there are no entries,
/// or if a read of the latest entries lacks the channel's latest one, returns the channel's latest offset.
fn before(top: Position, entries: &[(u64, Bytes)], order: &Read) -> u64 {
    let is_chain = entries.last().is_none_or(|(last, _)| *last == top.offset);
    match entries.first() {
        Some((first, _)) if is_chain || order.direction != Direction::Latest => {
            first.saturating_sub(1)
        }
        _ => top.offset,
    }
}

fn members(reply: Value, only_counts: bool) -> Option<Members> {
    let mut parts = list(reply)?;
    let clients = number(&parts.next()?)? as u32;
    let users = number(&parts.next()?)? as u32;
    if only_counts {
        return Some(Members::Counts(clients, users));
    }
    Some(match parts.next().and_then(list) {
        Some(members) => Members::List(members.filter_map(bytes).map(Bytes::from).collect()),
        None => Members::TooMany,
    })
}
