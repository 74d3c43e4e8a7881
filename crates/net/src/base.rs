//! The common parts of the socket back ends: transports, timers, listeners that back off, and
//! events that were not delivered to the sink yet.
//!
//! This module neither waits nor watches descriptors, because the back ends do this differently.

use std::io;
use std::mem;
use std::net::{IpAddr, SocketAddr};

use rustix::io::Errno;

use crate::accept::Listener;
use crate::queue::{Queues, SendQueue};
use crate::sys::socket;
use crate::timer::Wheel;
use crate::transport::{TransportState, Transports};
use crate::{Buffer, CloseReason, ConnectionId, Detached, DriverEvent, ListenerId, Options, Waker};

/// An event that a call has caused and that was not delivered to the sink yet.
#[derive(Debug)]
pub(crate) enum PendingEvent {
    Sent(ConnectionId, Buffer),
    Progressed(ConnectionId),
    Drained(ConnectionId),
}

/// The state shared by the socket back ends.
pub(crate) struct DriverBase {
    pub(crate) options: Options,
    pub(crate) transports: Transports,
    pub(crate) wheel: Wheel,
    pub(crate) now_ms: u64,
    pub(crate) waker: Waker,
    pub(crate) pending: Vec<PendingEvent>,
    pub(crate) closed: Vec<(ConnectionId, CloseReason)>,
    pub(crate) queues: Queues,
    pub(crate) listeners: Vec<Listener>,
    /// Listeners that back off, with the time of the next attempt to accept connections.
    backing_off: Vec<(ListenerId, u64)>,
}

impl DriverBase {
    /// Creates the state of a socket back end, which keeps at most `spare_queues_max` empty send
    /// queues for reuse.
    pub(crate) fn new(options: Options, spare_queues_max: usize) -> io::Result<Self> {
        let now_ms = socket::now_ms();
        Ok(Self {
            transports: Transports::new(),
            wheel: Wheel::new(now_ms),
            now_ms,
            waker: Waker::new()?,
            pending: Vec::new(),
            closed: Vec::new(),
            queues: Queues::new(spare_queues_max),
            listeners: Vec::new(),
            backing_off: Vec::new(),
            options,
        })
    }

    /// Starts to connect. The inner `Result` is an error if the connect has failed at once. Otherwise an event of the
    /// new transport reports the outcome.
    ///
    /// # Errors
    /// No descriptor is left, or `from` is not a local address.
    pub(crate) fn connect(
        &mut self,
        addr: SocketAddr,
        from: Option<IpAddr>,
    ) -> io::Result<(ConnectionId, Result<(), Errno>)> {
        let socket = socket::new_for(&addr)?;
        if let Some(from) = from {
            socket::bind_from(&socket, from)?;
        }
        let begun = socket::connect(&socket, &addr);
        Ok((
            self.transports.add(socket, TransportState::Connecting),
            begun,
        ))
    }

    /// Returns the number of bytes of a transport that the kernel has not taken.
    pub(crate) fn unsent(&self, id: ConnectionId) -> usize {
        self.transports
            .peek(id)
            .and_then(|transport| transport.queue.as_deref())
            .map_or(0, SendQueue::unsent)
    }

    /// Removes an open transport whose descriptor is no longer registered with the kernel.
    pub(crate) fn detach(&mut self, id: ConnectionId, received: Vec<u8>) -> Option<Detached> {
        let transport = self.transports.live(id)?;
        let socket = transport.socket.take()?;
        transport.state = TransportState::Closed;
        let queue = transport.queue.take();
        let unsent = queue.as_deref().map_or(Vec::new(), SendQueue::remaining);
        queue.into_iter().for_each(|queue| self.queues.give(queue));
        self.wheel.clear(&mut self.transports, id.index);
        self.closed.push((id, CloseReason::Requested));
        Some(Detached {
            socket,
            received,
            unsent,
        })
    }

