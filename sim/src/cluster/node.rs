//! A simulated node: its workers, each with an engine and its port, and its state machine in the cluster
//! ([`NodeControl`]).
//!
//! The workers are those of the real server, on the simulator's driver. Clients are connected to them and receive their
//! output at once; only messages between workers and messages of the engine may be late.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde_json::{Value, json};
use veche_frontends::Context;
use veche_hub::{
    ChannelName, ChannelQuery, ConnectionId, HubReply, Now, PayloadKind, PayloadRef, Position,
    PublishOptions, RequestOutcome, Ticket,
};
use veche_nodes::engine::channel::Event;
use veche_worker::{TurnLimits, TurnState};

use super::config;
use super::control::NodeControl;
use super::effect::ClusterEffect;
use super::link::SimulatedPort;
use super::session::{ClusterSession, PATH, command, payload_of};
use crate::Failure;
use crate::apps::BACK_END;
use crate::driven::DrivenWorker;
use crate::simulated_driver;
use crate::wire;
use crate::worker_driver::{Conditions, LaneMail, TransportInput, WorkerOutput, WorldMessage};

/// The wall-clock time at simulated time 0, in milliseconds since 1970.
const WALL_MS: u64 = 1_800_000_000_000;

/// Number of bytes that a transport accepts. It is never reached, because clients always read.
const ROOM_BYTES: usize = 1 << 30;

/// Maximum number of turns without a pause. A worker that needs more turns is considered never to
/// come to rest.
const TURNS_MAX: usize = 10_000;

/// A worker, with the port of its engine and its clients.
struct ClusterWorker {
    driven: DrivenWorker,
    port: SimulatedPort,
    sessions: BTreeMap<ConnectionId, ClusterSession>,
    /// The effects, each with the connection of the client concerned; `None` if it concerns no client.
    effects: Vec<(Option<ConnectionId>, ClusterEffect)>,
}

/// The messages from one worker to another.
#[derive(Default)]
struct ClusterLane {
    messages: VecDeque<WorldMessage>,
    /// The number of data messages that were sent and are not processed yet.
    unfinished: u32,
}

/// A node: the hubs of its workers with their engines and ports, and its state machine in the cluster.
pub(super) struct SimulatedNode {
    workers: Vec<ClusterWorker>,
    /// The lanes between workers, ordered by sender and then by receiver.
    lanes: Vec<ClusterLane>,
    pub(super) control: NodeControl,
    /// Whether the node is cut off from all servers of the store.
    pub(super) is_cut: bool,
    /// Whether messages in flight to the node and from it are held back.
    pub(super) is_stalled: bool,
    /// Workers that got credits back.
    credited: Vec<usize>,
    now_ms: u64,
}

impl SimulatedNode {
    pub(super) fn new(control: NodeControl, workers: u16, seed: u64, now_ms: u64) -> Self {
        let shared = |me| {
            let mut shared = config::shared(me, workers, seed);
            shared.set_now(clock(now_ms));
            shared
        };
        let conditions = Conditions {
            now: clock(now_ms),
            limits: TurnLimits::default(),
            credits: config::CREDITS,
            low_water_bytes: ROOM_BYTES,
            room_bytes: ROOM_BYTES,
            is_logged: false,
        };
        let drivers = simulated_driver::begin((0..workers).map(shared).collect(), &conditions);
        let worker = |driver| ClusterWorker {
            driven: DrivenWorker::new(driver),
            port: SimulatedPort::default(),
            sessions: BTreeMap::new(),
            effects: Vec::new(),
        };
        let lanes = usize::from(workers) * usize::from(workers);
        Self {
            workers: drivers.into_iter().map(worker).collect(),
            lanes: (0..lanes).map(|_| ClusterLane::default()).collect(),
            control,
            is_cut: false,
            is_stalled: false,
            credited: Vec::new(),
            now_ms,
        }
    }

    pub(super) fn ports(&mut self) -> impl Iterator<Item = &mut SimulatedPort> {
        self.workers.iter_mut().map(|worker| &mut worker.port)
    }

