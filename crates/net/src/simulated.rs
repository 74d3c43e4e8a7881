//! A simulated network: the caller controls the remote ends of all transports, and the clock.
//!
//! The network keeps every guarantee of [`Driver`], so code for drivers runs on it unchanged, at
//! full speed and reproducibly. If the order of events is undefined, because several transports are
//! ready or several timers are due in the same millisecond, a seeded random choice decides. Nothing
//! here waits. [`idle_until_ms`](Simulated::idle_until_ms) indicates that no events are left; the
//! caller must then advance the clock or act as one of the remote ends.
//!
//! A *remote end* is a peer that has dialed, or that has accepted a dial of the driver
//! ([`accept_dial`](Simulated::accept_dial)). The test sends from it with
//! [`write`](Simulated::write) and receives at it with [`read`](Simulated::read). Received bytes can
//! be read even after the transport has ended.
//!
//! The number of bytes that a remote end accepts can be [limited](Simulated::set_room). The driver
//! queues all further bytes.

mod remote;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use fastrand::Rng;

use crate::{
    Buffer, CloseReason, ConnectionId, Detached, Driver, DriverEvent, ListenerId, Options, Waker,
};

use crate::queue::SendQueue;
use remote::RemoteEnd;
pub use remote::RemoteState;

/// Probability, in quarters, that a turn serves a ready transport. Otherwise the turn skips the
/// transport, so that transports overtake each other.
const SERVED_OF_FOUR: u8 = 3;

/// Maximum number of consecutive turns in which a ready transport is skipped. As with other
/// drivers, each ready transport is served regularly, however much other peers send.
const SKIPPED_MAX: u8 = 4;

/// A [`Driver`] without an operating system below it.
#[derive(Debug)]
pub struct Simulated {
    options: Options,
    /// Decides the order of events whose order is undefined. If `None`, such events are in the
    /// order of transport indices.
    rng: Option<Rng>,
    waker: Waker,
    now_ms: u64,
    /// Whether each listener accepts connections.
    listeners: Vec<bool>,
    /// The driver's ends of transports by index; `None` if the index is free.
    local_ends: Vec<Option<LocalEnd>>,
    free: Vec<u32>,
    last_generation: u32,
    remote_ends: HashMap<ConnectionId, RemoteEnd>,
    /// Connections dialed by the test that the driver has not accepted yet, in order.
    dialed: VecDeque<(ConnectionId, ListenerId, SocketAddr)>,
    /// Connections dialed by the driver that [`take_dials`](Self::take_dials) has not returned yet.
    dialing: Vec<(ConnectionId, SocketAddr)>,
    /// Accepted dials whose [`DriverEvent::Connected`] was not delivered yet.
    accepted_dials: Vec<ConnectionId>,
    /// The timers that are set. The key consists of the deadline, a random number that decides the
    /// order of equal deadlines, and the transport's index.
    timers: BTreeMap<(u64, u64, u32), ConnectionId>,
    idle_until_ms: Option<u64>,
    /// Whether the last turn delivered events.
    has_delivered: bool,
}

/// The driver's side of a transport.
#[derive(Debug)]
struct LocalEnd {
    id: ConnectionId,
    /// Whether the driver has dialed and the remote end has not accepted the connection yet.
    is_connecting: bool,
    is_paused: bool,
    /// Consecutive turns in which the transport was skipped.
    skipped: u8,
    timer: Option<(u64, u64)>,
    /// Sent bytes that the remote end has not accepted yet, in order.
    unsent: SendQueue,
    was_high: bool,
    is_shut_down: bool,
    has_ended: bool,
    /// Why the transport has ended, if [`DriverEvent::Closed`] is still to be delivered.
    closing: Option<CloseReason>,
}

impl Simulated {
    /// Creates an empty network whose clock shows `now_ms`. The same seed makes the same random
    /// choices.
    ///
    /// # Errors
    /// No descriptor is left for the [`Waker`].
    pub fn new(options: Options, seed: u64, now_ms: u64) -> io::Result<Self> {
        let rng = Some(Rng::with_seed(seed));
        let network = Self::without_choice(options, now_ms)?;
        Ok(Self { rng, ..network })
    }

