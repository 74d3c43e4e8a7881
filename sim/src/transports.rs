//! The transports of one worker with the guarantees of a real driver: queues, timers, pauses,
//! reported closes.
//!
//! Inputs are recorded; events are delivered in a deterministic order, which is that of
//! `veche_net::Simulated` without random choices. The bytes that a transport has accepted are
//! reported as a [`WorkerOutput`].

use std::collections::{BTreeSet, VecDeque};

use veche_hub::ConnectionId;

use crate::worker_driver::{RECEIVE_BYTES_MAX, TransportInput, WorkerOutput};

/// All transports of a worker.
pub(crate) struct SimulatedTransports {
    low_water_bytes: usize,
    room_bytes: usize,
    /// Transports by index; `None` marks a free index. The index freed last is reused first.
    all: Vec<Option<Transport>>,
    free: Vec<u32>,
    last_generation: u32,
    /// Connections that the worker has not accepted yet.
    dialed: VecDeque<(ConnectionId, u16)>,
    /// Listeners that don't accept.
    closed: BTreeSet<u16>,
    /// Dialed transports that are connected, but not reported yet.
    accepted_dials: Vec<ConnectionId>,
}

struct Transport {
    id: ConnectionId,
    /// Whether the other server has not accepted the connection yet.
    is_connecting: bool,
    is_paused: bool,
    timer_ms: Option<u64>,
    /// The peer's bytes that were not received yet, in their original pieces. A FIN may follow
    /// them.
    pieces: VecDeque<Vec<u8>>,
    is_finished: bool,
    has_ended: bool,
    /// The number of bytes that the transport accepts before the peer reads again.
    room: usize,
    queue: VecDeque<Vec<u8>>,
    /// The number of bytes of the first buffer that were sent.
    front_sent: usize,
    unsent: usize,
    /// Whether the queue was above its low-water mark, so that `Drained` is due when it falls
    /// below.
    was_high: bool,
    is_shut_down: bool,
    /// Whether the peer has reset the transport; `None` while the transport is open. A closing transport reports only
    /// its close, after its accept if that is still to come.
    closing: Option<bool>,
}

/// The result of sending on a transport.
pub(crate) struct SentBuffers {
    pub(crate) id: ConnectionId,
    /// Buffers that the peer has taken completely.
    pub(crate) buffers: Vec<Vec<u8>>,
    pub(crate) has_drained: bool,
}

/// An event from the peer of a transport.
pub(crate) enum PeerEvent {
    Bytes(Vec<u8>),
    Fin,
    Closed { is_reset: bool },
}

impl SimulatedTransports {
    /// Creates an empty set. A transport to another server accepts `room_bytes` before that server
    /// has to read.
    pub(crate) fn new(low_water_bytes: usize, room_bytes: usize) -> Self {
        Self {
            low_water_bytes,
            room_bytes,
            all: Vec::new(),
            free: Vec::new(),
            last_generation: 0,
            dialed: VecDeque::new(),
            closed: BTreeSet::new(),
            accepted_dials: Vec::new(),
        }
    }

    /// Opens a transport to a listener, which accepts it later.
    pub(crate) fn dial(&mut self, listener: u16, room: usize) -> ConnectionId {
        let id = self.add(room, false);
        self.dialed.push_back((id, listener));
        id
    }

    /// Opens a transport to another server, which accepts it later.
    pub(crate) fn connect(&mut self) -> ConnectionId {
        self.add(self.room_bytes, true)
    }

    fn add(&mut self, room: usize, is_connecting: bool) -> ConnectionId {
        self.last_generation += 1;
        let index = self.free.pop().unwrap_or_else(|| {
            self.all.push(None);
            self.all.len() as u32 - 1
        });
        let id = ConnectionId {
            index,
            generation: self.last_generation,
        };
        self.all[index as usize] = Some(Transport {
            id,
            is_connecting,
            is_paused: false,
            timer_ms: None,
            pieces: VecDeque::new(),
            is_finished: false,
            has_ended: false,
            room,
            queue: VecDeque::new(),
            front_sent: 0,
            unsent: 0,
            was_high: false,
            is_shut_down: false,
            closing: None,
        });
        id
    }

