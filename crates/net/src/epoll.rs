//! The portable back end: level-triggered epoll.
//!
//! One `epoll_wait` returns a batch of ready sockets. Serving a ready transport costs one system
//! call, and so does a send that fits into the socket's buffer. Because epoll is level-triggered,
//! readiness that a turn did not handle is reported again, and the kernel reports sockets round
//! robin. Interest is changed lazily: a `pause` costs a system call only if bytes arrive before
//! `resume`.
//!
//! The back end passes bytes to the sink without interpreting them.

mod lifecycle;
mod queued;

use std::io;
use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;

use crate::accept::AcceptBackEnd;
use crate::base::{DriverBase, SocketBackEnd};
use crate::sys::epoll::{Event as Ready, EventFlags, Poller};
use crate::sys::socket;
use crate::transport::{Fin, TransportState};
use crate::{
    Buffer, CloseReason, ConnectionId, Detached, Driver, DriverEvent, ListenerId, Options, Waker,
};

/// Bits of `Transport::interest`. `REGISTERED`: the socket is registered with epoll. `INPUT` and
/// `OUTPUT`: the events of interest.
const REGISTERED: u8 = 1;
const INPUT: u8 = 2;
const OUTPUT: u8 = 4;

const READABLE: EventFlags = EventFlags::IN.union(EventFlags::ERR).union(EventFlags::HUP);

/// Maximum number of send queues kept for reuse. Usually only slow readers need one.
const SPARE_QUEUES_MAX: usize = 64;

/// The tag of the waker. Tags with generation 0 do not belong to transports.
const TAG_WAKER: u32 = u32::MAX;

fn tag(id: ConnectionId) -> u64 {
    u64::from(id.generation) << 32 | u64::from(id.index)
}

fn flags(interest: u8) -> EventFlags {
    let mut flags = EventFlags::empty();
    flags.set(EventFlags::IN, interest & INPUT != 0);
    flags.set(EventFlags::OUT, interest & OUTPUT != 0);
    flags
}

/// A [`Driver`] on epoll.
pub struct Epoll {
    base: DriverBase,
    poller: Poller,
    events: Vec<Ready>,
    receive: Box<[u8]>,
    /// Transports that hold bytes back because `more` was announced.
    held: Vec<ConnectionId>,
}

impl Epoll {
    /// Creates a driver without sockets.
    ///
    /// # Errors
    /// No descriptor is left for the epoll instance or the eventfd.
    pub fn new(options: Options) -> io::Result<Self> {
        let poller = Poller::new()?;
        let base = DriverBase::new(options, SPARE_QUEUES_MAX)?;
        // The waker is registered edge-triggered, so each wake is reported once and the eventfd
        // need not be read.
        poller.add(
            base.waker.eventfd(),
            u64::from(TAG_WAKER),
            EventFlags::IN | EventFlags::ET,
        )?;
        let options = &base.options;
        Ok(Self {
            poller,
            events: Vec::with_capacity(options.receives_max.max(1)),
            receive: vec![0; options.receive_bytes.max(1)].into_boxed_slice(),
            held: Vec::new(),
            base,
        })
    }

    /// Updates the registered interest of a live transport if it has changed.
    fn set_interest(&mut self, id: ConnectionId, interest: u8) {
        let Some(transport) = self.base.transports.live(id) else {
            return;
        };
        let before = mem::replace(&mut transport.interest, interest);
        if before == interest {
            return;
        }
        let socket = transport
            .socket
            .as_ref()
            .expect("a transport in use must have a socket");
        let done = if interest & REGISTERED == 0 {
            self.poller.delete(socket)
        } else if before & REGISTERED == 0 {
            self.poller.add(socket, tag(id), flags(interest))
        } else {
            self.poller.modify(socket, tag(id), flags(interest))
        };
        if let Err(errno) = done {
            self.end(id, errno.into());
        }
    }

    /// Ends a live transport.
    #[cold]
    fn end(&mut self, id: ConnectionId, reason: CloseReason) {
        let Some(transport) = self.base.transports.live(id) else {
            return;
        };
        transport.state = TransportState::Closed;
        let queue = transport.queue.take();
        if let Some(socket) = transport.socket.take()
            && transport.interest & REGISTERED != 0
        {
            // The registration is removed explicitly, since a duplicate of the descriptor in
            // another process would keep it alive after the close. The call fails only if there is
            // no registration.
            let _ = self.poller.delete(&socket);
        }
        self.base.wheel.clear(&mut self.base.transports, id.index);
        if let Some(queue) = queue {
            self.base.queues.give(queue);
        }
        self.base.closed.push((id, reason));
    }

