//! A world of workers and clients without sockets, threads and clocks, around the production worker.
//!
//! [`World::new`] is the only constructor. Clients send bytes in any split and read as much as the test permits.
//! Messages between workers stay in lanes until the turn of their receiver, and time advances only by
//! [`World::advance`]. General invariants are asserted after every turn.

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
use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;

use veche_frontends::hooks::HookRequest;
use veche_frontends::outbox::ANSWERS_BYTES_HIGH;
use veche_frontends::{Context, DialCommand, Now, ShutdownReason, Stats, TransportEnd, WaitReason};
use veche_hub::{ChannelName, ConnectionId, HubMessage, HubReply, WorkerId};
use veche_nodes::{Envelope, NodeId, Sequencer};
use veche_worker::{
    DrainProgress, ExternalRequest, OutgoingMail, PendingWrite, TransportCommand, TurnLimits,
    TurnState, WorkerMessage,
};

use client::{Client, move_front};
pub use site::*;

/// Maximum number of deliveries per turn, small enough that a fan-out takes several turns.
const DELIVERIES_MAX: usize = 64;

/// Number of turns after which a world that is still busy is assumed to be in an endless loop.
const TURNS_MAX: usize = 200_000;

/// A client of some worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(pub usize);

pub struct World {
    pub now_ms: u64,
    pub workers: Vec<Worker>,
    clients: Vec<Client>,
    /// By sender and receiver: the messages on their way, and the number of data messages that are not processed yet.
    lanes: Vec<(VecDeque<WorkerMessage<Infallible>>, u32)>,
    queued_bytes_max: usize,
    /// The numbers of workers whose applications have not stopped, that have clients, and that have services.
    with_apps: usize,
    with_clients: usize,
    with_services: usize,
    /// Whether homes answer other workers as if the engine were unreachable, so that their publications and
    /// subscriptions fail.
    pub is_engine_down: bool,
}

/// A worker with its connections.
pub struct Worker {
    worker: veche_worker::Worker<apps::TestApps, usize>,
    /// The calls that the worker's applications received.
    pub record: Rc<RefCell<apps::Record>>,
    /// The hook requests that the worker's sessions made.
    asked: Vec<HookRequest>,
    /// The last generation of each connection index.
    generations: Vec<u32>,
    free: Vec<u32>,
}

impl Worker {
    pub fn shared(&self) -> &Context {
        self.worker.shared()
    }

    pub fn shared_mut(&mut self) -> &mut Context {
        self.worker.shared_mut()
    }
}

