//! The back end for Linux's io_uring: what a turn asks of the kernel goes in one call.
//!
//! Receives and accepts are multishot: asked for once, they go on by themselves, into buffers that belong to the ring.
//! Sends are collected during a turn and submitted together when it ends; they don't wait in the kernel, so each is
//! done when that call returns, and what a socket did not take waits for a poll as with epoll. So a transport has nothing
//! in flight but a receive and polls. Its end cancels these, and its descriptor is closed when the last of them has
//! answered: a number that is used again can't be meant by something old.
//!
//! Decides nothing about bytes: they go to the sink, to be parsed above.

mod accept;
mod receive;
mod send;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use crate::queue::{Queues, SendQueue};
use crate::sys::socket;
use crate::sys::uring::{Done, Kind, Ring};
use crate::timer::Wheel;
use crate::transport::{State, Transport, Transports};
use crate::{Buffer, CloseReason, Driver, Event, ListenerId, Options, TransportId, Waker};

use accept::Listener;
use receive::Arrived;

/// Bits of `Transport::interest`: what is in flight.
const RECEIVING: u8 = 1;
/// The receive is being cancelled.
const CANCELLING: u8 = 2;
/// A poll for room to send.
const WRITABLE: u8 = 4;
/// A poll for a reset, since nothing is received that would tell it.
const CHANGES: u8 = 8;
/// There are bytes in `kept`.
const KEEPING: u8 = 16;
/// It is in `unsent`.
const UNSENT: u8 = 32;

/// Queues that are kept for the next sends: of a publication to many.
const SPARE_QUEUES_MAX: usize = 8192;

/// What a call caused and the sink has not been told yet.
#[derive(Debug)]
enum Pending {
    Sent(TransportId, Buffer),
    Progressed(TransportId),
    Drained(TransportId),
}

/// A [`Driver`] on io_uring.
pub struct Uring {
    options: Options,
    transports: Transports,
    wheel: Wheel,
    now_ms: u64,
    waker: Waker,
    /// The poll for wakes has ended and has to be asked for again.
    is_deaf: bool,
    listeners: Vec<Listener>,
    /// Listeners that wait for their next attempt.
    stalled: usize,
    /// Receives and accepts that are done, in order, of which a turn tells some.
    arrived: VecDeque<Arrived>,
    /// What came while its transport was paused.
    kept: HashMap<u32, Vec<u8>>,
    /// Transports that are to be looked at: their receive is to be asked for again, or what was kept is to be told.
    hungry: Vec<TransportId>,
    /// Transports that were paused in this turn, some of them not for long.
    pausing: Vec<TransportId>,
    /// Transports with something to send that was not submitted yet.
    unsent: Vec<TransportId>,
    /// Transports that are connected and were not told so yet.
    connected: Vec<TransportId>,
    pending: Vec<Pending>,
    /// Transports that have ended and wait for what is in flight.
    dying: Vec<(TransportId, CloseReason)>,
    closed: Vec<(TransportId, CloseReason)>,
    queues: Queues,
    // Last, so that nothing of a transport outlives it but by accident of a panic.
    ring: Ring,
}

impl Uring {
    /// Makes a driver with no sockets. It belongs to the thread that makes it.
    ///
    /// # Errors
    /// No descriptor, or the kernel lacks io_uring, something that is needed of it (6.1 has all), or the right to it.
    pub fn new(options: Options) -> io::Result<Self> {
        let mut ring = Ring::new(options.ring_buffers, options.ring_buffer_bytes)?;
        let waker = Waker::new()?;
        ring.poll_wake(waker.eventfd());
        let now_ms = socket::now_ms();
        Ok(Self {
            transports: Transports::new(),
            wheel: Wheel::new(now_ms),
            now_ms,
            waker,
            is_deaf: false,
            listeners: Vec::new(),
            stalled: 0,
            arrived: VecDeque::new(),
            kept: HashMap::new(),
            hungry: Vec::new(),
            pausing: Vec::new(),
            unsent: Vec::new(),
            connected: Vec::new(),
            pending: Vec::new(),
            dying: Vec::new(),
            closed: Vec::new(),
            queues: Queues::new(SPARE_QUEUES_MAX),
            ring,
            options,
        })
    }

