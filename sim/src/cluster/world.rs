//! A cluster in action: the effects of each action.

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

/// A cluster in action.
pub(super) struct World {
    pub(super) setup: Setup,
    pub(super) now_ms: u64,
    pub(super) servers: BTreeMap<u32, Server>,
    pub(super) primary: u32,
<<<<<<< ours
    /// The last copy of the store on disk.
||||||| base
    /// The last copy on disk, and the one of the replica.
=======
    /// The last copy of the store on disk, and the replica's copy.
>>>>>>> theirs
    copy: Option<Stored>,
    /// The state of the replica: the last copy that has the identity of the running server; `None` before there is one.
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
<<<<<<< ours
    /// Bans of ended nodes: they may not have reached the other nodes.
||||||| base
    /// Bans that a node may have taken along when it ended.
=======
    /// Bans of nodes that have ended: they may not have reached the other nodes.
>>>>>>> theirs
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
                self.server().state = Stored::default();
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

<<<<<<< ours
    /// Records that the store may have lost writes: until the cluster is at rest again, acknowledged publications may be
    /// missing.
||||||| base
    /// From here to the next rest acknowledged publications may be missing.
=======
    /// Records that acknowledged publications may be missing from now on, until the cluster is at rest.
>>>>>>> theirs
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

    /// Replaces the current server by another one. With `split` it is a replica of the old server, to which some
    /// connections still lead.
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

    /// The client is not subscribed any more.
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

<<<<<<< ours
    /// Publishes again the publications with an idempotency key that have an unknown outcome.
||||||| base
    /// Repeats what may not be stored and has a key.
=======
    /// Publishes again, with the same key, what may not be stored.
>>>>>>> theirs
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

<<<<<<< ours
||||||| base
    /// Clients and back ends take what hubs have for them.
    pub(super) fn react(&mut self) -> PromiseResult {
        for node in 0..self.nodes.len() {
            self.react_to(node)?;
        }
        Ok(())
    }

    pub(super) fn react_to(&mut self, node: usize) -> PromiseResult {
        let mut is_over = false;
        while !is_over {
            is_over = true;
            for worker in 0..self.nodes[node].workers() {
                for effect in self.nodes[node].take_effects(worker) {
                    is_over = false;
                    self.take(node, worker, effect)?;
                }
            }
            for client in 0..self.clients.len() {
                self.subscribe_lost(node, client);
            }
        }
        Ok(())
    }

    /// A client subscribes again where its state is insufficient.
    fn subscribe_lost(&mut self, node: usize, client: usize) {
        if self.clients[client]
            .location
            .is_none_or(|location| location.node != node)
        {
            return;
        }
        for channel in 0..CHANNELS.len() {
            if self.clients[client].subscriptions[channel].is_lost {
                self.unsubscribe(client, channel);
                self.subscribe(client, channel, node);
            }
        }
    }

    fn take(&mut self, node: usize, worker: usize, effect: HubEffect) -> PromiseResult {
        say!("  node {node}.{worker} has {effect:?}");
        match effect {
            HubEffect::Deliver {
                session,
                channel,
                position,
                number,
            } => {
                let location = SessionLocation {
                    node,
                    worker,
                    session,
                };
                self.delivered(location, place_of(&channel), position, number)
            }
            HubEffect::Lost(session, channel) => {
                let client = session.index as usize;
                let channel = place_of(&channel);
                if self.clients[client].subscriptions[channel].state == State::Live {
                    self.seen.note(ClusterEvent::Lost);
                    self.check_gap(client, channel)?;
                    self.clients[client].subscriptions[channel].is_lost = true;
                }
                Ok(())
            }
            HubEffect::Reply(ticket, reply) => {
                let asked = self.asked.remove(&ticket.0);
                promise!(
                    asked.is_some(),
                    "a request is answered once",
                    "ticket {ticket:?} again: {reply:?}"
                );
                let Some((_, asked)) = asked else {
                    return Ok(());
                };
                self.note(&(ticket.0, matches!(reply, HubReply::Failed)));
                self.answered(asked, reply)
            }
        }
    }

