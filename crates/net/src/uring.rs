//! The io_uring back end, which submits all requests of a turn to the kernel in one call.
//!
//! Receives are multishot: one request makes the kernel receive repeatedly into the buffers of the
//! ring. Listeners are polled, and connections are accepted by a system call, as with epoll.
//! Multishot accepts are not used, because they do not return the peer's address and can't be
//! paused.
//!
//! The kernel fills buffers in the order in which bytes arrive, so a few busy transports could take
//! all of them. Events are therefore not delivered in the order of completions. Instead, each ready
//! transport is in a queue once, and is served at most once in a turn. If a transport has used more
//! than its share of the buffers, or no buffer is left, the transport is handled as with epoll
//! until it receives little: a poll waits for bytes, and when the transport is served, a call
//! receives them.
//!
//! Sends are collected during a turn and submitted together at the beginning of the next turn. They
//! do not wait in the kernel, so each send is complete when the submitting call returns. Bytes that a
//! socket did not accept wait for a poll, as with epoll. A transport therefore has no operations in
//! flight except a receive and polls. When the transport ends, these operations are cancelled. Its
//! descriptor is closed after the last of them has completed, so that a stale operation can't refer
//! to a reused descriptor.
//!
//! The back end passes bytes to the sink without interpreting them.

mod receive;
mod send;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use crate::accept::AcceptBackEnd;
use crate::base::{DriverBase, SocketBackEnd};
use crate::sys::socket;
use crate::sys::uring::{Completion, OperationKind, Ring};
use crate::transport::{Transport, TransportState};
use crate::{
    Buffer, CloseReason, ConnectionId, Detached, Driver, DriverEvent, ListenerId, Options, Waker,
};

use receive::{InputPart, Ready};

/// A bit of `Transport::interest`, like the constants below: a receive or a poll that reports new
/// bytes is in flight.
const RECEIVING: u8 = 1;
/// The receive or poll that `RECEIVING` marks is being cancelled.
const CANCELLING: u8 = 2;
/// A poll is in flight that reports when the socket accepts more bytes.
const WRITABLE: u8 = 4;
/// A poll is in flight that reports a reset of the connection. It is needed only while no receive
/// is in flight.
const CHANGES: u8 = 8;
/// The transport has entries in `Uring::later_parts`.
const HAS_LATER_PARTS: u8 = 16;
/// The transport is in the list `Uring::unsent`.
const UNSENT: u8 = 32;
/// The transport is in the queue `Uring::ready`.
const READY: u8 = 64;
/// The operation that `RECEIVING` marks is a poll, not a receive.
const POLLING: u8 = 128;

/// Maximum number of send queues kept for reuse. A publication needs one for each receiver.
const SPARE_QUEUES_MAX: usize = 8192;
/// Maximum number of empty queues of input parts kept for reuse.
const SPARE_PARTS_MAX: usize = 64;

/// A [`Driver`] on io_uring.
pub struct Uring {
    base: DriverBase,
    /// Whether the poll for wakes has ended and has to be requested again.
    needs_wake_poll: bool,
    /// Whether the waker was called but the sink was not notified yet.
    is_woken: bool,
    /// Listeners that the kernel watches for waiting connections.
    watched: Vec<ListenerId>,
    /// Listeners and transports that must be served, each at most once. A turn serves entries from
    /// the front.
    ready: VecDeque<Ready>,
    /// The remaining undelivered input of transports, by index and in order: the parts after the
    /// one in `ready`, and the parts received while the transport was paused.
    later_parts: HashMap<u32, VecDeque<InputPart>>,
    /// Empty queues for reuse in `later_parts`. A queue is needed, for example, when a message
    /// crosses the end of a buffer.
    spare: Vec<VecDeque<InputPart>>,
    /// The buffer that all receiving calls share.
    receive: Box<[u8]>,
    /// Transports that were paused in this turn. Some may have been resumed since.
    pausing: Vec<ConnectionId>,
    /// Transports with bytes that were not submitted yet.
    unsent: Vec<ConnectionId>,
    /// Number of bytes queued for sending since the last submission.
    unsent_bytes: usize,
    /// Ended transports that still have operations in flight.
    closing: Vec<(ConnectionId, CloseReason)>,
    // Declared last, so that the ring is dropped after the data of transports.
    ring: Ring,
}

