//! One worker of the server: what `veche`'s worker does with real sockets, with the network of a world.
//!
//! Its turn is that of `crates/server/src/worker.rs`, step by step; what is there between a socket and a connection (TLS,
//! accepting, applications) is not here.

use std::net::{IpAddr, Ipv4Addr};

use fastrand::Rng;
use veche_frontends::outbox::ANSWERS_BYTES_HIGH;
use veche_frontends::{Block, Connection, End, Now, Shared};
use veche_hub::{Answer, ConnectionId, Ticket, WorkerId};

use crate::disk::Disk;
use crate::failure::{Check, promise};
use crate::lanes::Lanes;
use crate::network::{LinkId, Network};
use crate::setup::Setup;

/// As whom the back end asks the hub: a session that no connection has.
pub(crate) const BACK_END: ConnectionId = ConnectionId {
    index: u32::MAX,
    generation: 0,
};

const LISTENER: u16 = 0;

/// What channels remember is looked through so often.
const TRIM_INTERVAL_MS: u64 = 1_000;

/// What a worker works with, beside its own.
pub(crate) struct Around<'a> {
    pub(crate) setup: &'a Setup,
    pub(crate) now: Now,
    pub(crate) lanes: &'a mut Lanes,
    pub(crate) network: &'a mut Network,
    pub(crate) disk: Option<&'a mut Disk>,
}

pub(crate) struct Worker {
    me: usize,
    pub(crate) shared: Shared,
    slots: Vec<Slot>,
    free: Vec<u32>,
    resumable: Vec<ConnectionId>,
    touched: Vec<u32>,
    sessions: Vec<ConnectionId>,
    trim_at_ms: u64,
    scratch: Vec<u8>,
    /// What the back end was answered.
    pub(crate) answers: Vec<(Ticket, Answer)>,
}

/// A place for a connection, and the one that is there.
struct Slot {
    generation: u32,
    held: Option<(Connection, LinkId)>,
}

impl Worker {
    pub(crate) fn new(me: usize, shared: Shared) -> Self {
        Self {
            me,
            shared,
            slots: Vec::new(),
            free: Vec::new(),
            resumable: Vec::new(),
            touched: Vec::new(),
            sessions: Vec::new(),
            trim_at_ms: 0,
            scratch: Vec::new(),
            answers: Vec::new(),
        }
    }

