//! A driver for tests that wraps another driver and delays its events.
//!
//! Operations complete late and in parts, as with a completion queue. Received bytes are delivered
//! in pieces of random size, some turns after the kernel had them and sometimes even after `pause`.
//! Sends are delayed for some turns, are sent in pieces, and most are returned by `Sent`. `Accepted`,
//! `Ended` and `Closed` are late. The driver keeps the guarantees of [`Driver`] and no others, so
//! code that works on it does not depend on the behaviour of epoll. All randomness comes from one
//! seed. Speed is not a goal.
//!
//! A transport's id differs from its id in the inner driver, which may reuse an id before `Closed`
//! has been delivered.

mod link;

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use fastrand::Rng;

use crate::{
    Buffer, CloseReason, ConnectionId, Detached, Driver, DriverEvent, ListenerId, Options, Waker,
};

use link::{Arrival, DelayedLink};

/// Maximum delay in turns.
const LATE_TURNS_MAX: u64 = 4;

/// A [`Driver`] that completes operations late and in parts.
#[derive(Debug)]
pub struct Delayed<D> {
    driver: D,
    rng: Rng,
    turn: u64,
    links: Vec<DelayedLink>,
    free: Vec<u32>,
    /// The index in `links` of each live transport, by its id in the inner driver.
    indexes: HashMap<ConnectionId, u32>,
}

impl<D: Driver> Delayed<D> {
    /// Wraps `driver`. The same seed makes the same random choices.
    #[must_use]
    pub fn new(driver: D, seed: u64) -> Self {
        Self {
            driver,
            rng: Rng::with_seed(seed),
            turn: 0,
            links: Vec::new(),
            free: Vec::new(),
            indexes: HashMap::new(),
        }
    }

    fn add(&mut self, below: ConnectionId) -> u32 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.links.push(DelayedLink::free());
            self.links.len() as u32 - 1
        });
        self.links[index as usize].open(below);
        self.indexes.insert(below, index);
        index
    }

    fn id(&self, index: u32) -> ConnectionId {
        ConnectionId {
            index,
            generation: self.links[index as usize].generation,
        }
    }

    fn live(&mut self, id: ConnectionId) -> Option<&mut DelayedLink> {
        self.links
            .get_mut(id.index as usize)
            .filter(|link| link.generation == id.generation && link.live)
    }

    /// Returns the turn in which an event that arrives now is delivered.
    fn delivery_turn(&mut self) -> u64 {
        self.turn + self.rng.u64(0..=LATE_TURNS_MAX)
    }

    /// Records an event of the inner driver.
    fn arrive(&mut self, below: ConnectionId, arrival: Arrival) {
        let due = self.delivery_turn();
        if let Some(&index) = self.indexes.get(&below) {
            if matches!(arrival, Arrival::Closed(_)) {
                self.indexes.remove(&below);
                self.links[index as usize].below = None;
            }
            self.links[index as usize].arrive(due, arrival);
        }
    }

    /// Passes pieces of queued sends to the inner driver.
    fn advance_sends(&mut self, index: u32) {
        let link = &mut self.links[index as usize];
        link.advance_sends(self.turn, &mut self.rng, &mut self.driver);
        // The inner driver is paused while enough received bytes wait for delivery to the caller, so
        // that bytes accumulate in neither driver.
        if let Some(below) = link.below {
            if link.wants_bytes() {
                self.driver.resume(below);
            } else {
                self.driver.pause(below);
            }
        }
    }

    /// Delivers the due events of a transport.
    fn deliver(&mut self, index: u32, sink: &mut impl FnMut(&mut Self, DriverEvent<'_>)) {
        let id = self.id(index);
        let low_water = self.driver.options().low_water_bytes;
        while self.links[index as usize].generation == id.generation {
            let link = &mut self.links[index as usize];
            if let Some(buffer) = link.next_sent(&self.driver) {
                sink(self, DriverEvent::Sent { id, buffer });
                continue;
            }
            if link.drained(low_water, &self.driver) {
                sink(self, DriverEvent::Drained { id });
                continue;
            }
            if link.progressed(&self.driver) {
                sink(self, DriverEvent::Progressed { id });
                continue;
            }
            let Some(arrival) = link.next_arrival(self.turn, &mut self.rng) else {
                break;
            };
            match arrival {
                Arrival::Accepted(listener, peer) => {
                    sink(self, DriverEvent::Accepted { id, listener, peer });
                }
                Arrival::Connected => sink(self, DriverEvent::Connected { id }),
                Arrival::Bytes(mut bytes) => {
                    sink(
                        self,
                        DriverEvent::Received {
                            id,
                            bytes: &mut bytes,
                        },
                    );
                }
                Arrival::Ended => sink(self, DriverEvent::Ended { id }),
                Arrival::Closed(reason) => {
                    self.links[index as usize].live = false;
                    sink(self, DriverEvent::Closed { id, reason });
                    self.links[index as usize].reset();
                    self.free.push(index);
                }
            }
        }
    }
}

