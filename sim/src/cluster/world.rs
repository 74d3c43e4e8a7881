//! The simulated cluster, and the effects of each action on it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fastrand::Rng;
use veche_hub::{ChannelName, PublishOptions, Ticket};
use veche_nodes::NodeId;

use super::action::Action;
use super::channels::CHANNELS;
use super::client::{
    Asked, ClusterClient, PublicationProgress, PushedPublication, SessionLocation, State,
};
use super::control::NodeControl;
use super::coverage::{ClusterEvent, Coverage};
use super::ledger::Ledger;
use super::node::SimulatedNode;
use super::setup::Setup;
use super::store::{Server, State as Stored};
use super::trace::say;
use crate::failure::PromiseResult;
use crate::frontend_config;

/// A simulated cluster: its store, nodes and clients.
pub(super) struct World {
    pub(super) setup: Setup,
    pub(super) now_ms: u64,
    pub(super) servers: BTreeMap<u32, Server>,
    pub(super) primary: u32,
    /// The last copy of the store on disk.
    copy: Option<Stored>,
    /// The state of the replica: the last copy that has the identity of the running server; `None` without such a copy.
    replica: Option<Stored>,
    pub(super) ledger: Ledger,
    pub(super) nodes: Vec<SimulatedNode>,
    pub(super) clients: Vec<ClusterClient>,
    pub(super) publications: Vec<PushedPublication>,
    /// Requests of clients and back ends without an answer yet, by ticket, with the node that has to answer.
    pub(super) asked: BTreeMap<u32, (usize, Asked)>,
    next_ticket: u32,
    next_id: u64,
    /// Whether the store has lost nothing since the cluster was last at rest.
    pub(super) is_sound: bool,
    pub(super) bans: u32,
    /// Bans of ended nodes: they may not have reached the other nodes.
    pub(super) doubtful_bans: BTreeSet<u32>,
    pub(super) seen: Coverage,
    pub(super) hash: u64,
}

impl World {
    pub(super) fn new(setup: &Setup) -> Self {
        frontend_config::count_anew();
        let mut world = Self {
            setup: setup.clone(),
            now_ms: 1_000,
            servers: BTreeMap::new(),
            primary: 0,
            copy: None,
            replica: None,
            ledger: Ledger::default(),
            nodes: Vec::new(),
            clients: (0..setup.clients)
                .map(|_| ClusterClient::default())
                .collect(),
            publications: Vec::new(),
            asked: BTreeMap::new(),
            next_ticket: 0,
            next_id: 0,
            is_sound: true,
            bans: 0,
            doubtful_bans: BTreeSet::new(),
            seen: Coverage::default(),
            hash: setup.seed,
        };
        let replication = world.id();
        let server = Server::new(replication, 0, Stored::default());
        world.servers.insert(0, server);
        for _ in 0..setup.nodes {
            let node = world.node(BTreeSet::new());
            world.nodes.push(node);
        }
        world
    }

