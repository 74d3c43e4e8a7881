//! The links between clients and the server: bytes that are on their way, and which side still has its end.

use std::collections::{BTreeMap, VecDeque};

use veche_hub::ConnectionId;

/// Names a link; later ones have greater names.
pub(crate) type LinkId = u32;

/// A connection of the transport.
pub(crate) struct Link {
    pub(crate) client: usize,
    /// The process's end: which worker, and as whom it knows it. `None`: it is gone.
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
    /// The same, and not taken by the transport yet.
    pub(crate) unsent: VecDeque<u8>,
    /// The server's FIN is behind that.
    pub(crate) down_ends: bool,
    /// Commands that were sent here and not answered, as its client sees it.
    pub(crate) owed: usize,
}

/// All links of which either side still has its end.
pub(crate) struct Network {
    pub(crate) links: BTreeMap<LinkId, Link>,
    next: LinkId,
    pipe_bytes: usize,
}

impl Network {
    pub(crate) fn new(pipe_bytes: usize) -> Self {
        Self {
            links: BTreeMap::new(),
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
            unsent: VecDeque::new(),
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

    /// The server sends. How much the transport has not taken.
    pub(crate) fn send(&mut self, id: LinkId, bytes: &[u8]) -> usize {
        let pipe_bytes = self.pipe_bytes;
        let Some(link) = self.links.get_mut(&id) else {
            return 0;
        };
        link.unsent.extend(bytes);
        link.fill(pipe_bytes);
        link.unsent.len()
    }

    /// What the transport has not taken.
    pub(crate) fn unsent(&self, id: LinkId) -> usize {
        self.links.get(&id).map_or(0, |link| link.unsent.len())
    }

    /// The server sends FIN behind all that.
    pub(crate) fn shut_down(&mut self, id: LinkId) {
        if let Some(link) = self.links.get_mut(&id) {
            link.down_ends = true;
        }
    }

    /// The client reads some. Whether the transport has taken more from the server, and what is left there.
    pub(crate) fn read(&mut self, id: LinkId, bytes: usize) -> (Vec<u8>, Option<usize>) {
        let pipe_bytes = self.pipe_bytes;
        let Some(link) = self.links.get_mut(&id) else {
            return (Vec::new(), None);
        };
        let count = bytes.min(link.down.len());
        let read = link.down.drain(..count).collect();
        let taken = link.fill(pipe_bytes);
        if taken == 0 {
            return (read, None);
        }
        (read, Some(link.unsent.len()))
    }

    /// Forgets a link that nobody has.
    pub(crate) fn forget_if_over(&mut self, id: LinkId) {
        let is_over = |link: &Link| !link.has_client && link.server.is_none();
        if self.links.get(&id).is_some_and(is_over) {
            self.links.remove(&id);
        }
    }
}

impl Link {
    /// Moves what fits from the server into the transport.
    fn fill(&mut self, pipe_bytes: usize) -> usize {
        let room = pipe_bytes.saturating_sub(self.down.len());
        let count = room.min(self.unsent.len());
        self.down.extend(self.unsent.drain(..count));
        count
    }
}