impl Uring {
    /// Creates a driver without sockets. Only the thread that creates it may use it.
    ///
    /// # Errors
    /// No descriptor is left, or the kernel has no io_uring, lacks a required feature (6.1 has all
    /// of them), or does not permit its use.
    pub fn new(options: Options) -> io::Result<Self> {
        let mut ring = Ring::new(&options)?;
        let receive = vec![0; options.receive_bytes.max(1)].into_boxed_slice();
        let base = DriverBase::new(options, SPARE_QUEUES_MAX)?;
        ring.poll_wake(base.waker.eventfd());
        Ok(Self {
            base,
            needs_wake_poll: false,
            is_woken: false,
            watched: Vec::new(),
            ready: VecDeque::new(),
            later_parts: HashMap::new(),
            spare: Vec::new(),
            receive,
            pausing: Vec::new(),
            unsent: Vec::new(),
            unsent_bytes: 0,
            closing: Vec::new(),
            ring,
        })
    }

    /// Checks whether [`new`](Self::new) succeeds on this system. Returns `true` if receives can
    /// share buffers (Linux 6.12). In that case, no workload costs significantly more CPU time than
    /// with epoll.
    ///
    /// # Errors
    /// Those of `new`.
    pub fn probe() -> io::Result<bool> {
        let options = Options {
            ring_buffers: 1,
            ring_buffer_bytes: 1,
            ..Options::default()
        };
        Ok(Ring::new(&options)?.shares_buffers())
    }

    /// Ends a live transport.
    fn end(&mut self, id: ConnectionId, reason: CloseReason) {
        let Some(transport) = self.base.transports.live(id) else {
            return;
        };
        transport.state = TransportState::Closed;
        let interest = transport.interest;
        if let Some(queue) = transport.queue.take() {
            self.base.queues.give(queue);
        }
        if interest & HAS_LATER_PARTS != 0 {
            self.drop_later_parts(id.index);
        }
        self.cancel_all(id.index);
        self.base.wheel.clear(&mut self.base.transports, id.index);
        self.closing.push((id, reason));
    }

    /// Cancels the operations of an open transport and waits until they have completed. Returns `None` if the transport
    /// is not open or the wait fails.
    fn reclaim(&mut self, id: ConnectionId) -> Option<()> {
        loop {
            let transport = self.base.transports.live(id)?;
            if transport.state != TransportState::Open {
                return None;
            }
            if transport.interest & (RECEIVING | WRITABLE | CHANGES) == 0 {
                return Some(());
            }
            self.cancel_all(id.index);
            // A cancellation misses an operation that the kernel is processing at that moment, so the
            // loop repeats the cancellation.
            self.ring.wait(Some(Duration::from_millis(1))).ok()?;
            self.collect();
        }
    }

    /// Takes the completions of all sends, and with them the send queues. Between the submission of the sends and the
    /// end of this call, nothing else may change their transports.
    fn reap_sends(&mut self) -> io::Result<()> {
        while self.ring.has_in_flight() {
            self.ring.wait(Some(Duration::ZERO))?;
            self.collect();
        }
        Ok(())
    }

    /// Cancels all operations of a transport.
    fn cancel_all(&mut self, index: u32) {
        let interest = self.base.transports.slot(index).interest;
        if interest & (RECEIVING | CANCELLING) == RECEIVING {
            self.cancel_receive(index);
        }
        if interest & WRITABLE != 0 {
            self.ring.cancel(OperationKind::Writable, index);
        }
        if interest & CHANGES != 0 {
            self.ring.cancel(OperationKind::Change, index);
        }
    }

    /// Cancels the receive or poll that reports a transport's bytes.
    fn cancel_receive(&mut self, index: u32) {
        let is_poll = self.base.transports.slot(index).interest & POLLING != 0;
        let kind = if is_poll {
            OperationKind::Readable
        } else {
            OperationKind::Receive
        };
        self.ring.cancel(kind, index);
    }