    /// Returns a number that no node, server or epoch has had.
    fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.setup.seed.wrapping_mul(1_000) + self.next_id
    }

    fn node(&mut self, bans: BTreeSet<u32>) -> SimulatedNode {
        let id = self.id();
        let control = NodeControl::new(NodeId(id), bans, self.now_ms);
        let seed = Rng::with_seed(id).u64(..);
        SimulatedNode::new(control, self.setup.workers, seed, self.now_ms)
    }

    pub(super) fn step(&mut self, action: Action) -> PromiseResult {
        say!("{} ms: {action:?}", self.now_ms);
        let node = |number: u8| usize::from(number) % self.setup.nodes;
        let channel = |number: u8| usize::from(number) % CHANNELS.len();
        let client = |number: u8| usize::from(number) % self.setup.clients;
        match action {
            Action::Round { salt } => return self.round(&mut Rng::with_seed(salt.into())),
            Action::Advance { ms } => return self.advance(ms.into()),
            Action::Subscribe {
                client: number,
                channel: name,
                node: at,
            } => self.subscribe(client(number), channel(name), node(at)),
            Action::Unsubscribe {
                client: number,
                channel: name,
            } => self.unsubscribe(client(number), channel(name)),
            Action::Disconnect { client: number } => self.disconnect(client(number)),
            Action::Publish {
                node: at,
                channel: name,
                is_keyed,
                times,
            } => {
                let (at, name) = (node(at), channel(name));
                for _ in 0..times {
                    self.publish(at, name, is_keyed);
                }
            }
            Action::Retry { node: at } => self.retry(node(at)),
            Action::RemoveHistory {
                node: at,
                channel: name,
            } => self.remove_history(node(at), channel(name)),
            Action::Ban { node: at } => {
                let at = node(at);
                self.nodes[at].control.ban(self.bans);
                self.bans += 1;
            }
            Action::Lose { node: at, salt } => {
                let at = node(at);
                self.lose(at, &mut Rng::with_seed(salt.into()));
            }
            Action::CutOff { node: at } => {
                let at = node(at);
                self.nodes[at].is_cut = true;
                self.lose_all(at);
                self.seen.note(ClusterEvent::CutOff);
            }
            Action::Heal { node: at } => {
                let at = node(at);
                self.nodes[at].is_cut = false;
            }
            Action::Stall {
                node: at,
                is_stalled,
            } => {
                let at = node(at);
                self.nodes[at].is_stalled = is_stalled;
                self.seen.note(ClusterEvent::Stalled);
            }
            Action::Crash { node: at } => self.crash(node(at)),
            Action::Copy => {
                self.copy = Some(self.server().state.clone());
                // A replica is a copy that has the identity of its primary, so the primary's identity has to be
                // recorded first.
                if self.server().is_known() {
                    self.replica.clone_from(&self.copy);
                }
            }
            Action::Restart => {
                let state = self.server().state.clone();
                self.replace(state, None);
                self.seen.note(ClusterEvent::Restarted);
            }
            Action::RestartOld => {
                if let Some(state) = self.copy.clone() {
                    self.lose_writes();
                    self.replace(state, None);
                    self.seen.note(ClusterEvent::RolledBack);
                }
            }
            Action::RestartEmpty => {
                self.lose_writes();
                self.replace(Stored::default(), None);
                self.seen.note(ClusterEvent::Emptied);
            }
            Action::Promote { salt } => {
                if let Some(state) = self.replica.clone() {
                    self.lose_writes();
                    self.replace(state, Some(&mut Rng::with_seed(salt.into())));
                    self.seen.note(ClusterEvent::Promoted);
                }
            }
            Action::Flush => {
                self.lose_writes();
                self.server().state.flush();
                for node in &mut self.nodes {
                    node.control.due.clear();
                }
                self.seen.note(ClusterEvent::Flushed);
            }
            Action::Evict {
                channel: name,
                is_position,
            } => {
                let name = CHANNELS[channel(name)];
                self.lose_writes();
                let state = &mut self.server().state;
                match is_position {
                    true => state.evict_position(name),
                    false => state.evict_stream(name),
                }
                self.seen.note(ClusterEvent::Evicted);
            }
            Action::Refuse { is_refusing } => {
                self.server().is_refusing = is_refusing;
                self.seen.note(ClusterEvent::Refused);
            }
            Action::Settle => return self.settle(),
        }
        self.react()
    }

    pub(super) fn server(&mut self) -> &mut Server {
        let server = self.servers.get_mut(&self.primary);
        server.expect("there is always one that new connections lead to")
    }

    /// Records that the store may have lost writes: until the cluster is at rest again, acknowledged publications may be
    /// missing.
    fn lose_writes(&mut self) {
        self.is_sound = false;
        for publication in &mut self.publications {
            if publication.progress == PublicationProgress::Acknowledged {
                publication.progress = PublicationProgress::Past;
            }
        }
        for client in &mut self.clients {
            for subscription in &mut client.subscriptions {
                subscription.is_doubtful |= subscription.state != State::Live;
            }
        }
    }

    /// Replaces the current server by a new one. With `split` the new server is a replica of the
    /// old one, and some connections remain with the old server.
    fn replace(&mut self, state: Stored, split: Option<&mut Rng>) {
        self.end_old_servers();
        let before = self.server().replication;
        let replication = self.id();
        let old = self.primary;
        let before = if split.is_some() { before } else { 0 };
        let number = self.primary.max(*self.servers.keys().last().unwrap_or(&0)) + 1;
        let server = Server::new(replication, before, state);
        self.servers.insert(number, server);
        self.primary = number;
        self.replica = None;
        match split {
            None => self.end_server(old),
            Some(random) => {
                for node in 0..self.nodes.len() {
                    for _ in 0..random.usize(..4) {
                        self.lose(node, random);
                    }
                }
            }
        }
    }

    /// Ends a server, and all connections to it.
    pub(super) fn end_server(&mut self, number: u32) {
        self.servers.remove(&number);
        for node in 0..self.nodes.len() {
            for worker in 0..self.nodes[node].workers() {
                if self.nodes[node].port(worker).link.server == Some(number) {
                    self.lose_link(node, worker);
                }
                let feed = &mut self.nodes[node].port(worker).feed;
                if feed.server == Some(number) {
                    feed.lose();
                }
            }
            let control = &mut self.nodes[node].control;
            if control.server == Some(number) {
                control.lose_feed();
            }
            if control.link.server == Some(number) {
                control.lose_link();
            }
        }
    }

    pub(super) fn subscribe(&mut self, client: usize, channel: usize, node: usize) {
        let one = &self.clients[client];
        let subscription = &one.subscriptions[channel];
        if subscription.state != State::Off || subscription.is_leaving {
            return;
        }
        let location = match one.location {
            Some(location) => location,
            None => self.connect(client, node),
        };
        let subscription = &self.clients[client].subscriptions[channel];
        let position = subscription.chain.as_ref().map(|chain| chain.position);
        let ticket = self.ask(location.node, Asked::Subscribe { client, channel });
        let subscription = &mut self.clients[client].subscriptions[channel];
        subscription.state = State::Waiting(ticket.0, position.is_some());
        subscription.is_lost = false;
        let session = (location.worker, location.session);
        self.nodes[location.node].subscribe(session, CHANNELS[channel], ticket, position);
    }

    fn connect(&mut self, client: usize, node: usize) -> SessionLocation {
        let one = &mut self.clients[client];
        one.connections += 1;
        let worker = (client + one.connections) % self.nodes[node].workers();
        let location = SessionLocation {
            node,
            worker,
            session: self.nodes[node].connect(worker, client),
        };
        one.location = Some(location);
        location
    }

    fn unsubscribe(&mut self, client: usize, channel: usize) {
        let one = &mut self.clients[client];
        let subscription = &mut one.subscriptions[channel];
        let Some(location) = one.location else {
            return;
        };
        if subscription.state == State::Off || subscription.is_leaving {
            return;
        }
        subscription.is_leaving = true;
        let ticket = self.ask(location.node, Asked::Unsubscribe { client, channel });
        let session = (location.worker, location.session);
        self.nodes[location.node].unsubscribe(session, CHANNELS[channel], ticket);
    }

    /// Records that a client is no longer subscribed.
    pub(super) fn end_subscription(&mut self, client: usize, channel: usize) {
        let subscription = &mut self.clients[client].subscriptions[channel];
        subscription.state = State::Off;
        subscription.is_lost = false;
        subscription.is_leaving = false;
        subscription.is_doubtful |= !self.is_sound;
    }

    pub(super) fn disconnect(&mut self, client: usize) {
        let Some(location) = self.clients[client].location.take() else {
            return;
        };
        for channel in 0..CHANNELS.len() {
            self.end_subscription(client, channel);
        }
        self.asked.retain(|_, (_, asked)| !asked.is_of(client));
        self.nodes[location.node].close(location.worker, location.session);
    }

    fn ask(&mut self, node: usize, asked: Asked) -> Ticket {
        self.next_ticket += 1;
        self.asked.insert(self.next_ticket, (node, asked));
        Ticket(self.next_ticket)
    }

    pub(super) fn publish(&mut self, node: usize, channel: usize, is_keyed: bool) {
        self.publications.push(PushedPublication {
            channel,
            is_keyed,
            progress: PublicationProgress::Unknown,
            is_safe: false,
        });
        self.submit(node, self.publications.len() - 1);
    }

    fn submit(&mut self, node: usize, publication: usize) {
        let one = &mut self.publications[publication];
        one.progress = PublicationProgress::Asked;
        one.is_safe = self.is_sound;
        let one = *one;
        let options = one.is_keyed.then(|| {
            Arc::new(PublishOptions {
                idempotency_key: Some(publication.to_string().into()),
                ..PublishOptions::default()
            })
        });
        let ticket = self.ask(node, Asked::Publish { publication });
        let worker = publication % self.nodes[node].workers();
        let (channel, number) = (name(one.channel), publication as u64);
        let has_room = self.nodes[node].publish(worker, ticket, channel, number, options.as_ref());
        if !has_room {
            self.asked.remove(&ticket.0);
            self.publications[publication].progress = PublicationProgress::Unknown;
        }
    }

    /// Publishes a second time the publications that have an idempotency key and an unknown
    /// outcome.
    pub(super) fn retry(&mut self, node: usize) {
        for publication in 0..self.publications.len() {
            let one = self.publications[publication];
            if one.is_keyed && one.progress == PublicationProgress::Unknown {
                self.seen.note(ClusterEvent::Retried);
                self.submit(node, publication);
            }
        }
    }

    fn remove_history(&mut self, node: usize, channel: usize) {
        self.lose_writes();
        let ticket = self.ask(node, Asked::Remove);
        let worker = channel % self.nodes[node].workers();
        self.nodes[node].remove_history(worker, ticket, name(channel));
    }

    /// Ends a node, and starts another node in its place with the same bans.
    fn crash(&mut self, at: usize) {
        for client in 0..self.clients.len() {
            if self.clients[client]
                .location
                .is_some_and(|location| location.node == at)
            {
                self.clients[client].location = None;
                for channel in 0..CHANNELS.len() {
                    self.end_subscription(client, channel);
                }
            }
        }
        let gone = self.asked.extract_if(.., |_, (node, _)| *node == at);
        for (_, (_, asked)) in gone {
            if let Asked::Publish { publication } = asked {
                self.publications[publication].progress = PublicationProgress::Unknown;
            }
        }
        let bans = std::mem::take(&mut self.nodes[at].control.bans);
        self.doubtful_bans.extend(&bans);
        self.nodes[at] = self.node(bans);
        self.seen.note(ClusterEvent::Crashed);
    }

    /// Adds an observation to the hash of the world.
    pub(super) fn note(&mut self, seen: &impl std::hash::Hash) {
        use std::hash::Hasher as _;
        let mut hasher = std::hash::DefaultHasher::new();
        hasher.write_u64(self.hash);
        seen.hash(&mut hasher);
        self.hash = hasher.finish();
    }
}

/// Returns the name of a channel.
fn name(channel: usize) -> ChannelName<'static> {
    ChannelName::new(CHANNELS[channel]).expect("a valid name")
}