    fn delivered(
        &mut self,
        location: SessionLocation,
        channel: usize,
        position: Option<Position>,
        number: u64,
    ) -> PromiseResult {
        let client = location.session.index as usize;
        let one = &mut self.clients[client];
        let subscription = &mut one.subscriptions[channel];
        if subscription.is_lost && one.location == Some(location) {
            return Ok(());
        }
        promise!(
            one.location == Some(location) && subscription.state == State::Live,
            "only subscribers receive publications",
            "client {client} gets {number} of channel {channel} and has {subscription:?}"
        );
        let (Some(chain), Some(position)) = (&mut subscription.chain, position) else {
            return Err(Failure {
                name: "publications have positions".to_owned(),
                detail: format!("publication {number} of channel {channel} has none"),
            });
        };
        let followed = chain.follow(&self.ledger, channel, position, number);
        followed.map_err(|failure| failure.of(&format!("client {client}, live")))?;
        self.seen.note(ClusterEvent::Delivered);
        self.note(&(client, channel, number, position.offset));
        Ok(())
    }

    fn answered(&mut self, asked: Asked, reply: HubReply) -> PromiseResult {
        match (asked, reply) {
            (Asked::Subscribe { client, channel }, HubReply::Subscribed(Some(joined))) => {
                self.joined(client, channel, &joined)
            }
            (Asked::Subscribe { client, channel }, HubReply::Failed) => {
                self.clients[client].subscriptions[channel].state = State::Off;
                self.seen.note(ClusterEvent::NotFollowed);
                Ok(())
            }
            (Asked::Publish { publication }, HubReply::Published(published)) => {
                let one = &mut self.publications[publication];
                let channel = one.channel;
                one.progress = match one.is_safe && self.is_sound {
                    true => PublicationProgress::Acknowledged,
                    false => PublicationProgress::Past,
                };
                let is_known = published
                    .position
                    .is_some_and(|position| self.ledger.has(channel, position, publication as u64));
                promise!(
                    is_known,
                    "an acknowledged publication has the position that the store gave it",
                    "publication {publication} of channel {channel}: {published:?}"
                );
                self.seen.note(match published.is_skipped {
                    true => ClusterEvent::Skipped,
                    false => ClusterEvent::Acknowledged,
                });
                Ok(())
            }
            (Asked::Publish { publication }, HubReply::Failed) => {
                self.publications[publication].progress = PublicationProgress::Unknown;
                self.seen.note(ClusterEvent::Failed);
                Ok(())
            }
            (Asked::Remove, HubReply::HistoryRemoved(_)) => Ok(()),
            (asked, reply) => Err(Failure {
                name: "a request has its own answer".to_owned(),
                detail: format!("{asked:?}: {reply:?}"),
            }),
        }
    }

    /// A subscription is confirmed.
    fn joined(
        &mut self,
        client: usize,
        channel: usize,
        joined: &SubscribeOutcome,
    ) -> PromiseResult {
        let subscription = &mut self.clients[client].subscriptions[channel];
        let State::Waiting(_, is_recovering) = subscription.state else {
            return Ok(());
        };
        subscription.state = State::Live;
        let recovered = joined.recovered.as_ref();
        promise!(
            recovered.is_some() == is_recovering,
            "a returning subscriber learns whether something is missing",
            "client {client}, channel {channel}: {joined:?}"
        );
        let (Some(recovered), Some(chain)) = (recovered, &mut subscription.chain) else {
            subscription.chain = Some(Chain::join(&self.ledger, channel, joined.position)?);
            self.seen.note(ClusterEvent::Joined);
            return Ok(());
        };
        if std::mem::take(&mut subscription.is_doubtful) {
            *chain = Chain::join(&self.ledger, channel, joined.position)?;
            return Ok(());
        }
        if !recovered.is_complete {
            self.check_gap(client, channel)?;
            let chain = Chain::join(&self.ledger, channel, joined.position)?;
            self.clients[client].subscriptions[channel].chain = Some(chain);
            self.seen.note(ClusterEvent::NotRecovered);
            return Ok(());
        }
        for publication in &recovered.publications {
            let number = number_of(&publication.payload.bytes);
            if let Some(position) = publication.position {
                let followed = chain.follow(&self.ledger, channel, position, number);
                followed.map_err(|failure| failure.of(&format!("client {client}, recovered")))?;
            }
        }
        promise!(
            chain.position == joined.position,
            "a recovered subscriber has everything up to its position",
            "client {client}, channel {channel}: it has {}, and joined at {}",
            chain.position,
            joined.position
        );
        self.seen.note(match recovered.publications.is_empty() {
            true => ClusterEvent::Current,
            false => ClusterEvent::Recovered,
        });
        let count = recovered.publications.len();
        self.note(&(client, channel, count));
        Ok(())
    }