    /// Creates a network without random choices: every transport is served in every turn, in the order of indices.
    ///
    /// # Errors
    /// Those of [`new`](Self::new).
    pub fn without_choice(options: Options, now_ms: u64) -> io::Result<Self> {
        Ok(Self {
            options,
            rng: None,
            waker: Waker::new()?,
            now_ms,
            listeners: Vec::new(),
            local_ends: Vec::new(),
            free: Vec::new(),
            last_generation: 0,
            remote_ends: HashMap::new(),
            dialed: VecDeque::new(),
            dialing: Vec::new(),
            accepted_dials: Vec::new(),
            timers: BTreeMap::new(),
            idle_until_ms: None,
            has_delivered: false,
        })
    }

    /// Adds a listener that only [`dial`](Self::dial) reaches. Its id is numbered in one sequence
    /// with those of [`Driver::listen`].
    pub fn add_listener(&mut self) -> ListenerId {
        self.listeners.push(true);
        ListenerId(self.listeners.len() as u32 - 1)
    }

    /// Opens a connection from an address to a listener. The driver accepts the connection in one of
    /// the next turns.
    pub fn dial(&mut self, listener: ListenerId, from: SocketAddr) -> ConnectionId {
        let id = self.add();
        self.dialed.push_back((id, listener, from));
        id
    }

    fn add(&mut self) -> ConnectionId {
        self.last_generation += 1;
        let index = self.free.pop().unwrap_or_else(|| {
            self.local_ends.push(None);
            self.local_ends.len() as u32 - 1
        });
        let id = ConnectionId {
            index,
            generation: self.last_generation,
        };
        self.local_ends[index as usize] = Some(LocalEnd::new(id));
        self.remote_ends.insert(id, RemoteEnd::default());
        self.stir();
        id
    }

    /// Returns the connections that the driver has dialed since the last call, in order. The caller
    /// must accept or refuse each of them.
    pub fn take_dials(&mut self) -> Vec<(ConnectionId, SocketAddr)> {
        std::mem::take(&mut self.dialing)
    }

    /// Accepts a connection that the driver has dialed. The next turn delivers
    /// [`DriverEvent::Connected`].
    pub fn accept_dial(&mut self, id: ConnectionId) {
        self.stir();
        if self.live(id).is_some_and(|near| near.is_connecting) {
            self.accepted_dials.push(id);
        }
    }

    /// Refuses a connection that the driver has dialed.
    pub fn refuse_dial(&mut self, id: ConnectionId) {
        self.stir();
        if let Some(near) = self.live(id) {
            near.closing = Some(CloseReason::Refused);
        }
    }

    /// Writes bytes from the remote end. The driver receives them after earlier writes, in one piece
    /// unless they are longer than [`Options::receive_bytes`].
    pub fn write(&mut self, id: ConnectionId, bytes: Vec<u8>) {
        self.stir();
        if let Some(far) = self.remote_ends.get_mut(&id) {
            far.write(bytes);
        }
    }

    /// Sends FIN from the remote end after its writes.
    pub fn finish(&mut self, id: ConnectionId) {
        self.stir();
        if let Some(far) = self.remote_ends.get_mut(&id) {
            far.finish();
        }
    }

    /// Resets the connection from the remote end. Writes that the driver has not received are lost.
    pub fn reset(&mut self, id: ConnectionId) {
        self.stir();
        if let Some(far) = self.remote_ends.get_mut(&id) {
            far.abandon();
        }
        if let Some(near) = self.local_end(id) {
            near.closing.get_or_insert(CloseReason::Reset);
        }
    }

    /// Appends to `into` the bytes that the remote end has received. Returns the state of the
    /// remote end.
    pub fn read(&mut self, id: ConnectionId, into: &mut Vec<u8>) -> RemoteState {
        self.remote_ends
            .get_mut(&id)
            .map_or(RemoteState::Closed, |far| far.read(into))
    }

    /// Sets whether the remote end reads. If it does not, sent bytes are queued.
    pub fn set_reading(&mut self, id: ConnectionId, reads: bool) {
        self.stir();
        if let Some(far) = self.remote_ends.get_mut(&id) {
            far.reads = reads;
        }
    }

    /// Sets how many more sent bytes the remote end accepts; [`make_room`](Self::make_room) adds to
    /// this. By default there is no limit.
    pub fn set_room(&mut self, id: ConnectionId, bytes: usize) {
        self.stir();
        if let Some(far) = self.remote_ends.get_mut(&id) {
            far.room = bytes;
        }
    }

