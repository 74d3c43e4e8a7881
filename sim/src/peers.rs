//! The remote ends of links: clients of Centrifugo's protocol, listeners of push routes, and back
//! ends.
//!
//! A link refers to its peer by number. Each kind of peer has its own range of numbers, and so have
//! the connections on which clients post commands, and the servers that applications have dialed.

use crate::api_client::{ApiClient, ApiProtocol, BackEndCall};
use crate::channels::{self, CHANNELS};
use crate::client::SimulatedClient;
use crate::dialed::Dials;
use crate::failure::{PromiseResult, promise};
use crate::frontend_config;
use crate::network::LinkId;
use crate::one_way::OneWayClient;
use crate::phase::Phase;
use crate::push_listener::PushListener;
use crate::setup::Setup;
use crate::world::World;

const LISTENERS: usize = 1_000;
const CALLERS: usize = 2_000;
const ONE_WAYS: usize = 3_000;
/// The lowest peer number of connections on which clients without a WebSocket post commands.
pub(crate) const POSTS: usize = 4_000;
/// The lowest peer number of servers that applications have dialed.
pub(crate) const DIALED: usize = 10_000;

pub(crate) struct Peers {
    pub(crate) clients: Vec<SimulatedClient>,
    pub(crate) listeners: Vec<PushListener>,
    pub(crate) callers: Vec<ApiClient>,
    pub(crate) one_ways: Vec<OneWayClient>,
    pub(crate) dials: Dials,
}

impl Peers {
    pub(crate) fn new(setup: &Setup) -> Self {
        Self {
            clients: (0..setup.clients)
                .map(|number| SimulatedClient::new(number, setup))
                .collect(),
            listeners: (0..setup.listeners).map(PushListener::new).collect(),
            callers: (0..setup.callers).map(ApiClient::new).collect(),
            one_ways: (0..setup.one_ways).map(OneWayClient::new).collect(),
            dials: Dials::default(),
        }
    }

    pub(crate) fn reads(&self, peer: usize) -> bool {
        match peer {
            POSTS.. => true,
            ONE_WAYS.. => self.one_ways[peer - ONE_WAYS].reads,
            CALLERS.. => true,
            LISTENERS.. => self.listeners[peer - LISTENERS].reads,
            _ => self.clients[peer].reads,
        }
    }

    /// Makes a client or listener start or stop reading.
    pub(crate) fn set_reads(&mut self, number: usize, reads: bool) {
        let (clients, listeners) = (self.clients.len(), self.listeners.len());
        let number = number % (clients + self.listening());
        match number.checked_sub(clients) {
            Some(one_way) if one_way >= listeners => {
                self.one_ways[one_way - listeners].reads = reads;
            }
            Some(listener) => self.listeners[listener].reads = reads,
            None => self.clients[number].reads = reads,
        }
    }

    /// Returns the number of listeners, on push routes or by Centrifugo's protocol.
    pub(crate) fn listening(&self) -> usize {
        self.listeners.len() + self.one_ways.len()
    }

    pub(crate) fn all_read(&mut self) {
        for one in &mut self.one_ways {
            one.reads = true;
        }
        for client in &mut self.clients {
            client.reads = true;
        }
        for listener in &mut self.listeners {
            listener.reads = true;
        }
    }

    /// Returns whether a connected peer does not read.
    pub(crate) fn has_slow(&self) -> bool {
        let clients = self.clients.iter().map(|one| (one.reads, one.link));
        let listeners = self.listeners.iter().map(|one| (one.reads, one.link));
        let one_ways = self.one_ways.iter().map(|one| (one.reads, one.link));
        let mut all = clients.chain(listeners).chain(one_ways);
        all.any(|(reads, link)| !reads && link.is_some())
    }

    /// Returns whether the peer is a client in the connected state.
    pub(crate) fn is_online(&self, peer: usize) -> bool {
        let client = self.clients.get(peer);
        client.is_some_and(|client| client.phase == Phase::Online)
    }

    /// Handles the loss of a peer's end of its link.
    pub(crate) fn dropped(&mut self, peer: usize) {
        match peer {
            DIALED.. => self.dials.dropped(peer - DIALED),
            POSTS.. => self.clients[peer - POSTS].emulation.dropped(),
            ONE_WAYS.. => self.one_ways[peer - ONE_WAYS].dropped(),
            CALLERS.. => self.callers[peer - CALLERS].dropped(),
            LISTENERS.. => self.listeners[peer - LISTENERS].dropped(),
            _ => self.clients[peer].dropped(),
        }
    }

    /// Returns the link of a client's session if the client's connection for posted commands (`peer`) has ended and
    /// commands may have been lost with it.
    pub(crate) fn unsure(&self, peer: usize) -> Option<LinkId> {
        let client = self.clients.get(peer.checked_sub(POSTS)?)?;
        let is_unsure = client.phase == Phase::Online && !client.pending.is_empty();
        client.link.filter(|_| is_unsure)
    }

    /// Returns the link of a peer, its output, and the number of replies that it waits for.
    fn outgoing(&mut self, peer: usize) -> Option<(Option<LinkId>, &mut Vec<u8>, usize)> {
        let outgoing = match peer {
            DIALED.. => {
                let one = self.dials.server(peer - DIALED)?;
                (one.link, &mut one.out, 1)
            }
            POSTS.. => return None,
            ONE_WAYS.. => {
                let one = &mut self.one_ways[peer - ONE_WAYS];
                (one.link, &mut one.out, 1)
            }
            CALLERS.. => {
                let one = &mut self.callers[peer - CALLERS];
                let owed = one.owed();
                (one.link, &mut one.out, owed)
            }
            LISTENERS.. => {
                let one = &mut self.listeners[peer - LISTENERS];
                // A listener's only output is its request, which consists of the path.
                (one.link, &mut one.out, 1)
            }
            _ => {
                let one = &mut self.clients[peer];
                (one.link, &mut one.out, one.pending.len())
            }
        };
        Some(outgoing)
    }
}