    /// A subscriber hears that something is missing: not where everything behind its position is stored, in a world without
    /// losses.
    fn check_gap(&mut self, client: usize, channel: usize) -> PromiseResult {
        let subscription = &self.clients[client].subscriptions[channel];
        let Some(position) = subscription.chain.as_ref().map(|chain| chain.position) else {
            return Ok(());
        };
        let behind = self.server().stored_behind(CHANNELS[channel], position);
        let is_too_far = behind.is_none_or(|behind| behind > RECOVERED_MAX);
        promise!(
            self.setup.can_lose || !has_much_history(channel) || is_too_far,
            "stored publications are recovered",
            "client {client} misses something of channel {channel} behind {position}"
        );
        Ok(())
    }

=======
    /// Passes the effects of hubs to clients and back ends.
    pub(super) fn react(&mut self) -> PromiseResult {
        for node in 0..self.nodes.len() {
            self.react_to(node)?;
        }
        Ok(())
    }

    pub(super) fn react_to(&mut self, node: usize) -> PromiseResult {
        let mut is_over = false;
        while !is_over {
            is_over = true;
            for worker in 0..self.nodes[node].workers() {
                for effect in self.nodes[node].take_effects(worker) {
                    is_over = false;
                    self.take(node, worker, effect)?;
                }
            }
            for client in 0..self.clients.len() {
                self.subscribe_lost(node, client);
            }
        }
        Ok(())
    }

    /// Subscribes a client again to channels in which its state is insufficient.
    fn subscribe_lost(&mut self, node: usize, client: usize) {
        if self.clients[client]
            .location
            .is_none_or(|location| location.node != node)
        {
            return;
        }
        for channel in 0..CHANNELS.len() {
            if self.clients[client].subscriptions[channel].is_lost {
                self.unsubscribe(client, channel);
                self.subscribe(client, channel, node);
            }
        }
    }

    fn take(&mut self, node: usize, worker: usize, effect: HubEffect) -> PromiseResult {
        say!("  node {node}.{worker} has {effect:?}");
        match effect {
            HubEffect::Deliver {
                session,
                channel,
                position,
                number,
            } => {
                let location = SessionLocation {
                    node,
                    worker,
                    session,
                };
                self.delivered(location, place_of(&channel), position, number)
            }
            HubEffect::Lost(session, channel) => {
                let client = session.index as usize;
                let channel = place_of(&channel);
                if self.clients[client].subscriptions[channel].state == State::Live {
                    self.seen.note(ClusterEvent::Lost);
                    self.check_gap(client, channel)?;
                    self.clients[client].subscriptions[channel].is_lost = true;
                }
                Ok(())
            }
            HubEffect::Reply(ticket, reply) => {
                let asked = self.asked.remove(&ticket.0);
                promise!(
                    asked.is_some(),
                    "a request is answered once",
                    "ticket {ticket:?} again: {reply:?}"
                );
                let Some((_, asked)) = asked else {
                    return Ok(());
                };
                self.note(&(ticket.0, matches!(reply, HubReply::Failed)));
                self.answered(asked, reply)
            }
        }
    }

    fn delivered(
        &mut self,
        location: SessionLocation,
        channel: usize,
        position: Option<Position>,
        number: u64,
    ) -> PromiseResult {
        let client = location.session.index as usize;
        let one = &mut self.clients[client];
        let subscription = &mut one.subscriptions[channel];
        if subscription.is_lost && one.location == Some(location) {
            return Ok(());
        }
        promise!(
            one.location == Some(location) && subscription.state == State::Live,
            "only subscribers receive publications",
            "client {client} gets {number} of channel {channel} and has {subscription:?}"
        );
        let (Some(chain), Some(position)) = (&mut subscription.chain, position) else {
            return Err(Failure {
                name: "publications have positions".to_owned(),
                detail: format!("publication {number} of channel {channel} has none"),
            });
        };
        let followed = chain.follow(&self.ledger, channel, position, number);
        followed.map_err(|failure| failure.of(&format!("client {client}, live")))?;
        self.seen.note(ClusterEvent::Delivered);
        self.note(&(client, channel, number, position.offset));
        Ok(())
    }