    /// The end of a live transport, whatever the reason.
    fn end(&mut self, id: TransportId, reason: CloseReason) {
        let Some(transport) = self.transports.live(id) else {
            return;
        };
        transport.state = State::Closed;
        let interest = transport.interest;
        if let Some(queue) = transport.queue.take() {
            self.queues.give(queue);
        }
        if interest & KEEPING != 0 {
            self.kept.remove(&id.index);
        }
        if interest & (RECEIVING | CANCELLING) == RECEIVING {
            self.ring.cancel(Kind::Receive, id.index);
        }
        if interest & WRITABLE != 0 {
            self.ring.cancel(Kind::Writable, id.index);
        }
        if interest & CHANGES != 0 {
            self.ring.cancel(Kind::Change, id.index);
        }
        self.wheel.clear(&mut self.transports, id.index);
        self.dying.push((id, reason));
    }

    /// Closes the descriptors of those that have nothing in flight any more.
    fn bury(&mut self) {
        let Self {
            dying,
            closed,
            transports,
            ..
        } = self;
        dying.retain(|(id, reason)| {
            let transport = transports.slot(id.index);
            if transport.interest & (RECEIVING | WRITABLE | CHANGES) != 0 {
                return true;
            }
            transport.socket = None;
            closed.push((*id, *reason));
            false
        });
    }

    /// A transport by its index, if it has not ended.
    fn at(&mut self, index: u32) -> Option<(TransportId, &mut Transport)> {
        let id = self.transports.id(index);
        let transport = self.transports.live(id)?;
        Some((id, transport))
    }

    /// How long the wait may last.
    fn wait_ms(&self) -> Option<u64> {
        let is_busy = !self.pending.is_empty()
            || !self.closed.is_empty()
            || !self.dying.is_empty()
            || !self.arrived.is_empty()
            || !self.hungry.is_empty();
        if is_busy {
            return Some(0);
        }
        let retry_ms = match self.stalled {
            0 => None,
            _ => self.next_accept_ms(),
        };
        [self.wheel.next_ms(), retry_ms]
            .into_iter()
            .flatten()
            .map(|at_ms| at_ms.saturating_sub(self.now_ms))
            .min()
    }

    /// Takes what the kernel has done: sends and polls at once, receives and accepts to be told in their turn.
    fn collect(&mut self) -> bool {
        let mut is_woken = false;
        while let Some(done) = self.ring.next() {
            match done {
                Done::Sent(index, sent, queue) => self.sent(index, sent, queue),
                Done::Received(index, filled, has_more) => {
                    if !has_more {
                        let slot = self.transports.slot(index);
                        slot.interest &= !(RECEIVING | CANCELLING);
                    }
                    self.received(index, filled, has_more);
                }
                Done::Accepted(listener, socket, has_more) => {
                    self.accepted(ListenerId(listener), socket, has_more);
                }
                Done::Writable(index) => {
                    self.transports.slot(index).interest &= !WRITABLE;
                    self.writable(index);
                }
                Done::Changed(index, has_more) => {
                    if !has_more {
                        self.transports.slot(index).interest &= !CHANGES;
                    }
                    self.changed(index);
                }
                Done::Missed(kind, index) => self.cancel_again(kind, index),
                Done::Woken(has_more) => {
                    is_woken = true;
                    self.is_deaf |= !has_more;
                }
            }
        }
        is_woken
    }

    /// A cancellation found nothing: where the thing is still in flight it was between two steps of the kernel.
    #[cold]
    fn cancel_again(&mut self, kind: Kind, index: u32) {
        let interest = match kind {
            Kind::Accept => return self.cancel_accept_again(index),
            _ => self.transports.slot(index).interest,
        };
        let wanted = match kind {
            Kind::Receive => RECEIVING,
            Kind::Writable => WRITABLE,
            _ => CHANGES,
        };
        if interest & wanted != 0 {
            self.ring.cancel(kind, index);
        }
    }

