//! The seam between a worker and its sockets.
//!
//! The trait is shaped so that a readiness loop (epoll) and a completion loop
//! (io_uring) can both stand behind it without anything above noticing: bytes
//! are lent for one call, `send` takes the buffer and gives it back when it is
//! done, `close` is finished only when [`Event::Closed`] says so.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use veche_types::ConnectionId;

use crate::{Buffer, Options, Waker};

/// Most bytes of one transport that [`Event::Received`] may still bring after
/// [`Driver::pause`]: what a back end has in its hands already. Epoll: none.
pub const RECEIVE_AFTER_PAUSE_MAX: usize = 64 * 1024;

/// A listening socket of one driver: 0, 1, 2… in the order of the
/// [`Driver::listen`] calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListenerId(pub u32);

/// Why a transport ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CloseReason {
    /// [`Driver::close`] was called.
    Requested,
    /// The peer reset the connection, or was gone when we sent.
    Reset,
    /// Nobody listens at the address of [`Driver::connect`].
    Refused,
    /// The network gave up: connect, keep-alive or retransmission timed out.
    TimedOut,
    /// Any other error of the operating system, by its number.
    Error(i32),
}

impl From<Errno> for CloseReason {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::CONNRESET | Errno::PIPE | Errno::CONNABORTED => Self::Reset,
            Errno::CONNREFUSED => Self::Refused,
            Errno::TIMEDOUT => Self::TimedOut,
            other => Self::Error(other.raw_os_error()),
        }
    }
}

/// A connection that has left its driver: see [`Driver::detach`].
#[derive(Debug)]
pub struct Detached {
    /// The connected socket, non-blocking.
    pub socket: OwnedFd,
    /// Bytes of the peer that nobody was told of, in order.
    pub received: Vec<u8>,
    /// Bytes given to `send` that the kernel has not taken, in order.
    pub unsent: Vec<u8>,
}

/// What happened. Of one transport: `Accepted` or `Connected` comes first,
/// `Closed` last and exactly once; after `Ended` comes no `Received`; after a
/// call of [`Driver::close`] comes nothing but `Closed`.
#[derive(Debug)]
pub enum Event<'a> {
    /// A listener took a connection.
    Accepted {
        /// The new transport.
        id: ConnectionId,
        /// Who took it.
        listener: ListenerId,
        /// The other side's address.
        peer: SocketAddr,
    },
    /// A listener cannot take connections because descriptors or memory ran
    /// out. It is paused and tries again by itself after
    /// [`Options::accept_retry_ms`]; this event comes once for each attempt.
    AcceptStalled {
        /// Who cannot accept.
        listener: ListenerId,
        /// What the operating system said (EMFILE, ENFILE, ENOBUFS, ENOMEM).
        errno: i32,
    },
    /// A [`Driver::connect`] succeeded. (A failed one ends with `Closed`.)
    Connected {
        /// The transport.
        id: ConnectionId,
    },
    /// Bytes of the peer, never empty.
    Received {
        /// The transport.
        id: ConnectionId,
        /// Lent for the call; the receiver may overwrite them (unmask in place).
        bytes: &'a mut [u8],
    },
    /// The peer sent FIN: it will send no more, but may still receive.
    Ended {
        /// The transport.
        id: ConnectionId,
    },
    /// A buffer that [`Driver::send`] kept is done with: all of it was handed
    /// to the kernel. Buffers come back in the order of the sends.
    Sent {
        /// The transport.
        id: ConnectionId,
        /// The buffer as it was given.
        buffer: Buffer,
    },
    /// [`Driver::unsent`] fell, but no buffer is done with and low water is not
    /// reached: a part of a large send went out. Once per attempt at most.
    Progressed {
        /// The transport.
        id: ConnectionId,
    },
    /// [`Driver::unsent`] fell to or below [`Options::low_water_bytes`] after
    /// having been above it: once per crossing.
    Drained {
        /// The transport.
        id: ConnectionId,
    },
    /// The end of an id, which is free for reuse when the sink returns.
    Closed {
        /// The transport.
        id: ConnectionId,
        /// Why.
        reason: CloseReason,
    },
    /// The transport's timer reached its deadline and is no longer set.
    Timer {
        /// The transport.
        id: ConnectionId,
    },
    /// Somebody called [`Waker::wake`], once or more, since the last `Woken`.
    Woken,
}

/// A worker's sockets and timers, one thread's own.
///
/// Any call may be made from inside the sink of [`turn`](Self::turn), and none
/// of them calls the sink: what a call causes comes as an event later in this
/// turn or in the next, which then does not wait.
///
/// A call on an id that is stale, or whose `close` was called, does nothing:
/// `send` gives the buffer back, `unsent` is 0.
pub trait Driver: Sized {
    /// Takes over a listening socket (see [`bind`](crate::bind)) and starts to
    /// accept. The socket is made non-blocking.
    ///
    /// # Errors
    /// What the operating system says about the registration.
    fn listen(&mut self, socket: OwnedFd) -> io::Result<ListenerId>;