    /// Closes the descriptors of ended transports that have no operations in flight.
    fn close_finished(&mut self) {
        let Self {
            closing: dying,
            base,
            ..
        } = self;
        dying.retain(|(id, reason)| {
            let transport = base.transports.slot(id.index);
            if transport.interest & (RECEIVING | WRITABLE | CHANGES) != 0 {
                return true;
            }
            transport.socket = None;
            base.closed.push((*id, *reason));
            false
        });
    }

    /// Returns a transport by its index, if it has not ended.
    fn at(&mut self, index: u32) -> Option<(ConnectionId, &mut Transport)> {
        let id = self.base.transports.id(index);
        let transport = self.base.transports.live(id)?;
        Some((id, transport))
    }

    /// Returns the maximum duration of the next wait for completions in milliseconds; `None` if
    /// there is no limit.
    fn wait_ms(&self) -> Option<u64> {
        let is_busy = self.is_woken || !self.closing.is_empty() || !self.ready.is_empty();
        if is_busy {
            return Some(0);
        }
        self.base.wait_ms()
    }

    /// Takes all completions. Handles those of sends and polls immediately, and queues received
    /// bytes for delivery.
    fn collect(&mut self) {
        while let Some(done) = self.ring.next() {
            match done {
                Completion::Sent(id, sent, queue) => self.sent(id, sent, queue),
                Completion::Received(index, filled, has_more) => {
                    if !has_more {
                        let slot = self.base.transports.slot(index);
                        slot.interest &= !(RECEIVING | CANCELLING);
                    }
                    self.received(index, filled, has_more);
                }
                Completion::Readable(index) => {
                    let slot = self.base.transports.slot(index);
                    slot.interest &= !(RECEIVING | CANCELLING | POLLING);
                    self.disarmed(index);
                }
                Completion::Acceptable(listener) => {
                    let listener = ListenerId(listener);
                    self.watched.retain(|watched| *watched != listener);
                    self.ready.push_back(Ready::Listener(listener));
                }
                Completion::Writable(index) => {
                    self.base.transports.slot(index).interest &= !WRITABLE;
                    self.writable(index);
                }
                Completion::Changed(index, has_more) => {
                    if !has_more {
                        self.base.transports.slot(index).interest &= !CHANGES;
                    }
                    self.changed(index);
                }
                Completion::Missed(kind, index) => self.cancel_again(kind, index),
                Completion::Woken(has_more) => {
                    self.is_woken = true;
                    self.needs_wake_poll |= !has_more;
                }
            }
        }
    }

    /// Handles a cancellation that missed its operation. If the operation is still in flight, the
    /// kernel was processing it at that moment, and it is cancelled again.
    #[cold]
    fn cancel_again(&mut self, kind: OperationKind, index: u32) {
        let wanted = match kind {
            OperationKind::Receive | OperationKind::Readable => RECEIVING,
            OperationKind::Writable => WRITABLE,
            _ => CHANGES,
        };
        let slot = self.base.transports.slot(index);
        // The index may have been reused by another transport, which must not be cancelled.
        let is_ending = slot.state == TransportState::Closed || slot.interest & CANCELLING != 0;
        if is_ending && slot.interest & wanted != 0 {
            self.ring.cancel(kind, index);
        }
    }
}

impl Drop for Uring {
    /// Returns undelivered buffers to the ring. Otherwise the ring's memory would leak.
    fn drop(&mut self) {
        for ready in mem::take(&mut self.ready) {
            if let Ready::Transport(_, Some(filled)) = ready {
                self.ring.give_back(filled);
            }
        }
        let behind: Vec<u32> = self.later_parts.keys().copied().collect();
        behind
            .into_iter()
            .for_each(|index| self.drop_later_parts(index));
    }
}

impl SocketBackEnd for Uring {
    #[inline]
    fn base(&mut self) -> &mut DriverBase {
        &mut self.base
    }
}

impl AcceptBackEnd for Uring {
    /// Starts or stops watching a listener. A poll that is no longer wanted is not cancelled; when
    /// it completes, no connection is accepted.
    fn watch_listener(&mut self, id: ListenerId, is_wanted: bool) {
        if is_wanted && !self.watched.contains(&id) {
            self.watched.push(id);
            let socket = &self.base.listeners[id.0 as usize].socket;
            self.ring.poll_acceptable(id.0, socket);
        }
    }