    /// A connection of a client.
    pub(crate) fn accept(&mut self, link: LinkId, now: Now) -> ConnectionId {
        self.shared.set_now(now);
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot {
                generation: 0,
                held: None,
            });
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        slot.generation += 1;
        let id = ConnectionId {
            index,
            generation: slot.generation,
        };
        let peer = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let connection = Connection::accept(id, LISTENER, peer, &mut self.shared);
        slot.held = Some((connection, link));
        id
    }

    fn find(&mut self, id: ConnectionId) -> Option<(&mut Connection, LinkId, &mut Shared)> {
        let slot = self.slots.get_mut(id.index as usize)?;
        if slot.generation != id.generation {
            return None;
        }
        let (connection, link) = slot.held.as_mut()?;
        Some((connection, *link, &mut self.shared))
    }

    fn with(&mut self, id: ConnectionId, work: impl FnOnce(&mut Connection, &mut Shared)) {
        if let Some((connection, _, shared)) = self.find(id) {
            work(connection, shared);
        }
    }

    /// Whether a connection takes what its client sends.
    pub(crate) fn is_open_to(&mut self, id: ConnectionId) -> bool {
        self.find(id)
            .is_some_and(|(connection, ..)| connection.is_blocked().is_none())
    }

    pub(crate) fn received(&mut self, id: ConnectionId, bytes: impl Iterator<Item = u8>, now: Now) {
        self.shared.set_now(now);
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        scratch.extend(bytes);
        self.with(id, |connection, shared| {
            connection.received(id, &mut scratch, shared);
        });
        self.scratch = scratch;
    }

    /// The client's FIN.
    pub(crate) fn ended(&mut self, id: ConnectionId, now: Now) {
        self.shared.set_now(now);
        self.with(id, |connection, shared| connection.ended(id, shared));
    }

    /// The transport took more. Whether it is to be closed.
    pub(crate) fn sent_more(&mut self, id: ConnectionId, unsent: usize) -> bool {
        self.shared.ports.outboxes.set_unsent(id, unsent);
        let blocked = self
            .find(id)
            .and_then(|(connection, ..)| connection.is_blocked());
        if unsent <= ANSWERS_BYTES_HIGH && blocked == Some(Block::Output) {
            self.resumable.push(id);
        }
        self.is_over(id)
    }

    fn is_over(&mut self, id: ConnectionId) -> bool {
        self.find(id).is_some_and(|(connection, _, shared)| {
            connection.has_ended() && shared.ports.outboxes.of(id).is_over()
        })
    }

    /// The transport is gone.
    pub(crate) fn closed(&mut self, id: ConnectionId) {
        let Some(slot) = self.slots.get_mut(id.index as usize) else {
            return;
        };
        if slot.generation == id.generation
            && let Some((mut connection, _)) = slot.held.take()
        {
            connection.closed(id, &mut self.shared);
            self.free.push(id.index);
        }
    }

    /// One turn. Whether anything moved.
    pub(crate) fn turn(
        &mut self,
        around: &mut Around<'_>,
        salt: Option<u32>,
    ) -> Result<bool, crate::Failure> {
        let mut random = Rng::with_seed(salt.unwrap_or(0).into());
        self.shared.set_now(around.now);
        self.time_out(around);
        let mut moved = self.take_mail(around, salt.is_none(), &mut random);
        if let Some(disk) = &mut around.disk
            && let Some(durable) = disk.news(self.me)
        {
            self.shared.hub.durable(durable, &mut self.shared.ports);
            moved = true;
        }
        moved |= self.go_on();
        let deliveries_max = around.setup.deliveries_max;
        moved |= self
            .shared
            .hub
            .sweep(deliveries_max, &mut self.shared.ports);
        self.carry_out();
        moved |= self.write_history(around)?;
        moved |= self.flush(around);
        moved |= self.post(around)?;
        moved |= self.trim();
        Ok(moved)
    }

    /// Connections whose time has come.
    fn time_out(&mut self, around: &Around<'_>) {
        let now_ms = around.now.mono_ms;
        let write_timeout_ms = self.shared.site.limits.write_timeout_ms;
        for index in 0..self.slots.len() {
            let slot = &mut self.slots[index];
            let Some((connection, link)) = &mut slot.held else {
                continue;
            };
            let link = around.network.links.get(link);
            let stalled_since_ms = link.and_then(|link| link.stalled_since_ms);
            let stalled_ms = stalled_since_ms.map_or(u64::MAX, |since| since + write_timeout_ms);
            if connection.deadline_ms().min(stalled_ms) <= now_ms {
                let id = ConnectionId {
                    index: index as u32,
                    generation: slot.generation,
                };
                connection.timeout(id, stalled_since_ms, &mut self.shared);
            }
        }
    }

    fn take_mail(&mut self, around: &mut Around<'_>, is_all: bool, random: &mut Rng) -> bool {
        for to in 0..self.shared.ports.post.lanes.len() {
            let unfinished = around.lanes.unfinished(self.me, to);
            self.shared.ports.post.lanes[to].unfinished = unfinished;
        }
        // Now and then some of it comes too late for this turn.
        let most = match random.u8(0..4) {
            0 if !is_all => random.usize(0..4),
            _ => usize::MAX,
        };
        let mut moved = false;
        for _ in 0..most {
            let Some((from, mail)) = around.lanes.next(self.me, random) else {
                break;
            };
            let from = WorkerId(from as u16);
            let ports = &mut self.shared.ports;
            self.shared.hub.receive(from, mail, ports);
            self.hand_answers();
            moved = true;
        }
        moved
    }

    fn go_on(&mut self) -> bool {
        let mut sessions = std::mem::take(&mut self.sessions);
        sessions.append(&mut self.resumable);
        let moved = !sessions.is_empty();
        sessions.append(&mut self.shared.waiting_for_credit);
        for id in sessions.drain(..) {
            self.with(id, |connection, shared| connection.resume(id, shared));
        }
        self.sessions = sessions;
        moved
    }

    fn hand_answers(&mut self) {
        while let Some((id, ticket, answer)) = self.shared.ports.answers.pop_front() {
            if id == BACK_END {
                self.answers.push((ticket, answer));
                continue;
            }
            self.with(id, |connection, shared| {
                connection.answered(id, ticket, answer, shared);
            });
        }
    }

    fn carry_out(&mut self) {
        self.hand_answers();
        while !self.shared.ports.kicks.is_empty() {
            for (id, code, reason) in std::mem::take(&mut self.shared.ports.kicks) {
                self.with(id, |connection, shared| {
                    connection.disconnect(id, code, &reason, shared);
                });
            }
        }
        for (id, instruction) in std::mem::take(&mut self.shared.ports.instructions) {
            self.with(id, |connection, shared| {
                connection.instructed(id, &instruction, shared);
            });
        }
        let mut sessions = std::mem::take(&mut self.sessions);
        self.shared.ports.outboxes.take_overflowed(&mut sessions);
        for id in sessions.drain(..) {
            self.with(id, |connection, shared| connection.overflowed(id, shared));
        }
        self.sessions = sessions;
    }

    fn write_history(&mut self, around: &mut Around<'_>) -> Result<bool, crate::Failure> {
        let Some(disk) = &mut around.disk else {
            return Ok(false);
        };
        let is_all = around.now.mono_ms >= self.trim_at_ms;
        match self.shared.hub.take_batch(is_all) {
            Some(batch) => disk.take(self.me, batch).map(|()| true),
            None => Ok(false),
        }
    }

    /// What the turn made leaves: one write a connection.
    fn flush(&mut self, around: &mut Around<'_>) -> bool {
        let mut touched = std::mem::take(&mut self.touched);
        self.shared.ports.outboxes.take_touched(&mut touched);
        let mut moved = !touched.is_empty();
        for index in touched.drain(..) {
            let Some((id, bytes, end)) = self.shared.ports.outboxes.take(index) else {
                continue;
            };
            let Some((_, link, _)) = self.find(id) else {
                continue;
            };
            if end == End::Abort {
                self.close(id, link, around.network);
                continue;
            }
            if !bytes.is_empty() {
                let links = &around.network.links;
                let was_unsent = links.get(&link).is_some_and(|link| !link.unsent.is_empty());
                let unsent = around.network.send(link, &bytes, around.now.mono_ms);
                let outboxes = &mut self.shared.ports.outboxes;
                outboxes.recycle(bytes);
                if was_unsent || unsent > 0 {
                    outboxes.set_unsent(id, unsent);
                }
            }
            if end == End::Shutdown {
                if let Some(link) = around.network.links.get_mut(&link) {
                    link.down_ends = true;
                }
                if self.is_over(id) {
                    self.close(id, link, around.network);
                }
            }
        }
        self.touched = touched;
        self.shared.ports.outboxes.settle_filled();
        moved |= self.shared.ports.outboxes.settle_backlogs();
        for id in std::mem::take(&mut self.shared.waiting_for_output) {
            let Some((_, link, shared)) = self.find(id) else {
                continue;
            };
            let link = around.network.links.get(&link);
            let unsent = link.map_or(0, |link| link.unsent.len());
            shared.ports.outboxes.set_unsent(id, unsent);
            if unsent <= ANSWERS_BYTES_HIGH {
                self.resumable.push(id);
            }
        }
        moved || !self.resumable.is_empty()
    }

    /// The server's end of a transport is closed.
    fn close(&mut self, id: ConnectionId, link: LinkId, network: &mut Network) {
        self.closed(id);
        if let Some(link) = network.links.get_mut(&link) {
            link.server = None;
        }
        network.forget_if_over(link);
    }

    fn post(&mut self, around: &mut Around<'_>) -> Result<bool, crate::Failure> {
        let mut moved = false;
        for to in 0..self.shared.ports.post.lanes.len() {
            let lane = &mut self.shared.ports.post.lanes[to];
            let finished = std::mem::take(&mut lane.finished);
            moved |= finished > 0 || !lane.outgoing.is_empty();
            let had = around.lanes.finish(to, self.me, finished);
            promise!(had, "credits go back once", "from {} to {to}", self.me);
            for mail in lane.outgoing.drain(..) {
                around.lanes.post(self.me, to, mail);
            }
            lane.outgoing_data = 0;
            lane.unfinished = around.lanes.unfinished(self.me, to);
        }
        Ok(moved)
    }

    fn trim(&mut self) -> bool {
        let now_ms = self.shared.now.mono_ms;
        if now_ms >= self.trim_at_ms {
            self.trim_at_ms = now_ms + TRIM_INTERVAL_MS;
            self.shared.trim();
            // Nobody is told of what a back end may want to know.
            self.shared.hub.take_happenings(&mut Vec::new());
            self.shared.notes.clear();
            return self.shared.hub.has_to_tell();
        }
        false
    }

    /// What its outboxes hold, each with its link.
    pub(crate) fn queued(&self) -> impl Iterator<Item = (LinkId, usize)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| {
            let (_, link) = slot.held.as_ref()?;
            let id = ConnectionId {
                index: index as u32,
                generation: slot.generation,
            };
            Some((*link, self.shared.ports.outboxes.of(id).queued()))
        })
    }

    /// Nothing is left of connections that are gone.
    pub(crate) fn check_empty(&self) -> Check {
        let held = self.slots.iter().filter(|slot| slot.held.is_some());
        let sessions = self.shared.stats.sessions.read();
        promise!(
            held.clone().count() == 0 && sessions == 0,
            "connections end",
            "{} connections and {sessions} sessions of worker {}",
            held.count(),
            self.me
        );
        let counts = self.shared.hub.counts();
        let left = [
            counts.channels,
            counts.users,
            counts.subscriptions,
            counts.queued,
            counts.stalled,
            counts.pending,
        ];
        promise!(
            left == [0; 6] && counts.queued_bytes == 0,
            "hubs empty",
            "worker {}: {counts:?}",
            self.me
        );
        Ok(())
    }
}