    /// Stops accepting: new connections wait in the kernel's backlog.
    fn pause_accept(&mut self, listener: ListenerId);

    /// Accepts again after [`pause_accept`](Self::pause_accept).
    fn resume_accept(&mut self, listener: ListenerId);

    /// Opens a connection. `Connected` or `Closed` will tell how it went; what
    /// is sent before that waits.
    ///
    /// # Errors
    /// No descriptor or memory for one more socket.
    fn connect(&mut self, addr: SocketAddr) -> io::Result<ConnectionId> {
        self.connect_from(addr, None)
    }

    /// As [`connect`](Self::connect), from a local address of the caller's
    /// choice: each has ports of its own towards `addr`.
    ///
    /// # Errors
    /// As `connect`, and that `from` is not an address of this machine.
    fn connect_from(&mut self, addr: SocketAddr, from: Option<IpAddr>) -> io::Result<ConnectionId>;

    /// Sends all of `buffer` after what was sent before. The buffer comes back
    /// at once if all of it went out, else with [`Event::Sent`]; after a
    /// `close` or an error it is dropped with the transport.
    ///
    /// `more` promises another `send` on `id` in this turn, so the bytes may be
    /// held back and leave together with it in one system call. A promise that
    /// is not kept delays them until the next turn begins.
    ///
    /// Nothing limits what is queued: the caller watches
    /// [`unsent`](Self::unsent).
    fn send(&mut self, id: ConnectionId, buffer: Buffer, more: bool) -> Option<Buffer>;

    /// Bytes given to `send` that the kernel has not taken yet.
    fn unsent(&self, id: ConnectionId) -> usize;

    /// Stops receiving; at most [`RECEIVE_AFTER_PAUSE_MAX`] bytes still come.
    /// A reset by the peer is noticed all the same.
    fn pause(&mut self, id: ConnectionId);

    /// Receives again after [`pause`](Self::pause).
    fn resume(&mut self, id: ConnectionId);

    /// Sends FIN after what is queued; later sends do nothing. Receiving goes
    /// on. When both sides have ended, `close` is still the caller's to call.
    fn shutdown(&mut self, id: ConnectionId);

    /// Ends the transport at once: what is queued is dropped, and bytes of the
    /// peer that nobody received make the kernel answer with a reset. To let
    /// the peer read the last words: `shutdown`, wait for `Ended`, `close`.
    fn close(&mut self, id: ConnectionId);

    /// Takes the connection out of the driver, to be handed to somebody else: nothing of it is in the kernel's hands any
    /// more. The id ends as with [`close`](Self::close), the connection goes on: who has it reads and sends what is in
    /// [`Detached`] first. The peer's FIN stays on the socket; a `shutdown` that waited for what is queued is forgotten.
    ///
    /// `None`: it is not connected, has failed meanwhile (`Closed` says why), or has no descriptor ([`Simulated`]).
    ///
    /// [`Simulated`]: crate::Simulated
    fn detach(&mut self, id: ConnectionId) -> Option<Detached>;

    /// Sets the transport's one timer, in place of an earlier deadline.
    /// Timers fire in the order of their deadlines, never early; a deadline
    /// that is not in the future fires in the next millisecond.
    fn set_timer(&mut self, id: ConnectionId, deadline_ms: u64);

    /// Unsets the transport's timer.
    fn clear_timer(&mut self, id: ConnectionId);

    /// What ends this driver's wait from any thread.
    fn waker(&self) -> Waker;

    /// Monotonic milliseconds, stamped once per turn, right after the wait.
    fn now_ms(&self) -> u64;

    /// What the driver was made with.
    fn options(&self) -> &Options;

    /// One wait and one batch: waits until something happens, at most
    /// `timeout_ms` (`None`: without limit; 0: not at all), then tells `sink`
    /// what did. What exceeds the limits of [`Options`] comes next turn, round
    /// robin: each transport that has something is served once before any is
    /// served twice, so among `n` of them one is told of within
    /// `n / receives_max` turns and one more, however much the others send.
    /// (On io_uring the kernel itself tells of 20 at a time, from Linux 6.13 on.)
    /// In a turn a transport is served once, with less than two receives' worth
    /// of bytes.
    ///
    /// # Errors
    /// The wait itself failed: a bug or a closed descriptor, not a peer's
    /// doing. A signal is no error: the turn ends early.
    fn turn(
        &mut self,
        timeout_ms: Option<u64>,
        sink: &mut impl FnMut(&mut Self, Event<'_>),
    ) -> io::Result<()> {
        self.turn_within(timeout_ms.map(Duration::from_millis), sink)
    }

    /// As [`turn`](Self::turn), with a timeout that may be finer than a
    /// millisecond, for senders that keep a rate. May cost a second system call.
    ///
    /// # Errors
    /// As `turn`.
    fn turn_within(
        &mut self,
        timeout: Option<Duration>,
        sink: &mut impl FnMut(&mut Self, Event<'_>),
    ) -> io::Result<()>;
}