/// An event without borrowed data, so that it can be delivered later.
enum OwnedEvent {
    Transport(ConnectionId, Arrival),
    Timer(ConnectionId),
    Stalled(ListenerId, i32),
    Woken,
}

impl<D: Driver> Driver for Delayed<D> {
    fn listen(&mut self, socket: OwnedFd) -> io::Result<ListenerId> {
        self.driver.listen(socket)
    }

    fn pause_accept(&mut self, listener: ListenerId) {
        self.driver.pause_accept(listener);
    }

    fn resume_accept(&mut self, listener: ListenerId) {
        self.driver.resume_accept(listener);
    }

    fn connect_from(&mut self, addr: SocketAddr, from: Option<IpAddr>) -> io::Result<ConnectionId> {
        let below = self.driver.connect_from(addr, from)?;
        let index = self.add(below);
        Ok(self.id(index))
    }

    fn send(&mut self, id: ConnectionId, buffer: Buffer, _more: bool) -> Option<Buffer> {
        let due = self.delivery_turn();
        let at_once = self.rng.u8(0..4) == 0;
        let Some(link) = self.live(id) else {
            return Some(buffer);
        };
        if buffer.is_empty() || link.shutdown {
            return Some(buffer);
        }
        // Some sends complete immediately, as with epoll, because callers must handle both
        // immediate and delayed sends.
        if at_once
            && let Some(below) = link.below
            && link.sends.is_empty()
        {
            let copy = Buffer::Owned(buffer.as_slice().to_vec());
            if self.driver.send(below, copy, false).is_some() {
                return Some(buffer);
            }
            let length = buffer.len();
            self.live(id)?.queue(due, buffer, length);
        } else {
            link.queue(due, buffer, 0);
        }
        let low_water = self.driver.options().low_water_bytes;
        self.links[id.index as usize].queued(low_water, &self.driver);
        None
    }

    fn unsent(&self, id: ConnectionId) -> usize {
        self.links
            .get(id.index as usize)
            .filter(|link| link.generation == id.generation && link.live)
            .map_or(0, |link| link.unsent(&self.driver))
    }

    fn pause(&mut self, id: ConnectionId) {
        let bytes_max = self.rng.usize(0..=crate::RECEIVE_AFTER_PAUSE_MAX);
        let Some(link) = self.live(id) else { return };
        link.pause(bytes_max);
        if let Some(below) = link.below {
            self.driver.pause(below);
        }
    }

    fn resume(&mut self, id: ConnectionId) {
        if let Some(link) = self.live(id) {
            link.resume();
        }
    }

    fn shutdown(&mut self, id: ConnectionId) {
        if let Some(link) = self.live(id) {
            link.shutdown = true;
        }
    }

