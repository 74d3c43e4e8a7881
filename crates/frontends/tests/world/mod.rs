//! A world of workers and clients without sockets, threads and clocks: what `veche`'s worker does with real ones.
//!
//! [`World::new`] is the one constructor. Clients send bytes in any split and read as fast as they are told to; mail
//! between workers lies in lanes until its receiver's turn; time moves only by [`World::advance`]. After every turn the
//! bounds that hold always are asserted.

#![allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    missing_docs,
    reason = "shared by several tests, none of which needs all of it"
)]

pub mod apps;
mod client;
mod hooks;
mod site;
pub mod wire;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;

use veche_frontends::outbox::ANSWERS_BYTES_HIGH;
use veche_frontends::{Block, Connection, Dial, End, Now, Parting, Shared, Stats};
use veche_hub::{ChannelName, Class, Mail, ConnectionId, WorkerId};

use client::{Client, move_front};
pub use site::*;

/// Deliveries of queued fan-outs in a turn: few, so that fan-outs take several turns.
const DELIVERIES_MAX: usize = 64;

/// Turns after which a world that is still busy is taken for one that never rests.
const TURNS_MAX: usize = 200_000;

/// A client of some worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(pub usize);

pub struct World {
    pub now_ms: u64,
    pub workers: Vec<Worker>,
    clients: Vec<Client>,
    /// Mail under way and data mail that is not finished, by sender and receiver.
    lanes: Vec<(VecDeque<Mail>, u32)>,
    queued_bytes_max: usize,
}

/// One worker: its connections' `Shared`, and who sits where.
pub struct Worker {
    pub shared: Shared,
    /// What its applications were told.
    pub record: Rc<RefCell<apps::Record>>,
    slots: Vec<(u32, Option<usize>)>,
    free: Vec<u32>,
    resumable: Vec<ConnectionId>,
    touched: Vec<u32>,
    sessions: Vec<ConnectionId>,
}

impl Worker {
    fn client(&self, id: ConnectionId) -> Option<usize> {
        let (generation, client) = self.slots.get(id.index as usize)?;
        client.filter(|_| *generation == id.generation)
    }
}

impl World {
    pub fn new(options: Options) -> Self {
        let workers: Vec<Worker> = (0..options.workers)
            .map(|me| {
                let record = Rc::default();
                let mut shared = options.shared(WorkerId(me));
                shared.apps = Some(Box::new(apps::TestApps(Rc::clone(&record))));
                Worker {
                    shared,
                    record,
                    slots: Vec::new(),
                    free: Vec::new(),
                    resumable: Vec::new(),
                    touched: Vec::new(),
                    sessions: Vec::new(),
                }
            })
            .collect();
        let lanes = (0..workers.len() * workers.len())
            .map(|_| (VecDeque::new(), 0))
            .collect();
        let queued_bytes_max =
            ANSWERS_BYTES_HIGH.max(options.outbox_bytes) + options.answer_bytes_max;
        let mut world = Self {
            now_ms: 1_000_000,
            workers,
            clients: Vec::new(),
            lanes,
            queued_bytes_max,
        };
        world.tell_time();
        world
    }

    fn tell_time(&mut self) {
        let now = Now {
            mono_ms: self.now_ms,
            wall_ms: 1_800_000_000_000 + self.now_ms,
        };
        self.workers
            .iter_mut()
            .for_each(|worker| worker.shared.set_now(now));
    }

    /// A new connection to one of the site's listeners.
    pub fn connect(&mut self, worker: usize, listener: u16) -> Peer {
        let localhost = IpAddr::V4(Ipv4Addr::LOCALHOST);
        self.begin(worker, |id, shared| {
            Connection::accept(id, listener, localhost, shared)
        })
    }

    /// A connection of an application to another server, which the peer then is.
    pub fn dial(&mut self, worker: usize, dial: Dial) -> Peer {
        let localhost = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let peer = self.begin(worker, |id, shared| {
            Connection::dial(id, localhost, dial, shared)
        });
        self.settle();
        peer
    }

    fn begin(
        &mut self,
        worker: usize,
        begin: impl FnOnce(ConnectionId, &mut Shared) -> Connection,
    ) -> Peer {
        let peer = self.clients.len();
        let at = &mut self.workers[worker];
        let index = at.free.pop().unwrap_or_else(|| {
            at.slots.push((0, None));
            at.slots.len() as u32 - 1
        });
        let slot = &mut at.slots[index as usize];
        *slot = (slot.0 + 1, Some(peer));
        let id = ConnectionId {
            index,
            generation: slot.0,
        };
        at.shared.stats.connections.add(1);
        let connection = begin(id, &mut at.shared);
        self.clients.push(Client::new(worker, id, connection));
        Peer(peer)
    }