    #[inline]
    pub(crate) fn set_timer(&mut self, id: ConnectionId, deadline_ms: u64) {
        if self.transports.live(id).is_some() {
            // A timer does not fire in the millisecond that is being processed; otherwise a sink
            // that repeatedly sets the same timer could prolong the turn.
            let deadline_ms = deadline_ms.max(self.now_ms + 1);
            self.wheel.set(&mut self.transports, id.index, deadline_ms);
        }
    }

    #[inline]
    pub(crate) fn clear_timer(&mut self, id: ConnectionId) {
        if self.transports.live(id).is_some() {
            self.wheel.clear(&mut self.transports, id.index);
        }
    }

    /// Pauses a listener because descriptors or memory have run out. Without the pause, its waiting
    /// connections would make the loop spin.
    #[cold]
    pub(crate) fn back_off(&mut self, listener: ListenerId) {
        if !self.is_backing_off(listener) {
            let until_ms = self.now_ms + self.options.accept_retry_ms;
            self.backing_off.push((listener, until_ms));
        }
    }

    #[inline]
    pub(crate) fn is_backing_off(&self, listener: ListenerId) -> bool {
        self.backing_off
            .iter()
            .any(|(resting, _)| *resting == listener)
    }

    /// Returns the next listener whose back-off has ended.
    #[inline]
    pub(crate) fn next_listener_to_retry(&mut self) -> Option<ListenerId> {
        let is_due = |(_, until_ms): &(ListenerId, u64)| *until_ms <= self.now_ms;
        let place = self.backing_off.iter().position(is_due)?;
        Some(self.backing_off.swap_remove(place).0)
    }

    /// Returns how long the driver may wait for events, in milliseconds; `None` if there is no limit.
    pub(crate) fn wait_ms(&self) -> Option<u64> {
        if !self.pending.is_empty() || !self.closed.is_empty() {
            return Some(0);
        }
        let rested_ms = self.backing_off.iter().map(|(_, until_ms)| *until_ms);
        rested_ms
            .chain(self.wheel.next_ms())
            .map(|at_ms| at_ms.saturating_sub(self.now_ms))
            .min()
    }
}

/// A driver built on a [`DriverBase`]. The trait delivers the events of that base.
pub(crate) trait SocketBackEnd: Sized {
    fn base(&mut self) -> &mut DriverBase;

    fn fire_timers(&mut self, sink: &mut impl FnMut(&mut Self, DriverEvent<'_>)) {
        for _ in 0..self.base().options.timers_max {
            let base = self.base();
            let Some(index) = base.wheel.pop(&mut base.transports, base.now_ms) else {
                break;
            };
            let id = base.transports.id(index);
            sink(self, DriverEvent::Timer { id });
        }
    }

    /// Delivers the events that calls have caused so far. Events caused by the sink are delivered
    /// in the next turn.
    fn deliver_pending(&mut self, sink: &mut impl FnMut(&mut Self, DriverEvent<'_>)) {
        let mut pending = mem::take(&mut self.base().pending);
        for event in pending.drain(..) {
            let (id, event) = match event {
                PendingEvent::Sent(id, buffer) => (id, DriverEvent::Sent { id, buffer }),
                PendingEvent::Drained(id) => (id, DriverEvent::Drained { id }),
                PendingEvent::Progressed(id) => (id, DriverEvent::Progressed { id }),
            };
            if self.base().transports.peek(id).is_some() {
                sink(self, event);
            }
        }
        let base = self.base();
        pending.append(&mut base.pending);
        base.pending = pending;
    }

    fn deliver_closed(&mut self, sink: &mut impl FnMut(&mut Self, DriverEvent<'_>)) {
        let mut closed = mem::take(&mut self.base().closed);
        for (id, reason) in closed.drain(..) {
            sink(self, DriverEvent::Closed { id, reason });
            self.base().transports.remove(id);
        }
        let base = self.base();
        closed.append(&mut base.closed);
        base.closed = closed;
    }
}