    fn add_accepted(&mut self, socket: OwnedFd) -> ConnectionId {
        let id = self.base.transports.add(socket, TransportState::Open);
        self.arm(id, 0);
        id
    }
}

impl Driver for Uring {
    fn listen(&mut self, socket: OwnedFd) -> io::Result<ListenerId> {
        let id = self.add_listener(socket)?;
        self.update_listener(id);
        Ok(id)
    }

    fn pause_accept(&mut self, listener: ListenerId) {
        self.set_accepting(listener, false);
    }

    fn resume_accept(&mut self, listener: ListenerId) {
        self.set_accepting(listener, true);
    }

    fn connect_from(&mut self, addr: SocketAddr, from: Option<IpAddr>) -> io::Result<ConnectionId> {
        let (id, begun) = self.base.connect(addr, from)?;
        match begun {
            // The socket becomes writable when it is connected or the connect has failed.
            Ok(()) => self.watch_writable(id),
            Err(errno) => self.end(id, errno.into()),
        }
        Ok(id)
    }

    #[inline]
    fn send(&mut self, id: ConnectionId, buffer: Buffer, _more: bool) -> Option<Buffer> {
        self.send_buffer(id, buffer)
    }

    fn unsent(&self, id: ConnectionId) -> usize {
        self.base.unsent(id)
    }

    fn pause(&mut self, id: ConnectionId) {
        if let Some(transport) = self.base.transports.live(id)
            && !transport.paused
        {
            transport.paused = true;
            self.pausing.push(id);
        }
    }

    fn resume(&mut self, id: ConnectionId) {
        let Some(transport) = self.base.transports.live(id) else {
            return;
        };
        transport.paused = false;
        let is_armed = transport.interest & RECEIVING != 0 || transport.ended;
        if transport.interest & HAS_LATER_PARTS != 0 || !is_armed {
            self.queue_ready(id);
        }
    }

    fn shutdown(&mut self, id: ConnectionId) {
        self.shutdown_send(id);
    }

    fn close(&mut self, id: ConnectionId) {
        // Sends the bytes queued in this turn, such as a close frame or a TLS alert. With epoll,
        // they would already have been sent.
        self.send_now(id);
        self.end(id, CloseReason::Requested);
    }

    fn detach(&mut self, id: ConnectionId) -> Option<Detached> {
        self.reclaim(id)?;
        let received = self.take_unread(id);
        self.base.detach(id, received)
    }

    #[inline]
    fn set_timer(&mut self, id: ConnectionId, deadline_ms: u64) {
        self.base.set_timer(id, deadline_ms);
    }

    #[inline]
    fn clear_timer(&mut self, id: ConnectionId) {
        self.base.clear_timer(id);
    }

    fn waker(&self) -> Waker {
        self.base.waker.clone()
    }

    #[inline]
    fn now_ms(&self) -> u64 {
        self.base.now_ms
    }

    fn options(&self) -> &Options {
        &self.base.options
    }

    fn turn_within(
        &mut self,
        timeout: Option<Duration>,
        sink: &mut impl FnMut(&mut Self, DriverEvent<'_>),
    ) -> io::Result<()> {
        if mem::take(&mut self.needs_wake_poll) {
            self.ring.poll_wake(self.base.waker.eventfd());
        }
        self.stop_receiving();
        self.submit_sends()?;
        let own = self.wait_ms().map(Duration::from_millis);
        let timeout = own.into_iter().chain(timeout).min();
        self.ring.wait(timeout)?;
        self.base.now_ms = socket::now_ms();

        self.collect();
        self.reap_sends()?;
        if mem::take(&mut self.is_woken) {
            sink(self, DriverEvent::Woken);
        }
        self.serve(sink)?;
        self.retry_accept();
        self.fire_timers(sink);
        self.deliver_pending(sink);
        self.close_finished();
        self.deliver_closed(sink);
        Ok(())
    }
}
