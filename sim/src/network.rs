//! The links between clients and the server: the bytes in flight, and which ends of a link exist.

use std::collections::{BTreeMap, VecDeque};

use veche_hub::ConnectionId;

/// Identifies a link. Later links have greater ids.
pub(crate) type LinkId = u32;

/// A transport connection between a client and a worker.
pub(crate) struct Link {
    pub(crate) client: usize,
    /// The worker and the connection at the server's end; `None` if that end does not exist.
    pub(crate) server: Option<(usize, ConnectionId)>,
    /// Whether the client's end exists.
    pub(crate) has_client: bool,
    /// Bytes sent by the client that have not arrived at the server.
    pub(crate) up: VecDeque<u8>,
    /// Whether the client has sent FIN after the bytes in `up`.
    pub(crate) up_ends: bool,
    /// Whether the client's FIN has arrived at the server.
    pub(crate) up_ended: bool,
    /// Bytes sent by the server that have not arrived at the client.
    pub(crate) down: VecDeque<u8>,
    /// The number of bytes that the server has to send and the transport has not accepted yet.
    pub(crate) unsent: usize,
    /// Whether the server has sent FIN after the bytes in `down` and the unsent bytes.
    pub(crate) down_ends: bool,
    /// The number of commands sent over this link to which the client has received no reply.
    pub(crate) owed: usize,
}

/// All links with at least one end.
pub(crate) struct Network {
    pub(crate) links: BTreeMap<LinkId, Link>,
    /// Links by the server's end.
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

    /// Opens a link that the server has not accepted yet.
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

    /// Returns the link selected by an action.
    pub(crate) fn choose(&self, number: u8) -> Option<LinkId> {
        let count = self.links.len();
        let place = usize::from(number) % count.max(1);
        self.links.keys().nth(place).copied()
    }

    /// Sets the server's end.
    pub(crate) fn attach(&mut self, id: LinkId, worker: usize, session: ConnectionId) {
        if let Some(link) = self.links.get_mut(&id) {
            link.server = Some((worker, session));
            self.ends.insert((worker, session), id);
        }
    }

    /// Removes the server's end.
    pub(crate) fn detach(&mut self, id: LinkId) -> Option<(usize, ConnectionId)> {
        let link = self.links.get_mut(&id)?;
        // Bytes that the transport has not accepted are lost with it, and so is a FIN after them.
        link.down_ends &= link.unsent == 0;
        link.unsent = 0;
        let end = link.server.take()?;
        self.ends.remove(&end);
        Some(end)
    }

    /// Returns the link whose server's end is the connection `session` of `worker`.
    pub(crate) fn of(&self, worker: usize, session: ConnectionId) -> Option<LinkId> {
        self.ends.get(&(worker, session)).copied()
    }

    /// Records that the transport accepts bytes of the server, and that `unsent` bytes are left.
    pub(crate) fn take(&mut self, id: LinkId, bytes: &[u8], unsent: usize) {
        if let Some(link) = self.links.get_mut(&id) {
            link.down.extend(bytes);
            link.unsent = unsent;
        }
    }

    /// Records that the server sends FIN after all its bytes.
    pub(crate) fn shut_down(&mut self, id: LinkId) {
        if let Some(link) = self.links.get_mut(&id) {
            link.down_ends = true;
        }
    }

    /// Lets the client read at most `bytes` bytes, and returns them.
    pub(crate) fn read(&mut self, id: LinkId, bytes: usize) -> Vec<u8> {
        let Some(link) = self.links.get_mut(&id) else {
            return Vec::new();
        };
        let count = bytes.min(link.down.len());
        link.down.drain(..count).collect()
    }

    /// Removes the link if both its ends are gone.
    pub(crate) fn forget_if_over(&mut self, id: LinkId) {
        let is_over = |link: &Link| !link.has_client && link.server.is_none();
        if self.links.get(&id).is_some_and(is_over) {
            self.links.remove(&id);
        }
    }
}