    /// Bytes of a client arrive, unless its connection is paused: then they wait, as they would in the kernel.
    pub fn send(&mut self, Peer(peer): Peer, bytes: &[u8]) {
        let client = &mut self.clients[peer];
        if client.is_paused() || !client.waiting.is_empty() {
            client.waiting.extend(bytes);
        } else if let Some(connection) = &mut client.connection {
            let mut bytes = std::mem::take(&mut client.scratch).tap(bytes);
            connection.received(
                client.id,
                &mut bytes,
                &mut self.workers[client.worker].shared,
            );
            client.scratch = bytes;
        }
    }

    /// As [`World::send`], in pieces of which `next` chooses the lengths from what is left.
    pub fn send_split(&mut self, peer: Peer, bytes: &[u8], mut next: impl FnMut(usize) -> usize) {
        let mut at = 0;
        while at < bytes.len() {
            let end = at + next(bytes.len() - at).clamp(1, bytes.len() - at);
            self.send(peer, &bytes[at..end]);
            at = end;
        }
    }

    /// The client sends FIN after all that it has sent.
    pub fn finish(&mut self, Peer(peer): Peer) {
        self.clients[peer].is_finishing = true;
        self.deliver_waiting(peer);
    }

    /// FIN has come together with the last bytes, as it does in one record of TLS: also where input waits.
    pub fn end_now(&mut self, Peer(peer): Peer) {
        let client = &mut self.clients[peer];
        (client.is_finishing, client.has_finished) = (true, true);
        if let Some(connection) = &mut client.connection {
            connection.ended(client.id, &mut self.workers[client.worker].shared);
        }
    }

    /// The client is gone without a word.
    pub fn reset(&mut self, Peer(peer): Peer) {
        self.close(peer);
    }

    /// From now on the client reads at most so many bytes.
    pub fn read_at_most(&mut self, Peer(peer): Peer, bytes: usize) {
        let client = &mut self.clients[peer];
        client.window = bytes;
        let moved = client.read();
        self.sent_more(peer, moved);
    }

    /// The worker takes a client's connection for one that may go on.
    pub fn resume(&mut self, Peer(peer): Peer) {
        let client = &self.clients[peer];
        self.workers[client.worker].resumable.push(client.id);
    }

    /// What a client has read since the last time.
    pub fn take(&mut self, Peer(peer): Peer) -> Vec<u8> {
        std::mem::take(&mut self.clients[peer].received)
    }

    /// Bytes that a client has read since the last time, which are forgotten.
    pub fn drop_received(&mut self, Peer(peer): Peer) -> usize {
        let received = &mut self.clients[peer].received;
        let count = received.len();
        received.clear();
        count
    }

    /// Whether the server has neither closed the connection nor sent FIN.
    pub fn is_open(&self, Peer(peer): Peer) -> bool {
        let client = &self.clients[peer];
        client.connection.is_some() && !client.is_shut_down
    }

    /// Whether the transport is gone.
    pub fn is_closed(&self, Peer(peer): Peer) -> bool {
        self.clients[peer].connection.is_none()
    }

    pub fn blocked(&self, Peer(peer): Peer) -> Option<Block> {
        self.clients[peer].connection.as_ref()?.is_blocked()
    }

    /// When its connection is looked at next.
    pub fn due_ms(&self, Peer(peer): Peer) -> Option<u64> {
        self.clients[peer].due_ms(self.write_timeout_ms())
    }

    pub fn stats(&self, worker: usize) -> &Stats {
        &self.workers[worker].shared.stats
    }

    /// The worker that orders a channel.
    pub fn home_of(&self, channel: &str) -> usize {
        let name = ChannelName::new(channel).expect("a valid name");
        usize::from(self.workers[0].shared.hub.home_of(name).0)
    }

    /// A user whose home is that worker.
    pub fn user_at(&self, worker: usize) -> String {
        (0..)
            .map(|n| format!("user{n}"))
            .find(|user| self.home_of(&format!("#{user}")) == worker)
            .expect("endless")
    }

