//! Who is at the other end of a link: a client of Centrifugo's protocol, a listener of a push route, or a back end.
//!
//! A link has a number for it: clients come first, listeners and callers from numbers of their own on.

use crate::caller::{Call, Caller, Speaks};
use crate::channels::{self, CHANNELS};
use crate::client::{Client, Phase};
use crate::failure::{Check, promise};
use crate::listener::Listener;
use crate::network::LinkId;
use crate::setup::Setup;
use crate::site;
use crate::world::World;

const LISTENERS: usize = 1_000;
const CALLERS: usize = 2_000;

pub(crate) struct Peers {
    pub(crate) clients: Vec<Client>,
    pub(crate) listeners: Vec<Listener>,
    pub(crate) callers: Vec<Caller>,
}

impl Peers {
    pub(crate) fn new(setup: &Setup) -> Self {
        Self {
            clients: (0..setup.clients)
                .map(|number| Client::new(number, setup))
                .collect(),
            listeners: (0..setup.listeners).map(Listener::new).collect(),
            callers: (0..setup.callers).map(Caller::new).collect(),
        }
    }

    pub(crate) fn reads(&self, peer: usize) -> bool {
        match peer {
            CALLERS.. => true,
            LISTENERS.. => self.listeners[peer - LISTENERS].reads,
            _ => self.clients[peer].reads,
        }
    }

    /// Has the client or listener of that number read what it is sent, or stop to.
    pub(crate) fn set_reads(&mut self, number: usize, reads: bool) {
        let number = number % (self.clients.len() + self.listeners.len());
        match number.checked_sub(self.clients.len()) {
            Some(listener) => self.listeners[listener].reads = reads,
            None => self.clients[number].reads = reads,
        }
    }

    pub(crate) fn all_read(&mut self) {
        for client in &mut self.clients {
            client.reads = true;
        }
        for listener in &mut self.listeners {
            listener.reads = true;
        }
    }

    /// Whether somebody who is connected does not read.
    pub(crate) fn has_slow(&self) -> bool {
        let clients = self.clients.iter().map(|one| (one.reads, one.link));
        let listeners = self.listeners.iter().map(|one| (one.reads, one.link));
        let mut all = clients.chain(listeners);
        all.any(|(reads, link)| !reads && link.is_some())
    }

    /// Whether it is a client that has been told that it is connected, and nothing else since.
    pub(crate) fn is_online(&self, peer: usize) -> bool {
        let client = self.clients.get(peer);
        client.is_some_and(|client| client.phase == Phase::Online)
    }

    /// Its end of the link is gone.
    pub(crate) fn dropped(&mut self, peer: usize) {
        match peer {
            CALLERS.. => self.callers[peer - CALLERS].dropped(),
            LISTENERS.. => self.listeners[peer - LISTENERS].dropped(),
            _ => self.clients[peer].dropped(),
        }
    }

    /// Its link, what it has to send, and how many answers it waits for.
    fn outgoing(&mut self, peer: usize) -> (Option<LinkId>, &mut Vec<u8>, usize) {
        match peer {
            CALLERS.. => {
                let one = &mut self.callers[peer - CALLERS];
                let owed = one.owed();
                (one.link, &mut one.out, owed)
            }
            LISTENERS.. => {
                let one = &mut self.listeners[peer - LISTENERS];
                // It has asked for what its path says.
                (one.link, &mut one.out, 1)
            }
            _ => {
                let one = &mut self.clients[peer];
                (one.link, &mut one.out, one.owed.len())
            }
        }
    }
}

impl World {
    /// What somebody has to say goes on its way.
    pub(crate) fn send(&mut self, peer: usize) {
        let (id, out, owed) = self.peers.outgoing(peer);
        if let Some(id) = id
            && let Some(link) = self.network.links.get_mut(&id)
        {
            link.up.extend(out.drain(..));
            link.owed = owed;
        }
    }

    /// Bytes of the server arrive.
    pub(crate) fn hand(&mut self, peer: usize, bytes: Vec<u8>) -> Check {
        let (ledger, setup) = (&mut self.ledger, &self.setup);
        match peer {
            CALLERS.. => self.peers.callers[peer - CALLERS].received(&bytes, ledger, setup)?,
            LISTENERS.. => self.peers.listeners[peer - LISTENERS].received(bytes, ledger)?,
            _ => self.peers.clients[peer].received(bytes, ledger, setup)?,
        }
        self.send(peer);
        Ok(())
    }

    /// A listener that has no connection begins one.
    pub(crate) fn listen(&mut self, number: usize, worker: u8) {
        let Some(number) = number.checked_rem(self.peers.listeners.len()) else {
            return;
        };
        if self.peers.listeners[number].phase != Phase::Offline || self.drain.is_some() {
            return;
        }
        let link = self.open(LISTENERS + number, worker, site::PUBLIC);
        let life = self.ledger.life;
        self.peers.listeners[number].connect(link, life);
        self.send(LISTENERS + number);
    }

    /// A back end calls, by a connection that begins now if there is none.
    pub(crate) fn call(&mut self, number: usize, worker: u8, call: Call, channel: usize) {
        let Some(number) = number.checked_rem(self.peers.callers.len()) else {
            return;
        };
        let caller = &self.peers.callers[number];
        if caller.link.is_none() {
            if self.drain.is_some() {
                return;
            }
            let listener = match caller.speaks {
                Speaks::Http => site::INTERNAL,
                Speaks::Lines => site::PUSH,
            };
            let link = self.open(CALLERS + number, worker, listener);
            let life = self.ledger.life;
            self.peers.callers[number].connect(link, life);
        }
        let user = CHANNELS[channels::own_channel(channel)].user;
        let caller = &mut self.peers.callers[number];
        caller.call(call, channel, user.unwrap_or_default(), &mut self.ledger);
        self.send(CALLERS + number);
    }

    pub(crate) fn is_caller(&self, id: LinkId) -> bool {
        let link = self.network.links.get(&id);
        link.is_some_and(|link| link.client >= CALLERS)
    }

    /// Nothing is under way any more.
    pub(crate) fn check_peers(&mut self) -> Check {
        for listener in &self.peers.listeners {
            listener.check(&mut self.ledger, &self.setup)?;
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