    /// Increases the number of sent bytes that the remote end accepts.
    pub fn make_room(&mut self, id: ConnectionId, bytes: usize) {
        self.stir();
        if let Some(far) = self.remote_ends.get_mut(&id) {
            far.room = far.room.saturating_add(bytes);
        }
    }

    /// Removes the remote end. If the connection is open, it is [reset](Self::reset) first.
    pub fn forget(&mut self, id: ConnectionId) {
        self.reset(id);
        self.remote_ends.remove(&id);
    }

    /// Advances the clock, never backwards.
    pub fn set_now_ms(&mut self, now_ms: u64) {
        self.now_ms = self.now_ms.max(now_ms);
        self.stir();
    }

    /// Returns `None` if there may be events to deliver now. Otherwise returns the time at which the
    /// next timer or the timeout of the last turn is due, or `u64::MAX` if neither is set.
    #[must_use]
    pub fn idle_until_ms(&self) -> Option<u64> {
        self.idle_until_ms
    }

    /// Returns whether the last turn delivered events.
    #[must_use]
    pub fn has_delivered(&self) -> bool {
        self.has_delivered
    }

    fn stir(&mut self) {
        self.idle_until_ms = None;
    }

    fn local_end(&mut self, id: ConnectionId) -> Option<&mut LocalEnd> {
        self.local_ends
            .get_mut(id.index as usize)?
            .as_mut()
            .filter(|near| near.id == id)
    }

    /// Returns a transport that neither side has closed, reset or refused.
    fn live(&mut self, id: ConnectionId) -> Option<&mut LocalEnd> {
        self.local_end(id).filter(|near| near.closing.is_none())
    }

    /// Returns the transports in the order in which this turn serves them. The order is random if the
    /// network has a random generator.
    fn shuffled(&mut self) -> Vec<ConnectionId> {
        let near = self.local_ends.iter().flatten();
        let mut ids: Vec<ConnectionId> = near.map(|near| near.id).collect();
        if let Some(rng) = &mut self.rng {
            rng.shuffle(&mut ids);
        }
        ids
    }

    /// Moves sent bytes to the remote ends, up to the room of each remote end. For each affected transport, returns its
    /// id, the completed buffers, and whether the queue has fallen to the low-water mark.
    fn drain_unsent(&mut self) -> Vec<(ConnectionId, Vec<Buffer>, bool)> {
        let low = self.options.low_water_bytes;
        let mut left = Vec::new();
        for near in self.local_ends.iter_mut().flatten() {
            let Some(far) = self.remote_ends.get_mut(&near.id) else {
                continue;
            };
            if near.unsent.is_empty() || far.room() == 0 || near.closing.is_some() {
                continue;
            }
            let mut buffers = Vec::new();
            // The loop is needed because `slices` yields only as many buffers as one system call
            // accepts.
            while far.room() > 0 && !near.unsent.is_empty() {
                let taken: usize = near.unsent.slices().map(|piece| far.receive(piece)).sum();
                near.unsent.advance(taken, |buffer| buffers.push(buffer));
            }
            let drained = near.was_high && near.unsent.unsent() <= low;
            near.was_high &= !drained;
            if near.is_shut_down && near.unsent.is_empty() {
                far.end();
            }
            left.push((near.id, buffers, drained));
        }
        left
    }

    /// Returns the next input of a transport.
    fn arrival(&mut self, id: ConnectionId) -> Option<Arrival> {
        if self.dialed.iter().any(|(dialed, ..)| *dialed == id) {
            return None;
        }
        let near = self.local_ends.get_mut(id.index as usize)?.as_mut()?;
        near.skipped = 0;
        if near.closing.is_some() {
            return Some(Arrival::End);
        }
        let far = self.remote_ends.get_mut(&id)?;
        if near.is_connecting || near.is_paused || near.has_ended {
            return None;
        }
        match far.take(self.options.receive_bytes) {
            Some(bytes) => Some(Arrival::Bytes(bytes)),
            None if far.is_finished() => {
                near.has_ended = true;
                Some(Arrival::Fin)
            }
            None => None,
        }
    }