    /// Time passes: deadlines come one after the other, and after each the world settles.
    pub fn advance(&mut self, ms: u64) {
        let end = self.now_ms + ms;
        loop {
            let due = self
                .clients
                .iter()
                .filter_map(|client| client.due_ms(self.write_timeout_ms()))
                .min();
            let Some(due) = due.filter(|&due| due <= end) else {
                break;
            };
            self.now_ms = self.now_ms.max(due);
            self.tell_time();
            for peer in 0..self.clients.len() {
                self.time_out(peer);
            }
            self.settle();
            // A deadline that is looked at and stays in the past would be looked at for ever.
            let again = self
                .clients
                .iter()
                .filter_map(|client| client.due_ms(self.write_timeout_ms()))
                .min();
            assert!(
                again.is_none_or(|again| again > self.now_ms),
                "a deadline that nothing moves"
            );
        }
        self.now_ms = end;
        self.tell_time();
    }

    /// Time passes for one worker while the others stand still.
    pub fn advance_alone(&mut self, worker: usize, ms: u64) {
        self.now_ms += ms;
        self.tell_time();
        for peer in 0..self.clients.len() {
            if self.clients[peer].worker == worker {
                self.time_out(peer);
            }
        }
        while self.turn(worker) {}
    }

    fn write_timeout_ms(&self) -> u64 {
        self.workers[0].shared.site.limits.write_timeout_ms
    }

    fn time_out(&mut self, peer: usize) {
        let limit = self.write_timeout_ms();
        let client = &mut self.clients[peer];
        if client.due_ms(limit).is_some_and(|due| due <= self.now_ms)
            && let Some(connection) = &mut client.connection
        {
            connection.timeout(
                client.id,
                client.stalled_since_ms,
                &mut self.workers[client.worker].shared,
            );
            self.deliver_waiting(peer);
        }
    }

    /// The server goes away.
    pub fn drain(&mut self) {
        self.workers
            .iter_mut()
            .for_each(|worker| worker.shared.start_draining(Parting::Stopping));
        for peer in 0..self.clients.len() {
            self.with(peer, |connection, id, shared| connection.drain(id, shared));
        }
        self.settle();
    }

    /// Turns of all workers until nothing moves any more.
    pub fn settle(&mut self) {
        let mut turns = 0;
        while (0..self.workers.len()).fold(false, |moved, worker| self.turn(worker) | moved) {
            turns += 1;
            assert!(turns < TURNS_MAX, "the world does not come to rest");
        }
    }

    /// One turn of one worker, as `veche`'s worker does it; whether anything moved.
    pub fn turn(&mut self, me: usize) -> bool {
        let mut moved = self.take_mail(me);
        moved |= self.go_on(me);
        moved |= self.turn_apps(me);
        let shared = &mut self.workers[me].shared;
        let more = shared.hub.sweep(DELIVERIES_MAX, &mut shared.ports);
        moved |= more;
        self.carry_out(me);
        moved |= self.flush(me);
        moved |= self.post(me);
        self.check(me);
        moved
    }

    fn take_mail(&mut self, me: usize) -> bool {
        let workers = self.workers.len();
        for to in 0..workers {
            self.workers[me].shared.ports.post.lanes[to].unfinished =
                self.lanes[me * workers + to].1;
        }
        let mut moved = false;
        for from in 0..workers {
            while let Some(mail) = self.lanes[from * workers + me].0.pop_front() {
                let shared = &mut self.workers[me].shared;
                shared
                    .hub
                    .receive(WorkerId(from as u16), mail, &mut shared.ports);
                self.hand_answers(me);
                moved = true;
            }
        }
        moved
    }

    fn go_on(&mut self, me: usize) -> bool {
        let worker = &mut self.workers[me];
        let mut sessions = std::mem::take(&mut worker.sessions);
        sessions.append(&mut worker.resumable);
        let mut moved = !sessions.is_empty();
        sessions.append(&mut worker.shared.waiting_for_credit);
        for id in sessions.drain(..) {
            let Some(peer) = self.workers[me].client(id) else {
                continue;
            };
            self.with(peer, |connection, id, shared| connection.resume(id, shared));
            moved |= self.blocked(Peer(peer)) != Some(Block::Credit);
        }
        self.workers[me].sessions = sessions;
        moved
    }

    fn hand_answers(&mut self, me: usize) {
        while let Some((id, ticket, answer)) = self.workers[me].shared.ports.answers.pop_front() {
            if let Some(peer) = self.workers[me].client(id) {
                self.with(peer, |connection, id, shared| {
                    connection.answered(id, ticket, answer, shared)
                });
            }
        }
    }