    pub(super) fn port(&mut self, worker: usize) -> &mut SimulatedPort {
        &mut self.workers[worker].port
    }

    /// Sets the time, and runs the turns that are due.
    pub(super) fn set_now(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
        for worker in 0..self.workers.len() {
            if self.workers[worker].driven.is_due(now_ms) {
                self.turn(worker);
            }
        }
    }

    /// Hands an event of the engine to a worker.
    pub(super) fn handle(&mut self, worker: usize, event: Event) {
        self.workers[worker].driven.add_engine_event(event);
        self.turn(worker);
    }

    /// Connects a client. Returns its connection.
    pub(super) fn connect(&mut self, worker: usize, client: usize) -> ConnectionId {
        let now = clock(self.now_ms);
        let one = &mut self.workers[worker];
        let mut outputs = Vec::new();
        let id = one.driven.accept(0, ROOM_BYTES, now, &mut outputs);
        one.sessions.insert(id, ClusterSession::new(client));
        self.apply(worker, outputs);
        self.send(worker, id, wire::handshake(PATH, ""));
        id
    }

    /// Sends the subscribe command of a client. With `since`, the client recovers from that position.
    pub(super) fn subscribe(
        &mut self,
        (worker, session): (usize, ConnectionId),
        channel: &str,
        Ticket(id): Ticket,
        since: Option<Position>,
    ) {
        let mut subscribe = json!({ "channel": channel });
        if let Some(Position { epoch, offset }) = since {
            subscribe["recover"] = true.into();
            subscribe["epoch"] = epoch.to_string().into();
            subscribe["offset"] = offset.into();
        }
        self.command(
            worker,
            session,
            &json!({ "id": id, "subscribe": subscribe }),
        );
    }

    /// Sends the unsubscribe command of a client.
    pub(super) fn unsubscribe(
        &mut self,
        (worker, session): (usize, ConnectionId),
        channel: &str,
        Ticket(id): Ticket,
    ) {
        let unsubscribe = json!({ "channel": channel });
        self.command(
            worker,
            session,
            &json!({ "id": id, "unsubscribe": unsubscribe }),
        );
    }

    /// Ends the connection of a client.
    pub(super) fn close(&mut self, worker: usize, session: ConnectionId) {
        let now = clock(self.now_ms);
        let one = &mut self.workers[worker];
        one.sessions.remove(&session);
        // The connection was reset, so the client has not received the last effects.
        one.effects.retain(|(to, _)| *to != Some(session));
        let mut outputs = Vec::new();
        let reset = TransportInput::Reset;
        one.driven.arrive(session, reset, now, &mut outputs);
        self.apply(worker, outputs);
        self.turn(worker);
    }

    fn command(&mut self, worker: usize, session: ConnectionId, value: &Value) {
        self.send(worker, session, command(value));
    }

    fn send(&mut self, worker: usize, session: ConnectionId, bytes: Vec<u8>) {
        let mut outputs = Vec::new();
        self.arrive(worker, session, bytes, &mut outputs);
        self.apply(worker, outputs);
        self.turn(worker);
    }

    fn arrive(
        &mut self,
        worker: usize,
        session: ConnectionId,
        bytes: Vec<u8>,
        outputs: &mut Vec<WorkerOutput>,
    ) {
        let bytes = TransportInput::Bytes(bytes);
        let driven = &mut self.workers[worker].driven;
        driven.arrive(session, bytes, clock(self.now_ms), outputs);
    }

    /// As the back end, publishes the payload that belongs to `number`. An outcome that is known at once is recorded as
    /// a reply. Returns whether the hub accepted the publication.
    pub(super) fn publish(
        &mut self,
        worker: usize,
        ticket: Ticket,
        channel: ChannelName<'_>,
        number: u64,
        options: Option<&Arc<PublishOptions>>,
    ) -> bool {
        let data = payload_of(number);
        let payload = PayloadRef {
            kind: PayloadKind::Json,
            bytes: data.as_bytes(),
        };
        let shared = self.back_end(worker);
        let from = Some((BACK_END, ticket));
        let outcome = (shared.hub).publish(from, channel, payload, options, &mut shared.requests);
        if let Ok(RequestOutcome::Done(published)) = outcome {
            self.replied(worker, ticket, HubReply::Published(published));
        }
        self.turn(worker);
        outcome.is_ok()
    }