    /// Returns whether a transport is skipped in this turn.
    fn is_skipped(&mut self, id: ConnectionId) -> bool {
        let Some(near) = self.local_end(id) else {
            return true;
        };
        let is_passed_over = near.skipped < SKIPPED_MAX;
        near.skipped = if is_passed_over { near.skipped + 1 } else { 0 };
        is_passed_over
    }

    fn has_arrival(&self, near: &LocalEnd) -> bool {
        if self.dialed.iter().any(|(dialed, ..)| *dialed == near.id) {
            return false;
        }
        let far = self.remote_ends.get(&near.id);
        near.closing.is_some()
            || (!near.is_connecting
                && !near.is_paused
                && !near.has_ended
                && far.is_some_and(RemoteEnd::has_something))
    }

    /// Removes a transport immediately before its `Closed` event is delivered. Returns the reason.
    fn end(&mut self, id: ConnectionId) -> CloseReason {
        self.clear_timer(id);
        let near = self.local_ends[id.index as usize].take();
        self.free.push(id.index);
        if let Some(far) = self.remote_ends.get_mut(&id) {
            far.close();
        }
        near.and_then(|near| near.closing)
            .unwrap_or(CloseReason::Requested)
    }

    /// Returns the due timers.
    fn due(&mut self) -> Vec<ConnectionId> {
        let later = self.timers.split_off(&(self.now_ms + 1, 0, 0));
        let due = std::mem::replace(&mut self.timers, later);
        let ids: Vec<ConnectionId> = due.into_values().collect();
        for id in &ids {
            if let Some(near) = self.local_end(*id) {
                near.timer = None;
            }
        }
        ids
    }
}

enum Arrival {
    Bytes(Vec<u8>),
    Fin,
    End,
}

impl LocalEnd {
    fn new(id: ConnectionId) -> Self {
        Self {
            id,
            is_connecting: false,
            is_paused: false,
            skipped: 0,
            timer: None,
            unsent: SendQueue::default(),
            was_high: false,
            is_shut_down: false,
            has_ended: false,
            closing: None,
        }
    }
}

impl Driver for Simulated {
    /// Closes the socket, because nothing can connect to it in a simulated network. Returns a new
    /// listener as [`Simulated::add_listener`] does.
    fn listen(&mut self, _: OwnedFd) -> io::Result<ListenerId> {
        Ok(self.add_listener())
    }

    fn pause_accept(&mut self, listener: ListenerId) {
        self.listeners[listener.0 as usize] = false;
    }

    fn resume_accept(&mut self, listener: ListenerId) {
        self.listeners[listener.0 as usize] = true;
        self.stir();
    }

    /// Dials an address. [`Simulated::take_dials`] then returns the connection.
    fn connect_from(&mut self, to: SocketAddr, _: Option<IpAddr>) -> io::Result<ConnectionId> {
        let id = self.add();
        if let Some(near) = self.local_end(id) {
            near.is_connecting = true;
        }
        self.dialing.push((id, to));
        Ok(id)
    }

    fn send(&mut self, id: ConnectionId, buffer: Buffer, _: bool) -> Option<Buffer> {
        let low = self.options.low_water_bytes;
        self.stir();
        let near = self
            .local_ends
            .get_mut(id.index as usize)
            .and_then(Option::as_mut)
            .filter(|near| near.id == id && near.closing.is_none() && !near.is_shut_down);
        let (Some(near), Some(far)) = (near, self.remote_ends.get_mut(&id)) else {
            return Some(buffer);
        };
        let taken = match near.unsent.is_empty() {
            true => far.receive(buffer.as_slice()),
            false => 0,
        };
        if taken == buffer.len() {
            return Some(buffer);
        }
        near.unsent.push(buffer);
        near.unsent.advance(taken, drop);
        near.was_high |= near.unsent.unsent() > low;
        None
    }

    fn unsent(&self, id: ConnectionId) -> usize {
        let near = self
            .local_ends
            .get(id.index as usize)
            .and_then(Option::as_ref);
        near.filter(|near| near.id == id && near.closing.is_none())
            .map_or(0, |near| near.unsent.unsent())
    }

    fn pause(&mut self, id: ConnectionId) {
        if let Some(near) = self.live(id) {
            near.is_paused = true;
        }
    }

    fn resume(&mut self, id: ConnectionId) {
        self.stir();
        if let Some(near) = self.live(id) {
            near.is_paused = false;
        }
    }