    fn answered(&mut self, asked: Asked, reply: HubReply) -> PromiseResult {
        match (asked, reply) {
            (Asked::Subscribe { client, channel }, HubReply::Subscribed(Some(joined))) => {
                self.joined(client, channel, &joined)
            }
            (Asked::Subscribe { client, channel }, HubReply::Failed) => {
                self.clients[client].subscriptions[channel].state = State::Off;
                self.seen.note(ClusterEvent::NotFollowed);
                Ok(())
            }
            (Asked::Publish { publication }, HubReply::Published(published)) => {
                let one = &mut self.publications[publication];
                let channel = one.channel;
                one.progress = match one.is_safe && self.is_sound {
                    true => PublicationProgress::Acknowledged,
                    false => PublicationProgress::Past,
                };
                let is_known = published
                    .position
                    .is_some_and(|position| self.ledger.has(channel, position, publication as u64));
                promise!(
                    is_known,
                    "an acknowledged publication has the position that the store gave it",
                    "publication {publication} of channel {channel}: {published:?}"
                );
                self.seen.note(match published.is_skipped {
                    true => ClusterEvent::Skipped,
                    false => ClusterEvent::Acknowledged,
                });
                Ok(())
            }
            (Asked::Publish { publication }, HubReply::Failed) => {
                self.publications[publication].progress = PublicationProgress::Unknown;
                self.seen.note(ClusterEvent::Failed);
                Ok(())
            }
            (Asked::Remove, HubReply::HistoryRemoved(_)) => Ok(()),
            (asked, reply) => Err(Failure {
                name: "a request has its own answer".to_owned(),
                detail: format!("{asked:?}: {reply:?}"),
            }),
        }
    }

    /// Handles the confirmation of a subscription.
    fn joined(
        &mut self,
        client: usize,
        channel: usize,
        joined: &SubscribeOutcome,
    ) -> PromiseResult {
        let subscription = &mut self.clients[client].subscriptions[channel];
        let State::Waiting(_, is_recovering) = subscription.state else {
            return Ok(());
        };
        subscription.state = State::Live;
        let recovered = joined.recovered.as_ref();
        promise!(
            recovered.is_some() == is_recovering,
            "a returning subscriber learns whether something is missing",
            "client {client}, channel {channel}: {joined:?}"
        );
        let (Some(recovered), Some(chain)) = (recovered, &mut subscription.chain) else {
            subscription.chain = Some(Chain::join(&self.ledger, channel, joined.position)?);
            self.seen.note(ClusterEvent::Joined);
            return Ok(());
        };
        if std::mem::take(&mut subscription.is_doubtful) {
            *chain = Chain::join(&self.ledger, channel, joined.position)?;
            return Ok(());
        }
        if !recovered.is_complete {
            self.check_gap(client, channel)?;
            let chain = Chain::join(&self.ledger, channel, joined.position)?;
            self.clients[client].subscriptions[channel].chain = Some(chain);
            self.seen.note(ClusterEvent::NotRecovered);
            return Ok(());
        }
        for publication in &recovered.publications {
            let number = number_of(&publication.payload.bytes);
            if let Some(position) = publication.position {
                let followed = chain.follow(&self.ledger, channel, position, number);
                followed.map_err(|failure| failure.of(&format!("client {client}, recovered")))?;
            }
        }
        promise!(
            chain.position == joined.position,
            "a recovered subscriber has everything up to its position",
            "client {client}, channel {channel}: it has {}, and joined at {}",
            chain.position,
            joined.position
        );
        self.seen.note(match recovered.publications.is_empty() {
            true => ClusterEvent::Current,
            false => ClusterEvent::Recovered,
        });
        let count = recovered.publications.len();
        self.note(&(client, channel, count));
        Ok(())
    }

    /// Checks a subscriber's notice that publications are missing: in a world without losses it is wrong if a channel
    /// with much history has stored everything after the subscriber's position, within the limit of recoveries.
    fn check_gap(&mut self, client: usize, channel: usize) -> PromiseResult {
        let subscription = &self.clients[client].subscriptions[channel];
        let Some(position) = subscription.chain.as_ref().map(|chain| chain.position) else {
            return Ok(());
        };
        let behind = self.server().stored_behind(CHANNELS[channel], position);
        let is_too_far = behind.is_none_or(|behind| behind > RECOVERED_MAX);
        promise!(
            self.setup.can_lose || !has_much_history(channel) || is_too_far,
            "stored publications are recovered",
            "client {client} misses something of channel {channel} behind {position}"
        );
        Ok(())
    }

>>>>>>> theirs
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