    fn carry_out(&mut self, me: usize) {
        self.hand_answers(me);
        while !self.workers[me].shared.ports.kicks.is_empty() {
            let kicks = std::mem::take(&mut self.workers[me].shared.ports.kicks);
            for (id, code, reason) in kicks {
                if let Some(peer) = self.workers[me].client(id) {
                    self.with(peer, |connection, id, shared| {
                        connection.disconnect(id, code, &reason, shared)
                    });
                }
            }
        }
        let instructions = std::mem::take(&mut self.workers[me].shared.ports.instructions);
        for (id, instruction) in instructions {
            if let Some(peer) = self.workers[me].client(id) {
                self.with(peer, |connection, id, shared| {
                    connection.instructed(id, &instruction, shared)
                });
            }
        }
        self.hand_relays(me);
        self.hand_verdicts(me);
        let mut sessions = std::mem::take(&mut self.workers[me].sessions);
        self.workers[me]
            .shared
            .ports
            .outboxes
            .take_overflowed(&mut sessions);
        for id in sessions.drain(..) {
            if let Some(peer) = self.workers[me].client(id) {
                self.with(peer, |connection, id, shared| {
                    connection.overflowed(id, shared)
                });
            }
        }
        self.workers[me].sessions = sessions;
    }

    /// Commands find their response at once, whichever worker's it is.
    fn hand_relays(&mut self, me: usize) {
        for relay in std::mem::take(&mut self.workers[me].shared.ports.relays) {
            let Some(worker) = self.workers.get(usize::from(relay.to.worker.0)) else {
                continue;
            };
            if let Some(peer) = worker.client(relay.to.session) {
                self.with(peer, |connection, id, shared| {
                    connection.relayed(id, &relay, shared)
                });
            }
        }
    }

    fn flush(&mut self, me: usize) -> bool {
        let mut touched = std::mem::take(&mut self.workers[me].touched);
        self.workers[me]
            .shared
            .ports
            .outboxes
            .take_touched(&mut touched);
        let moved = !touched.is_empty();
        for index in touched.drain(..) {
            let Some((id, bytes, end)) = self.workers[me].shared.ports.outboxes.take(index) else {
                continue;
            };
            let Some(peer) = self.workers[me].client(id) else {
                continue;
            };
            if end == End::Abort {
                self.close(peer);
                continue;
            }
            let client = &mut self.clients[peer];
            if !bytes.is_empty() {
                assert!(
                    !client.is_shut_down,
                    "bytes after FIN: {:?}",
                    String::from_utf8_lossy(&bytes)
                );
                let was_unsent = !client.unsent.is_empty();
                client.write(&bytes, self.now_ms);
                let outboxes = &mut self.workers[me].shared.ports.outboxes;
                outboxes.recycle(bytes);
                // Nothing is told of what goes out at once.
                if was_unsent || !client.unsent.is_empty() {
                    outboxes.set_unsent(id, client.unsent.len());
                }
            }
            if end == End::Shutdown {
                client.is_shut_down = true;
                if client.has_finished && client.unsent.is_empty() {
                    self.close(peer);
                }
            }
        }
        self.workers[me].touched = touched;
        let outboxes = &mut self.workers[me].shared.ports.outboxes;
        outboxes.settle_filled();
        let moved = moved | outboxes.settle_backlogs();
        let mut waiting = std::mem::take(&mut self.workers[me].shared.waiting_for_output);
        for id in waiting.drain(..) {
            if let Some(peer) = self.workers[me].client(id)
                && self.clients[peer].unsent.len() <= ANSWERS_BYTES_HIGH
            {
                self.workers[me].resumable.push(id);
            }
        }
        self.workers[me].shared.waiting_for_output = waiting;
        let shared = &self.workers[me].shared;
        moved
            || !self.workers[me].resumable.is_empty()
            || !(shared.app_ready.is_empty() && shared.ports.app_answers.is_empty())
            || shared.ports.outboxes.has_drained()
    }

    fn post(&mut self, me: usize) -> bool {
        let workers = self.workers.len();
        let mut moved = false;
        for to in 0..workers {
            let lane = &mut self.workers[me].shared.ports.post.lanes[to];
            let finished = std::mem::take(&mut lane.finished);
            self.lanes[to * workers + me].1 -= finished;
            moved |= finished > 0 || !lane.outgoing.is_empty();
            let (mails, unfinished) = &mut self.lanes[me * workers + to];
            for mail in lane.outgoing.drain(..) {
                *unfinished += u32::from(mail.class() != Class::Control);
                mails.push_back(mail);
            }
            lane.outgoing_data = 0;
            lane.unfinished = *unfinished;
        }
        moved
    }