    fn get(&mut self, id: ConnectionId) -> Option<&mut Transport> {
        let transport = self.all.get_mut(id.index as usize)?.as_mut()?;
        (transport.id == id).then_some(transport)
    }

    /// Returns a transport that is not closing.
    fn live(&mut self, id: ConnectionId) -> Option<&mut Transport> {
        self.get(id).filter(|transport| transport.closing.is_none())
    }

    pub(crate) fn is_live(&mut self, id: ConnectionId) -> bool {
        self.live(id).is_some()
    }

    /// Returns whether a transport is open and not paused.
    pub(crate) fn receives(&self, id: ConnectionId) -> bool {
        let transport = self.all.get(id.index as usize).and_then(Option::as_ref);
        transport.is_some_and(|one| one.id == id && one.closing.is_none() && !one.is_paused)
    }

    /// Records an input. Returns whether there is an event to deliver.
    pub(crate) fn put(&mut self, id: ConnectionId, arrival: TransportInput) -> bool {
        let Some(transport) = self.get(id) else {
            return false;
        };
        match arrival {
            TransportInput::Bytes(bytes) => {
                debug_assert!(bytes.len() <= RECEIVE_BYTES_MAX, "a piece that is too long");
                transport.pieces.push_back(bytes);
            }
            TransportInput::Fin => transport.is_finished = true,
            TransportInput::Reset => {
                transport.pieces.clear();
                transport.closing.get_or_insert(true);
            }
            TransportInput::Room(bytes) => {
                transport.room += bytes;
                return transport.unsent > 0 && transport.closing.is_none();
            }
            TransportInput::Connected => {
                if transport.is_connecting && transport.closing.is_none() {
                    self.accepted_dials.push(id);
                }
            }
        }
        true
    }

    /// Takes the next dialed transport whose listener accepts. Returns its id and its listener.
    pub(crate) fn accepted(&mut self) -> Option<(ConnectionId, u16)> {
        let closed = &self.closed;
        let mut dialed = self.dialed.iter();
        let place = dialed.position(|(_, listener)| !closed.contains(listener))?;
        self.dialed.remove(place)
    }

    pub(crate) fn set_accepting(&mut self, listener: u16, accepts: bool) {
        match accepts {
            true => self.closed.remove(&listener),
            false => self.closed.insert(listener),
        };
    }

    /// Returns the transports that are connected, each once.
    pub(crate) fn connected(&mut self) -> Vec<ConnectionId> {
        let mut taken_up = std::mem::take(&mut self.accepted_dials);
        taken_up.retain(|id| {
            let transport = self.live(*id);
            transport.is_some_and(|one| std::mem::take(&mut one.is_connecting))
        });
        taken_up
    }

    /// Sends queued bytes as far as there is room.
    pub(crate) fn drain(&mut self, out: &mut Vec<WorkerOutput>) -> Vec<SentBuffers> {
        let low = self.low_water_bytes;
        let mut left = Vec::new();
        for transport in self.all.iter_mut().flatten() {
            if transport.unsent == 0 || transport.room == 0 || transport.closing.is_some() {
                continue;
            }
            let mut taken = Vec::new();
            let mut buffers = Vec::new();
            while transport.room > 0
                && let Some(front) = transport.queue.front()
            {
                let rest = &front[transport.front_sent..];
                let count = rest.len().min(transport.room);
                taken.extend_from_slice(&rest[..count]);
                transport.room -= count;
                transport.unsent -= count;
                transport.front_sent += count;
                if transport.front_sent == front.len() {
                    transport.front_sent = 0;
                    buffers.extend(transport.queue.pop_front());
                }
            }
            let has_drained = transport.was_high && transport.unsent <= low;
            transport.was_high &= !has_drained;
            out.push(WorkerOutput::Sent {
                id: transport.id,
                bytes: taken,
                unsent: transport.unsent,
            });
            left.push(SentBuffers {
                id: transport.id,
                buffers,
                has_drained,
            });
        }
        left
    }