fn turn_limits(maintains: bool) -> TurnLimits {
    TurnLimits {
        deliveries: DELIVERIES_MAX,
        maintains,
        ..TurnLimits::default()
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
                    worker: veche_worker::Worker::new(shared, turn_limits(false)),
                    record,
                    asked: Vec::new(),
                    generations: Vec::new(),
                    free: Vec::new(),
                }
            })
            .collect();
        let lanes = (0..workers.len() * workers.len())
            .map(|_| (VecDeque::new(), 0))
            .collect();
        let queued_bytes_max =
            ANSWERS_BYTES_HIGH.max(options.outbox_bytes) + options.answer_bytes_max;
        let count = workers.len();
        let mut world = Self {
            now_ms: 1_000_000,
            with_apps: count,
            with_clients: count,
            with_services: count,
            workers,
            clients: Vec::new(),
            lanes,
            queued_bytes_max,
            is_engine_down: false,
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
            .for_each(|worker| worker.worker.set_now(now));
    }

    /// Connects a client to one of the listeners of a worker.
    pub fn connect(&mut self, worker: usize, listener: u16) -> Peer {
        let (peer, id) = self.begin(worker);
        let localhost = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let at = &mut self.workers[worker].worker;
        at.handle_accepted(id, listener, localhost, peer);
        self.command_transports(worker);
        Peer(peer)
    }

    /// Opens an outbound connection of an application. The returned client acts as the server.
    pub fn dial(&mut self, worker: usize, dial: DialCommand) -> Peer {
        let (peer, id) = self.begin(worker);
        let localhost = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let at = &mut self.workers[worker].worker;
        at.handle_dialed(id, localhost, dial, peer);
        self.settle();
        Peer(peer)
    }

    fn begin(&mut self, worker: usize) -> (usize, ConnectionId) {
        let peer = self.clients.len();
        let at = &mut self.workers[worker];
        let index = at.free.pop().unwrap_or_else(|| {
            at.generations.push(0);
            at.generations.len() as u32 - 1
        });
        let generation = &mut at.generations[index as usize];
        *generation += 1;
        let id = ConnectionId {
            index,
            generation: *generation,
        };
        self.clients.push(Client::new(worker, id));
        (peer, id)
    }

    /// Sends bytes of a client. While its connection is paused they wait, as they would in the kernel.
    pub fn send(&mut self, Peer(peer): Peer, bytes: &[u8]) {
        let client = &mut self.clients[peer];
        if client.is_paused || !client.waiting.is_empty() {
            client.waiting.extend(bytes);
            return;
        }
        let mut bytes = std::mem::take(&mut client.scratch).tap(bytes);
        let (worker, id) = (client.worker, client.id);
        self.workers[worker].worker.handle_received(id, &mut bytes);
        self.clients[peer].scratch = bytes;
        self.command_transports(worker);
    }

    /// Sends bytes like [`World::send`], in pieces whose lengths `next` returns.
    pub fn send_split(&mut self, peer: Peer, bytes: &[u8], mut next: impl FnMut(usize) -> usize) {
        let mut at = 0;
        while at < bytes.len() {
            let end = at + next(bytes.len() - at).clamp(1, bytes.len() - at);
            self.send(peer, &bytes[at..end]);
            at = end;
        }
    }

    /// Sends FIN after everything that the client has sent.
    pub fn finish(&mut self, Peer(peer): Peer) {
        self.clients[peer].is_finishing = true;
        self.deliver_waiting(peer);
    }

    /// Delivers FIN together with the last bytes, even if earlier input waits. This happens if one TLS record
    /// contains both.
    pub fn end_now(&mut self, Peer(peer): Peer) {
        let client = &mut self.clients[peer];
        (client.is_finishing, client.has_finished) = (true, true);
        let (worker, id) = (client.worker, client.id);
        self.workers[worker].worker.handle_ended(id);
        self.command_transports(worker);
    }

    /// Resets a client's connection.
    pub fn reset(&mut self, Peer(peer): Peer) {
        self.close(peer);
    }

    /// Limits the number of bytes that the client reads from now on.
    pub fn read_at_most(&mut self, Peer(peer): Peer, bytes: usize) {
        let client = &mut self.clients[peer];
        client.window = bytes;
        let moved = client.read();
        self.sent_more(peer, moved);
    }

    /// Resumes a connection although the event that it waits for may not have occurred.
    pub fn resume(&mut self, Peer(peer): Peer) {
        let client = &self.clients[peer];
        let shared = self.workers[client.worker].shared_mut();
        shared.waiting_for_credit.push(client.id);
    }

    /// Returns the bytes that a client has read since the last call.
    pub fn take(&mut self, Peer(peer): Peer) -> Vec<u8> {
        std::mem::take(&mut self.clients[peer].received)
    }

    /// Drops the bytes that a client has read since the last call; returns their number.
    pub fn drop_received(&mut self, Peer(peer): Peer) -> usize {
        let received = &mut self.clients[peer].received;
        let count = received.len();
        received.clear();
        count
    }

    /// Returns whether the server has neither closed the transport nor sent FIN.
    pub fn is_open(&self, Peer(peer): Peer) -> bool {
        let client = &self.clients[peer];
        !client.is_closed && !client.is_shut_down
    }

    /// Returns whether the transport is closed.
    pub fn is_closed(&self, Peer(peer): Peer) -> bool {
        self.clients[peer].is_closed
    }

    pub fn blocked(&self, Peer(peer): Peer) -> Option<WaitReason> {
        let client = &self.clients[peer];
        let connection = self.workers[client.worker].worker.connection(client.id);
        connection?.wait_reason()
    }

    /// Returns the connection's next deadline, in milliseconds.
    pub fn due_ms(&self, Peer(peer): Peer) -> Option<u64> {
        let client = &self.clients[peer];
        let connection = self.workers[client.worker].worker.connection(client.id)?;
        let limit_ms = self.workers[0].shared().config.limits.write_timeout_ms;
        let stalled_ms = client
            .stalled_since_ms
            .map_or(u64::MAX, |since| since + limit_ms);
        Some(connection.deadline_ms().min(stalled_ms))
    }

    pub fn stats(&self, worker: usize) -> &Stats {
        &self.workers[worker].shared().stats
    }

    /// Returns the home worker of a channel.
    pub fn home_of(&self, channel: &str) -> usize {
        let name = ChannelName::new(channel).expect("a valid name");
        usize::from(self.workers[0].shared().hub.home_of(name).0)
    }

    /// Returns a user whose home is on this worker.
    pub fn user_at(&self, worker: usize) -> String {
        (0..)
            .map(|n| format!("user{n}"))
            .find(|user| self.home_of(&format!("#{user}")) == worker)
            .expect("endless")
    }

    /// Advances the time. Deadlines fire in chronological order, and after each one turns run until
    /// the world is idle.
    pub fn advance(&mut self, ms: u64) {
        let end = self.now_ms + ms;
        loop {
            let due = self.clients.iter().filter_map(Client::timer_ms).min();
            let Some(due) = due.filter(|&due| due <= end) else {
                break;
            };
            self.now_ms = self.now_ms.max(due);
            self.tell_time();
            for peer in 0..self.clients.len() {
                self.time_out(peer);
            }
            self.settle();
            // A deadline that is still in the past after it has fired would fire forever.
            let again = self.clients.iter().filter_map(Client::timer_ms).min();
            assert!(
                again.is_none_or(|again| again > self.now_ms),
                "a deadline that nothing moves"
            );
        }
        self.now_ms = end;
        self.tell_time();
    }

    /// Advances the time and runs turns of one worker, while the others run none.
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

    fn time_out(&mut self, peer: usize) {
        let client = &mut self.clients[peer];
        if client.timer_ms().is_some_and(|due| due <= self.now_ms) {
            client.timer_ms = u64::MAX;
            let (worker, id) = (client.worker, client.id);
            self.workers[worker].worker.handle_timeout(id);
            self.command_transports(worker);
        }
    }

    /// Shuts the server down with a drain.
    pub fn drain(&mut self) {
        for worker in &mut self.workers {
            worker.worker.handle_drain(0, ShutdownReason::Stopping);
        }
        self.settle();
    }

    fn drain_progress(&self) -> DrainProgress {
        DrainProgress {
            have_apps_stopped: self.with_apps == 0,
            are_clients_gone: self.with_clients == 0,
            have_services_ended: self.with_services == 0,
        }
    }

    /// Runs turns of all workers until none has anything to do.
    pub fn settle(&mut self) {
        let mut turns = 0;
        while (0..self.workers.len()).fold(false, |moved, worker| self.turn(worker) | moved) {
            turns += 1;
            assert!(turns < TURNS_MAX, "the world does not come to rest");
        }
    }

    /// Runs one turn of a worker; returns whether anything happened in it.
    pub fn turn(&mut self, me: usize) -> bool {
        let mut moved = self.take_messages(me);
        let before = self.drain_progress();
        self.workers[me].worker.finish_turn();
        while let Some(request) = self.workers[me].worker.poll_request() {
            match request {
                ExternalRequest::Hook(hook) => self.workers[me].asked.push(hook),
                ExternalRequest::AppsStopped => self.with_apps -= 1,
                ExternalRequest::ClientsGone => self.with_clients -= 1,
                ExternalRequest::ServicesEnded => self.with_services -= 1,
            }
        }
        let progress = self.drain_progress();
        moved |= progress != before;
        self.workers[me].worker.handle_drain_progress(progress);
        self.command_transports(me);
        moved |= self.flush(me);
        moved |= self.post(me);
        self.workers[me].worker.end_turn();
        moved |= self.command_transports(me);
        moved |= self.workers[me].worker.state() == TurnState::Busy;
        self.check(me);
        moved
    }

    /// Runs a turn of each worker that ends with maintenance.
    pub fn maintain(&mut self) {
        for me in 0..self.workers.len() {
            self.workers[me].worker.set_limits(turn_limits(true));
            self.turn(me);
            self.workers[me].worker.set_limits(turn_limits(false));
        }
    }

    fn take_messages(&mut self, me: usize) -> bool {
        self.count_unfinished(me);
        let workers = self.workers.len();
        let mut moved = false;
        for from in 0..workers {
            while self.workers[me].worker.wants_message()
                && let Some(message) = self.lanes[from * workers + me].0.pop_front()
            {
                self.workers[me].worker.handle_message(from, message);
                moved = true;
            }
        }
        moved
    }

    fn count_unfinished(&mut self, me: usize) {
        let workers = self.workers.len();
        for to in 0..workers {
            let unfinished = self.lanes[me * workers + to].1;
            self.workers[me].worker.handle_credits(to, unfinished);
        }
    }

    /// Executes what a worker requests of its transports; returns whether input that waited was delivered.
    fn command_transports(&mut self, me: usize) -> bool {
        let mut moved = false;
        while let Some(command) = self.workers[me].worker.poll_transport() {
            let (TransportCommand::Pause(id)
            | TransportCommand::Resume(id)
            | TransportCommand::SetTimer(id, _)
            | TransportCommand::Close(id)) = command;
            let Some(&mut peer) = self.workers[me].worker.transport_mut(id) else {
                continue;
            };
            match command {
                TransportCommand::Pause(_) => self.clients[peer].is_paused = true,
                TransportCommand::SetTimer(_, due_ms) => self.clients[peer].timer_ms = due_ms,
                TransportCommand::Close(_) => self.close(peer),
                TransportCommand::Resume(_) => {
                    self.clients[peer].is_paused = false;
                    moved |= self.deliver_waiting(peer);
                }
            }
        }
        moved
    }

    fn flush(&mut self, me: usize) -> bool {
        let mut moved = false;
        while let Some(PendingWrite { id, bytes, end }) = self.workers[me].worker.poll_write() {
            moved = true;
            let worker = &mut self.workers[me].worker;
            let Some(&mut peer) = worker.transport_mut(id) else {
                continue;
            };
            if end == TransportEnd::Abort {
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
                worker.recycle(bytes);
                // Output that the client reads at once is not reported as unsent.
                match client.unsent.len() {
                    0 if was_unsent => worker.handle_sent(id, 0),
                    0 => {}
                    unsent => worker.handle_stalled(id, unsent),
                }
            }
            if end == TransportEnd::Shutdown {
                client.is_shut_down = true;
                worker.handle_shut_down(id, client.unsent.len());
            }
        }
        while let Some(id) = self.workers[me].worker.poll_unsent() {
            let worker = &mut self.workers[me].worker;
            if let Some(&mut peer) = worker.transport_mut(id) {
                worker.handle_unsent(id, self.clients[peer].unsent.len());
            }
        }
        moved | self.command_transports(me)
    }

    fn post(&mut self, me: usize) -> bool {
        let workers = self.workers.len();
        let mut moved = false;
        for to in 0..workers {
            let finished = self.workers[me].worker.poll_finished(to);
            self.lanes[to * workers + me].1 -= finished;
            moved |= finished > 0;
        }
        while let Some(OutgoingMail { to, message }) = self.workers[me].worker.poll_message() {
            if self.is_engine_down && self.answer_failed(me, to, &message) {
                moved = true;
                continue;
            }
            let (messages, unfinished) = &mut self.lanes[me * workers + to];
            *unfinished += u32::from(message.is_data());
            messages.push_back(carried(message, me, to));
            moved = true;
        }
        self.count_unfinished(me);
        moved
    }

    /// Answers a message to a home whose engine is unreachable. Returns whether the message was handled.
    fn answer_failed(&mut self, me: usize, to: usize, message: &WorkerMessage<Infallible>) -> bool {
        let WorkerMessage::Hub(mail) = message else {
            return false;
        };
        let answer = match mail {
            HubMessage::Publish { reply, .. } => {
                reply.map(|(session, ticket)| HubMessage::Answer {
                    session,
                    ticket,
                    answer: HubReply::Failed,
                })
            }
            HubMessage::Subscribe {
                session,
                ticket,
                registration,
                ..
            } => Some(HubMessage::Refused {
                session: *session,
                ticket: *ticket,
                registration: *registration,
            }),
            // An unsubscription while the subscription is pending gets no answer. A reachable home would only undo
            // the registration.
            HubMessage::Unsubscribe {
                registration: Some(_),
                ..
            } => None,
            _ => return false,
        };
        let answer = answer.map(WorkerMessage::Hub);
        let lane = to * self.workers.len() + me;
        self.lanes[lane].0.extend(answer);
        true
    }

    /// Makes a channel's home report to all workers that publications of the channel were lost.
    pub fn lose(&mut self, channel: &str) {
        let (home, workers) = (self.home_of(channel), self.workers.len());
        for to in 0..workers {
            let channel = channel.into();
            let message = WorkerMessage::Hub(HubMessage::Lost { channel });
            self.lanes[home * workers + to].0.push_back(message);
        }
        self.settle();
    }

    /// Checks the invariants that hold after every turn.
    fn check(&self, me: usize) {
        for client in self
            .clients
            .iter()
            .filter(|client| client.worker == me && !client.is_closed)
        {
            let queued = self.workers[me]
                .shared()
                .requests
                .outboxes
                .of(client.id)
                .queued();
            assert!(
                queued <= self.queued_bytes_max,
                "an outbox holds {queued} bytes"
            );
        }
    }

    /// Asserts that all connections are closed and have left no state.
    pub fn check_empty(&self) {
        assert!(self.clients.iter().all(|client| client.is_closed));
        for worker in &self.workers {
            let shared = worker.shared();
            assert_eq!(worker.worker.connections(), 0, "connections");
            assert_eq!(shared.hub.gauges(), veche_hub::HubGauges::default());
            assert_eq!(shared.stats.sessions.read(), 0, "sessions");
            assert_eq!(shared.stats.connections.read(), 0, "counted connections");
            worker.record.borrow().check_empty();
            let left: Vec<_> = worker.worker.pending_work().collect();
            assert_eq!(left, [], "pending work");
        }
        assert!(
            self.lanes
                .iter()
                .all(|(messages, unfinished)| messages.is_empty() && *unfinished == 0),
            "credits are lost"
        );
    }

    pub fn reset_all(&mut self) {
        (0..self.clients.len()).for_each(|peer| self.close(peer));
    }

    /// Delivers the input that waited during a pause, and then the FIN; returns whether it delivered anything.
    fn deliver_waiting(&mut self, peer: usize) -> bool {
        let mut moved = false;
        loop {
            let client = &mut self.clients[peer];
            if client.is_closed || client.is_paused {
                return moved;
            }
            let (worker, id) = (client.worker, client.id);
            if !client.waiting.is_empty() {
                let mut bytes = std::mem::take(&mut client.scratch).tap(&[]);
                let count = client.waiting.len().min(4096);
                move_front(&mut client.waiting, count, &mut bytes);
                self.workers[worker].worker.handle_received(id, &mut bytes);
                self.clients[peer].scratch = bytes;
                self.command_transports(worker);
            } else if client.is_finishing && !client.has_finished {
                client.has_finished = true;
                self.workers[worker].worker.handle_ended(id);
                self.command_transports(worker);
            } else {
                if client.has_finished && client.is_shut_down && client.unsent.is_empty() {
                    self.close(peer);
                }
                return moved;
            }
            moved = true;
        }
    }

    /// Reports to the worker that the transport has sent more bytes.
    fn sent_more(&mut self, peer: usize, moved: usize) {
        let client = &mut self.clients[peer];
        if moved > 0 && !client.is_closed {
            client.stalled_since_ms = (!client.unsent.is_empty()).then_some(self.now_ms);
            let (worker, id, unsent) = (client.worker, client.id, client.unsent.len());
            self.workers[worker].worker.handle_sent(id, unsent);
            self.command_transports(worker);
        }
    }

    fn close(&mut self, peer: usize) {
        let client = &mut self.clients[peer];
        if !std::mem::replace(&mut client.is_closed, true) {
            let (worker, id) = (client.worker, client.id);
            let worker = &mut self.workers[worker];
            let closed = worker.worker.handle_closed(id, None);
            assert!(closed.is_some(), "a connection closes once");
            worker.free.push(id.index);
        }
    }
}

/// Replaces the content of a buffer without a new allocation.
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

/// Returns a message as the receiver gets it. If nodes exchange messages of this type too, it is encoded and decoded on
/// its way.
fn carried(
    message: WorkerMessage<Infallible>,
    from: usize,
    to: usize,
) -> WorkerMessage<Infallible> {
    let (from, to) = (WorkerId(from as u16), WorkerId(to as u16));
    match message.into_node_message(from, to) {
        Err(message) => message,
        Ok(message) => {
            let bytes = Sequencer::new(NodeId(1)).wrap(message, 0).encode();
            let bytes = bytes.expect("a message that can be encoded");
            let envelope = Envelope::decode(&bytes).expect("a message that can be decoded");
            WorkerMessage::from_node_message(envelope.message).expect("a message for a worker")
        }
    }
}