    /// What holds after every turn.
    fn check(&self, me: usize) {
        for client in self
            .clients
            .iter()
            .filter(|client| client.worker == me && client.connection.is_some())
        {
            let queued = self.workers[me]
                .shared
                .ports
                .outboxes
                .of(client.id)
                .queued();
            assert!(
                queued <= self.queued_bytes_max,
                "an outbox holds {queued} bytes"
            );
        }
    }

    /// Asserts that nothing is left of connections that are gone.
    pub fn check_empty(&self) {
        assert!(
            self.clients
                .iter()
                .all(|client| client.connection.is_none())
        );
        for worker in &self.workers {
            let counts = worker.shared.hub.counts();
            assert_eq!(counts, veche_hub::Counts::default());
            assert_eq!(worker.shared.stats.sessions.read(), 0, "sessions");
            worker.record.borrow().check_empty();
            assert!(worker.shared.ports.answers.is_empty() && worker.shared.ports.kicks.is_empty());
        }
        assert!(
            self.lanes
                .iter()
                .all(|(mails, unfinished)| mails.is_empty() && *unfinished == 0),
            "credits are lost"
        );
    }

    /// Every client goes.
    pub fn reset_all(&mut self) {
        (0..self.clients.len()).for_each(|peer| self.close(peer));
    }

    fn with(&mut self, peer: usize, work: impl FnOnce(&mut Connection, ConnectionId, &mut Shared)) {
        let client = &mut self.clients[peer];
        if let Some(connection) = &mut client.connection {
            work(
                connection,
                client.id,
                &mut self.workers[client.worker].shared,
            );
            self.deliver_waiting(peer);
        }
    }

    /// What waited while a connection was paused arrives, and then the client's FIN.
    fn deliver_waiting(&mut self, peer: usize) {
        loop {
            let client = &mut self.clients[peer];
            let Some(connection) = &mut client.connection else {
                return;
            };
            let shared = &mut self.workers[client.worker].shared;
            if connection.is_blocked().is_some() {
                return;
            }
            if !client.waiting.is_empty() {
                let mut bytes = std::mem::take(&mut client.scratch).tap(&[]);
                let count = client.waiting.len().min(4096);
                move_front(&mut client.waiting, count, &mut bytes);
                connection.received(client.id, &mut bytes, shared);
                client.scratch = bytes;
                continue;
            }
            if client.is_finishing && !client.has_finished {
                client.has_finished = true;
                connection.ended(client.id, shared);
            }
            if client.has_finished && client.is_shut_down && client.unsent.is_empty() {
                self.close(peer);
            }
            return;
        }
    }

    /// The transport took more of what was queued.
    fn sent_more(&mut self, peer: usize, moved: usize) {
        let client = &mut self.clients[peer];
        if moved > 0 && client.connection.is_some() {
            client.stalled_since_ms = (!client.unsent.is_empty()).then_some(self.now_ms);
            let worker = &mut self.workers[client.worker];
            worker
                .shared
                .ports
                .outboxes
                .set_unsent(client.id, client.unsent.len());
            if client.connection.as_ref().and_then(Connection::is_blocked) == Some(Block::Output) {
                worker.resumable.push(client.id);
            }
            let outboxes = &worker.shared.ports.outboxes;
            if client.has_finished && outboxes.of(client.id).is_over() {
                self.close(peer);
            }
        }
    }

    fn close(&mut self, peer: usize) {
        let client = &mut self.clients[peer];
        if let Some(mut connection) = client.connection.take() {
            let worker = &mut self.workers[client.worker];
            connection.closed(client.id, &mut worker.shared);
            worker.shared.stats.connections.sub(1);
            worker.slots[client.id.index as usize].1 = None;
            worker.free.push(client.id.index);
        }
    }
}

/// Refills a buffer without giving up what it has allocated.
trait Tap {
    fn tap(self, bytes: &[u8]) -> Self;
}

impl Tap for Vec<u8> {
    fn tap(mut self, bytes: &[u8]) -> Self {
        self.clear();
        self.extend_from_slice(bytes);
        self
    }
}
