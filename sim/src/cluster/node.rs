//! A node: the hubs of its workers, each with its engine and port, and its part in the cluster.

use std::collections::VecDeque;
use std::sync::Arc;

use veche_hub::{
    Caller, ChannelName, ConnectionId, Delivery, Hub, HubMessage, HubMessageClass, HubReply, Now,
    Options, Outlet, PayloadKind, PayloadRef, Position, PublishOptions, RemoteEngine,
    RequestOutcome, SubscribeOptions, Ticket, UserCommand, WorkerId,
};
use veche_nodes::engine::channel::Event;

use super::channels::namespaces;
use super::control::NodeControl;
use super::link::SimulatedPort;

/// Milliseconds since 1970 at the beginning of a world.
const WALL_MS: u64 = 1_800_000_000_000;

/// The number of fan-outs that a worker performs at once.
const SWEEP: usize = 1_000;

/// An effect of a hub on clients and back ends.
#[derive(Debug)]
pub(super) enum HubEffect {
    Deliver {
        session: ConnectionId,
        channel: Box<str>,
        position: Option<Position>,
        number: u64,
    },
    Reply(Ticket, HubReply),
    Lost(ConnectionId, Arc<str>),
}

/// The effects of one hub.
#[derive(Debug, Default)]
struct WorkerOutlet {
    effects: Vec<HubEffect>,
    sent: Vec<(WorkerId, HubMessage)>,
}

impl Outlet for WorkerOutlet {
    fn send_message(&mut self, to: WorkerId, mail: HubMessage) {
        self.sent.push((to, mail));
    }

    fn has_credit(&self, _: WorkerId, _: HubMessageClass) -> bool {
        true
    }

    fn return_credit(&mut self, _: WorkerId, _: HubMessageClass) {}

    fn deliver(&mut self, session: ConnectionId, delivery: &mut Delivery<'_>) {
        self.effects.push(HubEffect::Deliver {
            session,
            channel: delivery.channel.into(),
            position: delivery.position,
            number: number_of(delivery.payload.bytes),
        });
    }

    fn send_reply(&mut self, _: ConnectionId, ticket: Ticket, answer: HubReply) {
        self.effects.push(HubEffect::Reply(ticket, answer));
    }

    fn execute_command(&mut self, _: ConnectionId, _: &Arc<UserCommand>) {}

    fn publications_lost(&mut self, session: ConnectionId, channel: &Arc<str>) {
        self.effects
            .push(HubEffect::Lost(session, Arc::clone(channel)));
    }

    fn command_dispatched(&mut self, _: Caller, _: &Arc<UserCommand>) {}
}

/// A worker's hub, with the port of its engine.
struct Worker {
    home: Hub<RemoteEngine>,
    port: SimulatedPort,
    outlet: WorkerOutlet,
}

/// A node: the hubs of its workers with their engines and ports, and its part in the cluster.
pub(super) struct SimulatedNode {
    workers: Vec<Worker>,
    /// Messages between workers, by sender and receiver.
    lanes: Vec<VecDeque<HubMessage>>,
    pub(super) control: NodeControl,
    /// Whether the node is cut off from all servers of the store.
    pub(super) is_cut: bool,
    /// Whether messages in flight to the node and from it are held back.
    pub(super) is_stalled: bool,
    /// The last second for which maintenance was due.
    second: u64,
}

impl SimulatedNode {
    pub(super) fn new(control: NodeControl, workers: u16, seed: u64, now_ms: u64) -> Self {
        let options = Options::default();
        let worker = |number: u16| {
            let engine = RemoteEngine::new(seed.wrapping_mul(31) + u64::from(number));
            let (me, options) = (WorkerId(number), options.clone());
            let mut home = Hub::with_engine(me, workers, seed, options, engine);
            home.set_now(clock(now_ms));
            home.set_history(namespaces(), usize::MAX);
            Worker {
                home,
                port: SimulatedPort::default(),
                outlet: WorkerOutlet::default(),
            }
        };
        let lanes = usize::from(workers) * usize::from(workers);
        Self {
            workers: (0..workers).map(worker).collect(),
            lanes: (0..lanes).map(|_| VecDeque::new()).collect(),
            control,
            is_cut: false,
            is_stalled: false,
            second: now_ms / 1000,
        }
    }

    pub(super) fn ports(&mut self) -> impl Iterator<Item = &mut SimulatedPort> {
        self.workers.iter_mut().map(|worker| &mut worker.port)
    }

    pub(super) fn port(&mut self, worker: usize) -> &mut SimulatedPort {
        &mut self.workers[worker].port
    }

    /// Sets the time. Returns whether a second has passed.
    pub(super) fn set_now(&mut self, now_ms: u64) -> bool {
        for worker in &mut self.workers {
            worker.home.set_now(clock(now_ms));
        }
        std::mem::replace(&mut self.second, now_ms / 1000) != now_ms / 1000
    }

    /// Runs the maintenance of all hubs, which is due once a second.
    pub(super) fn maintain(&mut self) {
        for worker in 0..self.workers.len() {
            self.workers[worker].home.maintain();
            self.end_turn(worker);
        }
    }

    /// Hands an event of the engine to a home.
    pub(super) fn handle(&mut self, worker: usize, event: Event) {
        self.workers[worker].home.engine().handle(event);
        self.end_turn(worker);
    }

