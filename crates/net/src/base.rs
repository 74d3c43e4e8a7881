//! What the back ends on sockets have in common: transports, timers, listeners that rest, and what the sink has not been
//! told yet.
//!
//! It waits for nothing and watches nothing: that is what the back ends differ in.

use std::io;
use std::mem;
use std::net::{IpAddr, SocketAddr};

use rustix::io::Errno;

use crate::accept::Listener;
use crate::queue::{Queues, SendQueue};
use crate::sys::socket;
use crate::timer::Wheel;
use crate::transport::{State, Transports};
use crate::{Buffer, CloseReason, ConnectionId, Detached, Event, ListenerId, Options, Waker};

/// What a call caused and the sink has not been told yet.
#[derive(Debug)]
pub(crate) enum Pending {
    Sent(ConnectionId, Buffer),
    Progressed(ConnectionId),
    Drained(ConnectionId),
}

/// See the module.
pub(crate) struct DriverBase {
    pub(crate) options: Options,
    pub(crate) transports: Transports,
    pub(crate) wheel: Wheel,
    pub(crate) now_ms: u64,
    pub(crate) waker: Waker,
    pub(crate) pending: Vec<Pending>,
    pub(crate) closed: Vec<(ConnectionId, CloseReason)>,
    pub(crate) queues: Queues,
    pub(crate) listeners: Vec<Listener>,
    /// Listeners that wait for their next attempt, and when that is.
    backing_off: Vec<(ListenerId, u64)>,
}

impl DriverBase {
    /// At most `spare_queues_max` queues are kept for the next sends.
    ///
    /// # Errors
    /// No descriptor for the waker.
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

    /// Begins to connect; whoever watches the new transport learns how it goes on, unless it has failed already.
    ///
    /// # Errors
    /// No descriptor, or `from` is not an address of this machine.
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
        Ok((self.transports.add(socket, State::Connecting), begun))
    }

    /// Bytes of a transport that the kernel has not taken.
    pub(crate) fn unsent(&self, id: ConnectionId) -> usize {
        self.transports
            .peek(id)
            .and_then(|transport| transport.queue.as_deref())
            .map_or(0, SendQueue::unsent)
    }

    /// Ends an open transport whose descriptor nobody has told the kernel anything of any more.
    pub(crate) fn detach(&mut self, id: ConnectionId, received: Vec<u8>) -> Option<Detached> {
        let transport = self.transports.live(id)?;
        let socket = transport.socket.take()?;
        transport.state = State::Closed;
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
            // Never in the millisecond that is being fired: a sink that sets
            // the same timer again and again must not hold up the turn.
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

    /// Descriptors or memory are short: waiting connections would make the
    /// loop spin, so the listener rests.
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

    /// The next listener that has rested enough.
    #[inline]
    pub(crate) fn next_listener_to_retry(&mut self) -> Option<ListenerId> {
        let is_due = |(_, until_ms): &(ListenerId, u64)| *until_ms <= self.now_ms;
        let place = self.backing_off.iter().position(is_due)?;
        Some(self.backing_off.swap_remove(place).0)
    }

    /// How long the wait may last.
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

/// A driver on a [`DriverBase`]: how the sink is told what that has for it.
pub(crate) trait SocketBackEnd: Sized {
    fn base(&mut self) -> &mut DriverBase;

    fn fire_timers(&mut self, sink: &mut impl FnMut(&mut Self, Event<'_>)) {
        for _ in 0..self.base().options.timers_max {
            let base = self.base();
            let Some(index) = base.wheel.pop(&mut base.transports, base.now_ms) else {
                break;
            };
            let id = base.transports.id(index);
            sink(self, Event::Timer { id });
        }
    }

    /// What calls have caused up to now; what the sink causes comes next turn.
    fn deliver_pending(&mut self, sink: &mut impl FnMut(&mut Self, Event<'_>)) {
        let mut pending = mem::take(&mut self.base().pending);
        for event in pending.drain(..) {
            let (id, event) = match event {
                Pending::Sent(id, buffer) => (id, Event::Sent { id, buffer }),
                Pending::Drained(id) => (id, Event::Drained { id }),
                Pending::Progressed(id) => (id, Event::Progressed { id }),
            };
            if self.base().transports.peek(id).is_some() {
                sink(self, event);
            }
        }
        let base = self.base();
        pending.append(&mut base.pending);
        base.pending = pending;
    }

    fn deliver_closed(&mut self, sink: &mut impl FnMut(&mut Self, Event<'_>)) {
        let mut closed = mem::take(&mut self.base().closed);
        for (id, reason) in closed.drain(..) {
            sink(self, Event::Closed { id, reason });
            self.base().transports.remove(id);
        }
        let base = self.base();
        closed.append(&mut base.closed);
        base.closed = closed;
    }
}