    fn close(&mut self, id: ConnectionId) {
        let due = self.delivery_turn();
        let Some(link) = self.live(id) else { return };
        let below = link.below.take();
        link.close(due, CloseReason::Requested);
        if let Some(below) = below {
            self.indexes.remove(&below);
            self.driver.close(below);
        }
    }

    fn detach(&mut self, id: ConnectionId) -> Option<Detached> {
        let due = self.delivery_turn();
        let below = self.live(id)?.below?;
        let mut detached = self.driver.detach(below)?;
        self.indexes.remove(&below);
        let link = &mut self.links[id.index as usize];
        link.below = None;
        link.detach(&mut detached);
        link.close(due, CloseReason::Requested);
        Some(detached)
    }

    fn set_timer(&mut self, id: ConnectionId, deadline_ms: u64) {
        if let Some(below) = self.live(id).and_then(|link| link.below) {
            self.driver.set_timer(below, deadline_ms);
        }
    }

    fn clear_timer(&mut self, id: ConnectionId) {
        if let Some(below) = self.live(id).and_then(|link| link.below) {
            self.driver.clear_timer(below);
        }
    }

    fn waker(&self) -> Waker {
        self.driver.waker()
    }

    fn now_ms(&self) -> u64 {
        self.driver.now_ms()
    }

    fn options(&self) -> &Options {
        self.driver.options()
    }

    fn turn_within(
        &mut self,
        timeout: Option<Duration>,
        sink: &mut impl FnMut(&mut Self, DriverEvent<'_>),
    ) -> io::Result<()> {
        self.turn += 1;
        for index in 0..self.links.len() as u32 {
            self.advance_sends(index);
        }
        let wait_ms_max = self.links.iter().filter_map(DelayedLink::wait_ms_max).min();
        let own = wait_ms_max.map(Duration::from_millis);
        let timeout = own.into_iter().chain(timeout).min();
        let mut events = Vec::new();
        self.driver.turn_within(timeout, &mut |_, event| {
            events.push(match event {
                DriverEvent::Accepted { id, listener, peer } => {
                    OwnedEvent::Transport(id, Arrival::Accepted(listener, peer))
                }
                DriverEvent::Connected { id } => OwnedEvent::Transport(id, Arrival::Connected),
                DriverEvent::Received { id, bytes } => {
                    OwnedEvent::Transport(id, Arrival::Bytes(bytes.to_vec()))
                }
                DriverEvent::Ended { id } => OwnedEvent::Transport(id, Arrival::Ended),
                DriverEvent::Closed { id, reason } => {
                    OwnedEvent::Transport(id, Arrival::Closed(reason))
                }
                DriverEvent::Timer { id } => OwnedEvent::Timer(id),
                DriverEvent::AcceptStalled { listener, errno } => {
                    OwnedEvent::Stalled(listener, errno)
                }
                DriverEvent::Woken => OwnedEvent::Woken,
                // These events are not passed on: this driver derives them from its own count of
                // unsent bytes.
                DriverEvent::Sent { .. }
                | DriverEvent::Progressed { .. }
                | DriverEvent::Drained { .. } => return,
            });
        })?;
        for event in events {
            match event {
                OwnedEvent::Transport(below, arrival) => {
                    if matches!(arrival, Arrival::Accepted(..)) {
                        self.add(below);
                    }
                    self.arrive(below, arrival);
                }
                OwnedEvent::Timer(below) => {
                    if let Some(&index) = self.indexes.get(&below) {
                        sink(self, DriverEvent::Timer { id: self.id(index) });
                    }
                }
                OwnedEvent::Stalled(listener, errno) => {
                    sink(self, DriverEvent::AcceptStalled { listener, errno })
                }
                OwnedEvent::Woken => sink(self, DriverEvent::Woken),
            }
        }
        for index in 0..self.links.len() as u32 {
            if self.links[index as usize].is_used() {
                self.deliver(index, sink);
            }
        }
        Ok(())
    }
}