    fn shutdown(&mut self, id: ConnectionId) {
        let Some(near) = self.live(id) else { return };
        near.is_shut_down = true;
        if near.unsent.is_empty()
            && let Some(far) = self.remote_ends.get_mut(&id)
        {
            far.end();
        }
    }

    fn close(&mut self, id: ConnectionId) {
        self.stir();
        if let Some(near) = self.live(id) {
            near.closing = Some(CloseReason::Requested);
            near.unsent = SendQueue::default();
        }
    }

    fn detach(&mut self, _id: ConnectionId) -> Option<Detached> {
        None
    }

    fn set_timer(&mut self, id: ConnectionId, deadline_ms: u64) {
        self.clear_timer(id);
        let tie = self.rng.as_mut().map_or(0, |rng| rng.u64(..));
        if let Some(near) = self.live(id) {
            near.timer = Some((deadline_ms, tie));
            self.timers.insert((deadline_ms, tie, id.index), id);
        }
    }

    fn clear_timer(&mut self, id: ConnectionId) {
        let timer = self.local_end(id).and_then(|near| near.timer.take());
        if let Some((deadline_ms, tie)) = timer {
            self.timers.remove(&(deadline_ms, tie, id.index));
        }
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }

    fn now_ms(&self) -> u64 {
        self.now_ms
    }

    fn options(&self) -> &Options {
        &self.options
    }

    fn turn_within(
        &mut self,
        timeout: Option<Duration>,
        sink: &mut impl FnMut(&mut Self, DriverEvent<'_>),
    ) -> io::Result<()> {
        self.stir();
        let mut delivered = false;
        for _ in 0..self.dialed.len().min(self.options.accepts_max) {
            let Some((id, listener, peer)) = self.dialed.pop_front() else {
                break;
            };
            if self.listeners[listener.0 as usize] {
                delivered = true;
                sink(self, DriverEvent::Accepted { id, listener, peer });
            } else {
                self.dialed.push_back((id, listener, peer));
            }
        }
        for id in std::mem::take(&mut self.accepted_dials) {
            if let Some(near) = self.live(id)
                && std::mem::take(&mut near.is_connecting)
            {
                delivered = true;
                sink(self, DriverEvent::Connected { id });
            }
        }
        for (id, buffers, drained) in self.drain_unsent() {
            delivered = true;
            if buffers.is_empty() && !drained {
                sink(self, DriverEvent::Progressed { id });
            }
            for buffer in buffers {
                if self.live(id).is_some() {
                    sink(self, DriverEvent::Sent { id, buffer });
                }
            }
            if drained && self.live(id).is_some() {
                sink(self, DriverEvent::Drained { id });
            }
        }
        for id in self.due() {
            if self.live(id).is_some() {
                delivered = true;
                sink(self, DriverEvent::Timer { id });
            }
        }
        for (place, id) in self.shuffled().into_iter().enumerate() {
            let rng = self.rng.as_mut();
            let waits = rng.is_some_and(|rng| rng.u8(0..4) >= SERVED_OF_FOUR);
            if waits && place > 0 && self.is_skipped(id) {
                continue;
            }
            match self.arrival(id) {
                Some(Arrival::Bytes(mut bytes)) => {
                    delivered = true;
                    let bytes = &mut bytes[..];
                    sink(self, DriverEvent::Received { id, bytes });
                }
                Some(Arrival::Fin) => {
                    delivered = true;
                    sink(self, DriverEvent::Ended { id });
                }
                Some(Arrival::End) => {
                    delivered = true;
                    let reason = self.end(id);
                    sink(self, DriverEvent::Closed { id, reason });
                }
                None => {}
            }
        }
        self.has_delivered = delivered;
        let waiting = self
            .local_ends
            .iter()
            .flatten()
            .any(|near| self.has_arrival(near));
        if !delivered && !waiting && timeout != Some(Duration::ZERO) {
            let timer_ms = self.timers.first_key_value().map(|(key, _)| key.0);
            let wake_ms = timeout.map(|timeout| {
                let ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
                self.now_ms.saturating_add(ms.max(1))
            });
            let until_ms = timer_ms.into_iter().chain(wake_ms).min();
            // If a timer was set to the current time during this turn, the network is not idle.
            self.idle_until_ms = Some(until_ms.unwrap_or(u64::MAX)).filter(|ms| *ms > self.now_ms);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