    /// As the back end, removes the history of a channel. An outcome that is known at once is recorded as a reply.
    pub(super) fn remove_history(
        &mut self,
        worker: usize,
        ticket: Ticket,
        channel: ChannelName<'_>,
    ) {
        let shared = self.back_end(worker);
        let (from, query) = ((BACK_END, ticket), ChannelQuery::RemoveHistory);
        let outcome = (shared.hub).query(from, channel, query, &mut shared.requests);
        if let RequestOutcome::Done(reply) = outcome {
            self.replied(worker, ticket, reply);
        }
        self.turn(worker);
    }

    /// Returns the context of a worker for a call of the back end.
    fn back_end(&mut self, worker: usize) -> &mut Context {
        let shared = self.workers[worker].driven.shared_mut();
        shared.set_now(clock(self.now_ms));
        shared
    }

    fn replied(&mut self, worker: usize, ticket: Ticket, reply: HubReply) {
        let effects = &mut self.workers[worker].effects;
        effects.push((None, ClusterEffect::Replied(ticket, reply)));
    }

    /// Delivers the next message of a lane between workers. Returns whether there was one.
    pub(super) fn carry(&mut self, lane: usize) -> bool {
        let lane = lane % self.lanes.len();
        let Some(message) = self.lanes[lane].messages.pop_front() else {
            return false;
        };
        let (from, to) = (lane / self.workers.len(), lane % self.workers.len());
        let mut mail = self.no_mail();
        mail[from].push(LaneMail::Message(message));
        self.turn_with(to, mail);
        true
    }

    pub(super) fn lanes(&self) -> usize {
        self.lanes.len()
    }

    /// Takes the effects of a worker.
    pub(super) fn take_effects(&mut self, worker: usize) -> Vec<ClusterEffect> {
        let effects = std::mem::take(&mut self.workers[worker].effects);
        effects.into_iter().map(|(_, effect)| effect).collect()
    }

    pub(super) fn workers(&self) -> usize {
        self.workers.len()
    }

    /// Returns the non-empty queues and counters of all workers.
    pub(super) fn pending_work(&self) -> Vec<(&'static str, u64)> {
        let workers = self.workers.iter().map(|worker| &worker.driven);
        let pending = workers.flat_map(|driven| {
            let outboxes = &driven.shared().requests.outboxes;
            let worker = driven.pending_work().into_iter();
            worker.chain(outboxes.queue_lengths())
        });
        let lanes = self.lanes.iter();
        let on_their_way: usize = lanes.clone().map(|lane| lane.messages.len()).sum();
        let unfinished: u32 = lanes.map(|lane| lane.unfinished).sum();
        let lanes = [
            ("messages between workers", on_their_way as u64),
            ("unfinished mail", unfinished.into()),
        ];
        let all = pending.chain(lanes);
        all.filter(|(_, count)| *count > 0).collect()
    }

    /// Returns the numbers of the resources that are retained for sessions, by name.
    pub(super) fn session_resources(&self) -> Vec<(&'static str, u64)> {
        let workers = self.workers.iter().map(|worker| &worker.driven);
        let resources = workers.flat_map(|driven| {
            let connections = ("connections", driven.connections() as u64);
            let shared = driven.shared();
            let outboxes = shared.requests.outboxes.session_state_counts();
            let hub = shared.hub.session_resources();
            hub.chain(outboxes).chain([connections])
        });
        resources.filter(|(_, count)| *count > 0).collect()
    }

    fn no_mail(&self) -> Vec<Vec<LaneMail>> {
        self.workers.iter().map(|_| Vec::new()).collect()
    }

    fn turn(&mut self, worker: usize) {
        self.turn_with(worker, self.no_mail());
    }