    fn fire_timers(&mut self, sink: &mut impl FnMut(&mut Self, Event<'_>)) {
        for _ in 0..self.options.timers_max {
            let Some(index) = self.wheel.pop(&mut self.transports, self.now_ms) else {
                break;
            };
            let id = self.transports.id(index);
            sink(self, Event::Timer { id });
        }
    }

    /// What calls have caused up to now; what the sink causes comes next turn.
    fn deliver_pending(&mut self, sink: &mut impl FnMut(&mut Self, Event<'_>)) {
        let mut pending = mem::take(&mut self.pending);
        for event in pending.drain(..) {
            match event {
                Pending::Sent(id, buffer) if self.transports.peek(id).is_some() => {
                    sink(self, Event::Sent { id, buffer });
                }
                Pending::Drained(id) if self.transports.peek(id).is_some() => {
                    sink(self, Event::Drained { id });
                }
                Pending::Progressed(id) if self.transports.peek(id).is_some() => {
                    sink(self, Event::Progressed { id });
                }
                Pending::Sent(..) | Pending::Progressed(_) | Pending::Drained(_) => {}
            }
        }
        pending.append(&mut self.pending);
        self.pending = pending;
    }

    fn deliver_closed(&mut self, sink: &mut impl FnMut(&mut Self, Event<'_>)) {
        let mut closed = mem::take(&mut self.closed);
        for (id, reason) in closed.drain(..) {
            sink(self, Event::Closed { id, reason });
            self.transports.remove(id);
        }
        closed.append(&mut self.closed);
        self.closed = closed;
    }
}

impl Driver for Uring {
    fn listen(&mut self, socket: OwnedFd) -> io::Result<ListenerId> {
        self.add_listener(socket)
    }

    fn pause_accept(&mut self, listener: ListenerId) {
        self.set_accepting(listener, false);
    }

    fn resume_accept(&mut self, listener: ListenerId) {
        self.set_accepting(listener, true);
    }

    fn connect_from(&mut self, addr: SocketAddr, from: Option<IpAddr>) -> io::Result<TransportId> {
        let socket = socket::new_for(&addr)?;
        if let Some(from) = from {
            socket::bind_from(&socket, from)?;
        }
        let begun = socket::connect(&socket, &addr);
        let id = self.transports.add(socket, State::Connecting);
        match begun {
            // Writable means connected, or failed with an error on the socket.
            Ok(()) => self.watch_writable(id),
            Err(errno) => self.end(id, errno.into()),
        }
        Ok(id)
    }

    #[inline]
    fn send(&mut self, id: TransportId, buffer: Buffer, _more: bool) -> Option<Buffer> {
        self.send_buffer(id, buffer)
    }

    fn unsent(&self, id: TransportId) -> usize {
        self.transports
            .peek(id)
            .and_then(|transport| transport.queue.as_deref())
            .map_or(0, SendQueue::unsent)
    }

    fn pause(&mut self, id: TransportId) {
        if let Some(transport) = self.transports.live(id)
            && !transport.paused
        {
            transport.paused = true;
            self.pausing.push(id);
        }
    }

    fn resume(&mut self, id: TransportId) {
        let Some(transport) = self.transports.live(id) else {
            return;
        };
        transport.paused = false;
        if transport.interest & KEEPING != 0 || transport.interest & RECEIVING == 0 {
            self.hungry.push(id);
        }
    }

    fn shutdown(&mut self, id: TransportId) {
        self.shutdown_send(id);
    }

    fn close(&mut self, id: TransportId) {
        self.end(id, CloseReason::Asked);
    }

    #[inline]
    fn set_timer(&mut self, id: TransportId, deadline_ms: u64) {
        if self.transports.live(id).is_some() {
            // Never in the millisecond that is being fired: a sink that sets the same timer again and again must not
            // hold up the turn.
            let deadline_ms = deadline_ms.max(self.now_ms + 1);
            self.wheel.set(&mut self.transports, id.index, deadline_ms);
        }
    }

    #[inline]
    fn clear_timer(&mut self, id: TransportId) {
        if self.transports.live(id).is_some() {
            self.wheel.clear(&mut self.transports, id.index);
        }
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }

    #[inline]
    fn now_ms(&self) -> u64 {
        self.now_ms
    }

    fn options(&self) -> &Options {
        &self.options
    }

    fn turn_within(
        &mut self,
        timeout: Option<Duration>,
        sink: &mut impl FnMut(&mut Self, Event<'_>),
    ) -> io::Result<()> {
        self.feed(sink);
        if mem::take(&mut self.is_deaf) {
            self.ring.poll_wake(self.waker.eventfd());
        }
        self.stop_receiving();
        self.submit_sends();
        let own = self.wait_ms().map(Duration::from_millis);
        let timeout = own.into_iter().chain(timeout).min();
        self.ring.wait(timeout)?;
        self.now_ms = socket::now_ms();

        let is_woken = self.collect();
        if is_woken {
            sink(self, Event::Woken);
        }
        self.tell_connected(sink);
        self.tell_arrived(sink);
        if self.stalled != 0 {
            self.retry_accept();
        }
        self.fire_timers(sink);
        self.deliver_pending(sink);
        self.bury();
        self.deliver_closed(sink);
        Ok(())
    }
}