    /// Subscribes a session. An immediate outcome is recorded as a reply too.
    pub(super) fn subscribe(
        &mut self,
        worker: usize,
        session: ConnectionId,
        channel: ChannelName<'_>,
        ticket: Ticket,
        options: &SubscribeOptions,
    ) {
        let Worker { home, outlet, .. } = &mut self.workers[worker];
        let outcome = home.subscribe(session, channel, ticket, options, outlet);
        match outcome {
            Ok(RequestOutcome::Done(joined)) => {
                let reply = HubReply::Subscribed(joined);
                outlet.effects.push(HubEffect::Reply(ticket, reply));
            }
            Ok(RequestOutcome::Pending) => {}
            Err(error) => unreachable!("{error}"),
        }
        self.end_turn(worker);
    }

    pub(super) fn unsubscribe(
        &mut self,
        worker: usize,
        session: ConnectionId,
        channel: ChannelName<'_>,
    ) {
        let Worker { home, outlet, .. } = &mut self.workers[worker];
        home.unsubscribe(session, channel, outlet);
        self.end_turn(worker);
    }

    pub(super) fn close(&mut self, worker: usize, session: ConnectionId) {
        let Worker { home, outlet, .. } = &mut self.workers[worker];
        home.close(session, outlet);
        self.end_turn(worker);
    }

    /// Publishes a number. An immediate outcome is recorded as a reply too.
    pub(super) fn publish(
        &mut self,
        worker: usize,
        from: (ConnectionId, Ticket),
        channel: ChannelName<'_>,
        number: u64,
        options: Option<&Arc<PublishOptions>>,
    ) {
        let bytes = number.to_be_bytes();
        let payload = PayloadRef {
            kind: PayloadKind::Binary,
            bytes: &bytes,
        };
        let Worker { home, outlet, .. } = &mut self.workers[worker];
        match home.publish(Some(from), channel, payload, options, outlet) {
            Ok(RequestOutcome::Done(published)) => {
                let reply = HubReply::Published(published);
                outlet.effects.push(HubEffect::Reply(from.1, reply));
            }
            Ok(RequestOutcome::Pending) => {}
            // This would need a hub without credit or with a full queue: no simulated cluster publishes that much.
            Err(error) => unreachable!("{error:?}"),
        }
        self.end_turn(worker);
    }

    /// Removes the history of a channel. An immediate outcome is recorded as a reply too.
    pub(super) fn remove_history(
        &mut self,
        worker: usize,
        from: (ConnectionId, Ticket),
        channel: ChannelName<'_>,
    ) {
        let Worker { home, outlet, .. } = &mut self.workers[worker];
        if let RequestOutcome::Done(reply) = home.query(
            from,
            channel,
            veche_hub::ChannelQuery::RemoveHistory,
            outlet,
        ) {
            outlet.effects.push(HubEffect::Reply(from.1, reply));
        }
        self.end_turn(worker);
    }

    /// Delivers the next message of a lane between workers. Returns whether there was one.
    pub(super) fn carry(&mut self, lane: usize) -> bool {
        let lane = lane % self.lanes.len();
        let Some(message) = self.lanes[lane].pop_front() else {
            return false;
        };
        let (from, to) = (lane / self.workers.len(), lane % self.workers.len());
        let Worker { home, outlet, .. } = &mut self.workers[to];
        home.receive(WorkerId(from as u16), message, outlet);
        self.end_turn(to);
        true
    }

    pub(super) fn lanes(&self) -> usize {
        self.lanes.len()
    }

    /// Takes the effects of a worker.
    pub(super) fn take_effects(&mut self, worker: usize) -> Vec<HubEffect> {
        std::mem::take(&mut self.workers[worker].outlet.effects)
    }

    pub(super) fn workers(&self) -> usize {
        self.workers.len()
    }

    /// Returns the non-empty queues and counters of all workers.
    pub(super) fn pending_work(&self) -> Vec<(&'static str, u64)> {
        let homes = self.workers.iter().map(|worker| &worker.home);
        let pending = homes.flat_map(Hub::pending_work);
        let lanes: usize = self.lanes.iter().map(VecDeque::len).sum();
        let lanes = Some(("messages between workers", lanes as u64));
        pending
            .chain(lanes.filter(|(_, count)| *count > 0))
            .collect()
    }

    /// Returns the resources retained for sessions.
    pub(super) fn session_resources(&self) -> Vec<(&'static str, u64)> {
        let homes = self.workers.iter().map(|worker| &worker.home);
        homes.flat_map(Hub::session_resources).collect()
    }

    fn end_turn(&mut self, number: usize) {
        let count = self.workers.len();
        let Worker { home, port, outlet } = &mut self.workers[number];
        while home.take_reports(outlet) {}
        while home.needs_sweep() && home.sweep(SWEEP, outlet) {}
        port.take(home.engine().take_orders());
        for (to, message) in outlet.sent.drain(..) {
            self.lanes[number * count + usize::from(to.0)].push_back(message);
        }
    }
}

/// Returns the number that is a payload.
pub(super) fn number_of(bytes: &[u8]) -> u64 {
    bytes
        .first_chunk()
        .map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

fn clock(now_ms: u64) -> Now {
    Now {
        mono_ms: now_ms,
        wall_ms: WALL_MS + now_ms,
    }
}