impl World {
    /// Sends the output of a peer.
    pub(crate) fn send(&mut self, peer: usize) {
        let Some((id, out, owed)) = self.peers.outgoing(peer) else {
            return;
        };
        if let Some(id) = id
            && let Some(link) = self.network.links.get_mut(&id)
        {
            link.up.extend(out.drain(..));
            link.owed = owed;
        }
        self.post(peer);
        let client = self.peers.clients.get(peer);
        if let Some(link) = client.filter(|one| one.is_over).and_then(|one| one.link) {
            self.drop_client(link, true);
        }
    }

    /// Passes bytes of the server to a peer.
    pub(crate) fn deliver_to_peer(&mut self, peer: usize, bytes: Vec<u8>) -> PromiseResult {
        let (ledger, setup) = (&mut self.ledger, &self.setup);
        match peer {
            DIALED.. => return self.hand_to_server(peer - DIALED, bytes),
            POSTS.. => return self.hand_to_posts(peer - POSTS, &bytes),
            ONE_WAYS.. => self.peers.one_ways[peer - ONE_WAYS].received(bytes, ledger)?,
            CALLERS.. => self.peers.callers[peer - CALLERS].received(&bytes, ledger, setup)?,
            LISTENERS.. => self.peers.listeners[peer - LISTENERS].received(bytes, ledger)?,
            _ => self.peers.clients[peer].received(bytes, ledger, setup)?,
        }
        self.send(peer);
        self.change_posts(peer);
        let one = self.peers.one_ways.get(peer.wrapping_sub(ONE_WAYS));
        if let Some(link) = one.filter(|one| one.is_over).and_then(|one| one.link) {
            self.drop_client(link, true);
        }
        Ok(())
    }

    /// A listener without a connection connects.
    pub(crate) fn listen(&mut self, number: usize, worker: u8) {
        let Some(number) = number.checked_rem(self.peers.listening()) else {
            return;
        };
        if let Some(one_way) = number.checked_sub(self.peers.listeners.len()) {
            return self.listen_one_way(one_way, worker);
        }
        if self.peers.listeners[number].phase != Phase::Offline || self.drain.is_some() {
            return;
        }
        let link = self.open(LISTENERS + number, worker, frontend_config::PUBLIC);
        let incarnation = self.ledger.incarnation;
        self.peers.listeners[number].connect(link, incarnation);
        self.send(LISTENERS + number);
    }

    fn listen_one_way(&mut self, number: usize, worker: u8) {
        if self.peers.one_ways[number].phase != Phase::Offline || self.drain.is_some() {
            return;
        }
        let link = self.open(ONE_WAYS + number, worker, frontend_config::PUBLIC);
        let incarnation = self.ledger.incarnation;
        self.peers.one_ways[number].connect(link, incarnation, &self.ledger);
        self.send(ONE_WAYS + number);
    }

    /// A back end makes a call, on a new connection if it has none.
    pub(crate) fn call(&mut self, number: usize, worker: u8, call: BackEndCall, channel: usize) {
        let Some(number) = number.checked_rem(self.peers.callers.len()) else {
            return;
        };
        let caller = &self.peers.callers[number];
        if caller.link.is_none() {
            if self.drain.is_some() {
                return;
            }
            let listener = match caller.speaks {
                ApiProtocol::Http => frontend_config::INTERNAL,
                ApiProtocol::Lines => frontend_config::PUSH,
            };
            let link = self.open(CALLERS + number, worker, listener);
            let incarnation = self.ledger.incarnation;
            self.peers.callers[number].connect(link, incarnation);
        }
        let user = CHANNELS[channels::own_channel(channel)].user;
        let caller = &mut self.peers.callers[number];
        caller.call(call, channel, user.unwrap_or_default(), &mut self.ledger);
        self.send(CALLERS + number);
    }

    pub(crate) fn is_caller(&self, id: LinkId) -> bool {
        let link = self.network.links.get(&id);
        link.is_some_and(|link| (CALLERS..ONE_WAYS).contains(&link.client))
    }

    pub(crate) fn is_one_way(&self, id: LinkId) -> bool {
        let link = self.network.links.get(&id);
        link.is_some_and(|link| (ONE_WAYS..POSTS).contains(&link.client))
    }

    pub(crate) fn is_for_posts(&self, id: LinkId) -> bool {
        let link = self.network.links.get(&id);
        link.is_some_and(|link| (POSTS..DIALED).contains(&link.client))
    }

    /// Returns whether the client of a link has gone without the server knowing.
    pub(crate) fn is_silent(&self, id: LinkId) -> bool {
        let link = self.network.links.get(&id);
        link.is_some_and(|link| !link.has_client)
    }

    /// Checks what the peers received, and that all calls were answered. Called when the world has nothing left to do.
    pub(crate) fn check_peers(&mut self) -> PromiseResult {
        for listener in &self.peers.listeners {
            listener.check(&mut self.ledger, &self.setup)?;
        }
        for one in &self.peers.one_ways {
            one.check(&self.ledger)?;
        }
        for (number, caller) in self.peers.callers.iter().enumerate() {
            promise!(
                caller.owed() == 0,
                "commands are answered",
                "{} calls of {number}",
                caller.owed()
            );
        }
        Ok(())
    }
}