    #[inline]
    fn ready(
        &mut self,
        ready: Ready,
        bytes: &mut [u8],
        sink: &mut impl FnMut(&mut Self, DriverEvent<'_>),
    ) {
        let tag = ready.data.u64();
        let id = ConnectionId {
            index: tag as u32,
            generation: (tag >> 32) as u32,
        };
        if id.generation != 0 {
            self.transport_ready(id, ready.flags, bytes, sink);
        } else if id.index == TAG_WAKER {
            sink(self, DriverEvent::Woken);
        } else {
            self.accept(ListenerId(id.index), sink);
        }
    }

    #[inline]
    fn transport_ready(
        &mut self,
        id: ConnectionId,
        flags: EventFlags,
        bytes: &mut [u8],
        sink: &mut impl FnMut(&mut Self, DriverEvent<'_>),
    ) {
        // An earlier event of the batch may have closed the transport.
        let Some(transport) = self.base.transports.live(id) else {
            return;
        };
        if transport.state == TransportState::Connecting {
            return self.connect_ready(id, sink);
        }
        if flags.intersects(READABLE) {
            if transport.paused || transport.ended {
                self.unreadable_ready(id, flags);
            } else {
                let socket = transport
                    .socket
                    .as_ref()
                    .expect("a transport in use must have a socket");
                match socket::receive(socket, bytes) {
                    Ok(0) => self.peer_ended(id, sink),
                    Ok(count) => {
                        let bytes = &mut bytes[..count];
                        sink(self, DriverEvent::Received { id, bytes });
                    }
                    Err(Errno::AGAIN | Errno::INTR) => {}
                    Err(errno) => self.end(id, errno.into()),
                }
            }
        }
        if flags.contains(EventFlags::OUT) {
            self.writable(id);
        }
    }
}

impl SocketBackEnd for Epoll {
    #[inline]
    fn base(&mut self) -> &mut DriverBase {
        &mut self.base
    }
}

impl AcceptBackEnd for Epoll {
    fn watch_listener(&mut self, id: ListenerId, is_wanted: bool) {
        let mut flags = EventFlags::empty();
        flags.set(EventFlags::IN, is_wanted);
        let socket = &self.base.listeners[id.0 as usize].socket;
        let done = self.poller.modify(socket, u64::from(id.0), flags);
        debug_assert!(
            done.is_ok(),
            "it must be possible to change the events of a registered listener: {done:?}"
        );
    }

    fn add_accepted(&mut self, socket: OwnedFd) -> ConnectionId {
        let id = self.base.transports.add(socket, TransportState::Open);
        self.set_interest(id, REGISTERED | INPUT);
        id
    }
}

impl Driver for Epoll {
    fn listen(&mut self, socket: OwnedFd) -> io::Result<ListenerId> {
        let id = ListenerId(self.base.listeners.len() as u32);
        self.poller.add(&socket, u64::from(id.0), EventFlags::IN)?;
        self.add_listener(socket)
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
            Ok(()) => self.set_interest(id, REGISTERED | OUTPUT),
            Err(errno) => self.end(id, errno.into()),
        }
        Ok(id)
    }

    #[inline]
    fn send(&mut self, id: ConnectionId, buffer: Buffer, more: bool) -> Option<Buffer> {
        let Some(transport) = self.base.transports.live(id) else {
            return Some(buffer);
        };
        if transport.fin != Fin::None {
            return Some(buffer);
        }
        if more || transport.queue.is_some() || transport.state != TransportState::Open {
            return self.send_queued(id, buffer, more);
        }
        if buffer.is_empty() {
            return Some(buffer);
        }
        let socket = transport
            .socket
            .as_ref()
            .expect("a transport in use must have a socket");
        let sent = match socket::send_one(socket, buffer.as_slice()) {
            Ok(count) if count == buffer.len() => return Some(buffer),
            Ok(count) => count,
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Err(errno) => {
                self.end(id, errno.into());
                return Some(buffer);
            }
        };
        self.send_rest(id, buffer, sent);
        None
    }

    fn unsent(&self, id: ConnectionId) -> usize {
        self.base.unsent(id)
    }

    fn pause(&mut self, id: ConnectionId) {
        if let Some(transport) = self.base.transports.live(id) {
            transport.paused = true;
        }
    }

    fn resume(&mut self, id: ConnectionId) {
        let Some(transport) = self.base.transports.live(id) else {
            return;
        };
        transport.paused = false;
        if transport.state == TransportState::Open && !transport.ended {
            let interest = transport.interest | REGISTERED | INPUT;
            self.set_interest(id, interest);
        }
    }

    fn shutdown(&mut self, id: ConnectionId) {
        self.shutdown_send(id);
    }

    fn close(&mut self, id: ConnectionId) {
        self.end(id, CloseReason::Requested);
    }

    fn detach(&mut self, id: ConnectionId) -> Option<Detached> {
        let transport = self.base.transports.live(id)?;
        if transport.state != TransportState::Open {
            return None;
        }
        self.set_interest(id, 0);
        self.base.detach(id, Vec::new())
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
        self.flush_held();
        let own = self.base.wait_ms().map(Duration::from_millis);
        let timeout = own.into_iter().chain(timeout).min();
        match self.poller.wait(&mut self.events, timeout) {
            Ok(()) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        self.base.now_ms = socket::now_ms();

        // The sink borrows `self` and the buffer at the same time, so the buffer is taken out for
        // the batch.
        let mut bytes = mem::take(&mut self.receive);
        let mut events = mem::take(&mut self.events);
        for ready in events.drain(..) {
            self.ready(ready, &mut bytes, sink);
        }
        self.events = events;
        self.receive = bytes;

        self.retry_accept();
        self.fire_timers(sink);
        self.deliver_pending(sink);
        self.deliver_closed(sink);
        Ok(())
    }
}
