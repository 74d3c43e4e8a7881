//! The links between clients and the server: bytes that are on their way, and which side still has its end.

use std::collections::{BTreeMap, VecDeque};

use veche_hub::ConnectionId;

/// Names a link; later ones have greater names.
pub(crate) type LinkId = u32;

/// A connection of the transport.
pub(crate) struct Link {
    pub(crate) client: usize,
    /// The process's end: which worker, and as what it knows it. `None`: it is gone.
    pub(crate) server: Option<(usize, ConnectionId)>,
    /// The client's end is there.
    pub(crate) has_client: bool,
    /// Sent by the client, not received.
    pub(crate) up: VecDeque<u8>,
    /// The client's FIN is behind that, and whether it has arrived.
    pub(crate) up_ends: bool,
    pub(crate) up_ended: bool,
    /// Sent by the server, on its way.
    pub(crate) down: VecDeque<u8>,
    /// How much more was sent that the transport has not taken yet.
    pub(crate) unsent: usize,
    /// The server's FIN is behind that.
    pub(crate) down_ends: bool,
    /// Commands that were sent here and not answered, as its client sees it.
    pub(crate) owed: usize,
}

/// All links of which either side still has its end.
pub(crate) struct Network {
    pub(crate) links: BTreeMap<LinkId, Link>,
    /// By what a worker knows as its end.
    ends: BTreeMap<(usize, ConnectionId), LinkId>,
    next: LinkId,
    pub(crate) pipe_bytes: usize,
}

impl Network {
    pub(crate) fn new(pipe_bytes: usize) -> Self {
        Self {
            links: BTreeMap::new(),
            ends: BTreeMap::new(),
            next: 0,
            pipe_bytes,
        }
    }

    /// A link of which the server does not know yet.
    pub(crate) fn open(&mut self, client: usize) -> LinkId {
        let id = self.next;
        self.next += 1;
        let link = Link {
            client,
            server: None,
            has_client: true,
            up: VecDeque::new(),
            up_ends: false,
            up_ended: false,
            down: VecDeque::new(),
            unsent: 0,
            down_ends: false,
            owed: 0,
        };
        self.links.insert(id, link);
        id
    }

    /// The link that an action means.
    pub(crate) fn choose(&self, number: u8) -> Option<LinkId> {
        let count = self.links.len();
        let place = usize::from(number) % count.max(1);
        self.links.keys().nth(place).copied()
    }

    /// A worker has its end.
    pub(crate) fn attach(&mut self, id: LinkId, worker: usize, session: ConnectionId) {
        if let Some(link) = self.links.get_mut(&id) {
            link.server = Some((worker, session));
            self.ends.insert((worker, session), id);
        }
    }

    /// The process lets go of its end.
    pub(crate) fn detach(&mut self, id: LinkId) -> Option<(usize, ConnectionId)> {
        let link = self.links.get_mut(&id)?;
        // What the transport has not taken goes with it, and a FIN behind that.
        link.down_ends &= link.unsent == 0;
        link.unsent = 0;
        let end = link.server.take()?;
        self.ends.remove(&end);
        Some(end)
    }

    /// The link whose end a worker knows so.
    pub(crate) fn of(&self, worker: usize, session: ConnectionId) -> Option<LinkId> {
        self.ends.get(&(worker, session)).copied()
    }

    /// The transport takes bytes of the server, and leaves so many.
    pub(crate) fn take(&mut self, id: LinkId, bytes: &[u8], unsent: usize) {
        if let Some(link) = self.links.get_mut(&id) {
            link.down.extend(bytes);
            link.unsent = unsent;
        }
    }

    /// The server sends FIN behind all that.
    pub(crate) fn shut_down(&mut self, id: LinkId) {
        if let Some(link) = self.links.get_mut(&id) {
            link.down_ends = true;
        }
    }

    /// The client reads some.
    pub(crate) fn read(&mut self, id: LinkId, bytes: usize) -> Vec<u8> {
        let Some(link) = self.links.get_mut(&id) else {
            return Vec::new();
        };
        let count = bytes.min(link.down.len());
        link.down.drain(..count).collect()
    }

    /// Forgets a link that nobody has.
    pub(crate) fn forget_if_over(&mut self, id: LinkId) {
        let is_over = |link: &Link| !link.has_client && link.server.is_none();
        if self.links.get(&id).is_some_and(is_over) {
            self.links.remove(&id);
        }
    }
}