    /// Runs turns of a worker until it waits for time to pass or for other workers.
    fn turn_with(&mut self, me: usize, mail: Vec<Vec<LaneMail>>) {
        let mut mail = Some(mail);
        for _ in 0..TURNS_MAX {
            let lanes = &self.lanes[me * self.workers.len()..][..self.workers.len()];
            let unfinished = lanes.iter().map(|lane| lane.unfinished).collect();
            let messages = mail.take().unwrap_or_else(|| self.no_mail());
            let now = clock(self.now_ms);
            let ClusterWorker {
                driven, effects, ..
            } = &mut self.workers[me];
            let turned = driven.turn(now, unfinished, messages, None);
            if turned.is_unasked {
                effects.push(failed("an idle worker has nothing to do", me));
            }
            if turned.passed.is_some() {
                let promise = "no connection is continued twice while another waits";
                effects.push(failed(promise, me));
            }
            let has_input = self.apply(me, turned.outputs);
            let ClusterWorker {
                driven, effects, ..
            } = &mut self.workers[me];
            let answers = driven.take_answers().into_iter();
            let replied = |(ticket, reply)| (None, ClusterEffect::Replied(ticket, reply));
            effects.extend(answers.map(replied));
            if turned.state != TurnState::Busy && !has_input {
                while let Some(credited) = self.credited.pop() {
                    self.turn(credited);
                }
                return;
            }
        }
        let effects = &mut self.workers[me].effects;
        effects.push(failed("a worker comes to rest", me));
    }

    /// Applies what a worker and its transports have done. Returns whether there is input for another turn.
    fn apply(&mut self, me: usize, outputs: Vec<WorkerOutput>) -> bool {
        let count = self.workers.len();
        let mut outputs = VecDeque::from(outputs);
        let mut has_input = false;
        while let Some(output) = outputs.pop_front() {
            match output {
                WorkerOutput::Sent { id, bytes, .. } => {
                    let replies = self.receive(me, id, bytes);
                    if !replies.is_empty() {
                        let mut more = Vec::new();
                        self.arrive(me, id, replies, &mut more);
                        outputs.extend(more);
                        has_input = true;
                    }
                }
                WorkerOutput::Resumed(_) => has_input = true,
                WorkerOutput::Ordered(mut orders) => self.workers[me].port.take(&mut orders),
                WorkerOutput::Posted(to, messages) => {
                    let lane = &mut self.lanes[me * count + to];
                    let data = messages.iter().filter(|message| message.is_data());
                    lane.unfinished += data.count() as u32;
                    lane.messages.extend(messages);
                }
                WorkerOutput::Finished(of, finished) => {
                    self.credited.push(of);
                    let lane = &mut self.lanes[of * count + me];
                    match lane.unfinished.checked_sub(finished) {
                        Some(left) => lane.unfinished = left,
                        None => {
                            let effects = &mut self.workers[me].effects;
                            effects.push(failed("credits return once", me));
                        }
                    }
                }
                _ => {}
            }
        }
        has_input
    }

    /// Lets a client read bytes. Returns the bytes that the client sends in reply.
    fn receive(&mut self, worker: usize, id: ConnectionId, bytes: Vec<u8>) -> Vec<u8> {
        let mut replies = Vec::new();
        let ClusterWorker {
            sessions, effects, ..
        } = &mut self.workers[worker];
        if let Some(session) = sessions.get_mut(&id) {
            let mut received = Vec::new();
            let read = session.read(bytes, &mut received, &mut replies);
            effects.extend(received.into_iter().map(|effect| (Some(id), effect)));
            let broken = read.err().map(ClusterEffect::Broken);
            effects.extend(broken.map(|broken| (None, broken)));
        }
        replies
    }
}

fn failed(promise: &str, worker: usize) -> (Option<ConnectionId>, ClusterEffect) {
    let failure = Failure {
        name: promise.to_owned(),
        detail: format!("worker {worker}"),
    };
    (None, ClusterEffect::Broken(failure))
}

fn clock(now_ms: u64) -> Now {
    Now {
        mono_ms: now_ms,
        wall_ms: WALL_MS + now_ms,
    }
}