    /// Returns the due timers in the order of their deadlines, and clears them.
    pub(crate) fn due(&mut self, now_ms: u64) -> Vec<ConnectionId> {
        let mut due = Vec::new();
        for transport in self.all.iter_mut().flatten() {
            if let Some(due_ms) = transport.timer_ms.filter(|due_ms| *due_ms <= now_ms) {
                transport.timer_ms = None;
                due.push((due_ms, transport.id));
            }
        }
        due.sort_by_key(|(due_ms, id)| (*due_ms, id.index));
        due.into_iter().map(|(_, id)| id).collect()
    }

    /// Returns the ids of all transports, in the order of their indices.
    pub(crate) fn ids(&self) -> Vec<ConnectionId> {
        let all = self.all.iter().flatten();
        all.map(|transport| transport.id).collect()
    }

    /// Returns the next event from a peer. After `Closed` the transport is gone.
    pub(crate) fn poll_peer(&mut self, id: ConnectionId) -> Option<PeerEvent> {
        if self.dialed.iter().any(|(dialed, _)| *dialed == id) {
            return None;
        }
        let transport = self.get(id)?;
        if let Some(is_reset) = transport.closing {
            self.all[id.index as usize] = None;
            self.free.push(id.index);
            return Some(PeerEvent::Closed { is_reset });
        }
        if transport.is_connecting || transport.is_paused || transport.has_ended {
            return None;
        }
        if let Some(piece) = transport.pieces.pop_front() {
            return Some(PeerEvent::Bytes(piece));
        }
        transport.has_ended = transport.is_finished;
        transport.has_ended.then_some(PeerEvent::Fin)
    }

    /// Sends a buffer, and returns it if all of it was sent.
    pub(crate) fn send(
        &mut self,
        id: ConnectionId,
        buffer: Vec<u8>,
        out: &mut Vec<WorkerOutput>,
    ) -> Option<Vec<u8>> {
        let low = self.low_water_bytes;
        let Some(transport) = self.live(id).filter(|transport| !transport.is_shut_down) else {
            return Some(buffer);
        };
        let count = match transport.unsent {
            0 => buffer.len().min(transport.room),
            _ => 0,
        };
        transport.room -= count;
        let bytes = buffer[..count].to_vec();
        let rest = buffer.len() - count;
        let mut back = None;
        if rest == 0 {
            back = Some(buffer);
        } else {
            if transport.unsent == 0 {
                transport.front_sent = count;
            }
            transport.unsent += rest;
            transport.was_high |= transport.unsent > low;
            transport.queue.push_back(buffer);
        }
        let unsent = transport.unsent;
        out.push(WorkerOutput::Sent { id, bytes, unsent });
        back
    }

    pub(crate) fn unsent(&self, id: ConnectionId) -> usize {
        let transport = self.all.get(id.index as usize).and_then(Option::as_ref);
        let open = transport.filter(|one| one.id == id && one.closing.is_none());
        open.map_or(0, |one| one.unsent)
    }

    pub(crate) fn set_paused(&mut self, id: ConnectionId, is_paused: bool) {
        if let Some(transport) = self.live(id) {
            transport.is_paused = is_paused;
        }
    }

    pub(crate) fn set_timer(&mut self, id: ConnectionId, due_ms: u64) {
        if let Some(transport) = self.live(id) {
            transport.timer_ms = Some(due_ms);
        }
    }

    pub(crate) fn shut_down(&mut self, id: ConnectionId) {
        if let Some(transport) = self.live(id) {
            transport.is_shut_down = true;
        }
    }

    /// Closes a transport: queued bytes are lost.
    pub(crate) fn close(&mut self, id: ConnectionId) {
        if let Some(transport) = self.live(id) {
            transport.closing = Some(false);
        }
    }
}
