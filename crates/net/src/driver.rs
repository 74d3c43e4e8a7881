//! The interface between a worker and its sockets.
//!
//! The trait permits both a readiness loop (epoll) and a completion loop (io_uring) without a difference to its users:
//! bytes are lent for one call, `send` takes the buffer and returns it when it is done, `close` is complete only with
//! [`DriverEvent::Closed`].

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use veche_types::ConnectionId;

use crate::{Buffer, Options, Waker};

/// Maximum number of bytes of one transport that [`DriverEvent::Received`] may still bring after [`Driver::pause`], because
/// the back end has them already. Epoll: none.
pub const RECEIVE_AFTER_PAUSE_MAX: usize = 64 * 1024;

/// A listening socket of a driver, numbered from 0 in the order of the [`Driver::listen`] calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListenerId(pub u32);

/// Why a transport ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CloseReason {
    /// The owner called [`Driver::close`].
    Requested,
    /// The peer reset the connection, or had closed it when data was sent.
    Reset,
    /// No process listens at the address of [`Driver::connect`].
    Refused,
    /// Connecting, a keep-alive probe or a retransmission timed out.
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

/// A connection detached from its driver; see [`Driver::detach`].
#[derive(Debug)]
pub struct Detached {
    /// The connected socket, non-blocking.
    pub socket: OwnedFd,
    /// Received bytes that were not delivered, in order.
    pub received: Vec<u8>,
    /// Bytes passed to `send` that the kernel has not taken, in order.
    pub unsent: Vec<u8>,
}

/// An event. For each transport `Accepted` or `Connected` comes first, and `Closed` last and exactly once; no
/// `Received` follows `Ended`; after a call of [`Driver::close`] only `Closed` follows.
#[derive(Debug)]
pub enum DriverEvent<'a> {
    /// A listener accepted a connection.
    Accepted {
        /// Id of the new transport.
        id: ConnectionId,
        /// The listener that accepted it.
        listener: ListenerId,
        /// Address of the peer, as seen by the kernel.
        peer: SocketAddr,
    },
    /// A listener can't accept connections because descriptors or memory have run out. It pauses and retries after
    /// [`Options::accept_retry_ms`]; this event is reported once for each attempt.
    AcceptStalled {
        /// Id of the paused listener.
        listener: ListenerId,
        /// The error of the operating system (EMFILE, ENFILE, ENOBUFS, ENOMEM).
        errno: i32,
    },
    /// A [`Driver::connect`] succeeded. (A failed one ends with `Closed`.)
    Connected {
        /// The id that `connect` returned.
        id: ConnectionId,
    },
    /// Received bytes, never empty.
    Received {
        /// Transport that received the bytes.
        id: ConnectionId,
        /// Lent for the call; the receiver may overwrite the bytes (unmask in place).
        bytes: &'a mut [u8],
    },
    /// The peer sent FIN: it will send no more, but may still receive.
    Ended {
        /// Transport that will receive no more.
        id: ConnectionId,
    },
    /// A buffer passed to [`Driver::send`] is complete: the kernel has accepted all of it. Buffers are returned in the
    /// order of the sends.
    Sent {
        /// Transport that the buffer was sent on.
        id: ConnectionId,
        /// The buffer as passed to `send`.
        buffer: Buffer,
    },
    /// [`Driver::unsent`] fell, but no buffer is complete and low water is not reached: a part of a large send went
    /// out. Reported at most once per attempt to send.
    Progressed {
        /// Transport that sent a part.
        id: ConnectionId,
    },
    /// [`Driver::unsent`] fell to or below [`Options::low_water_bytes`] after having been above it: once per crossing.
    Drained {
        /// Transport whose queue has fallen.
        id: ConnectionId,
    },
    /// The end of an id, which is free for reuse when the sink returns.
    Closed {
        /// Transport that has ended.
        id: ConnectionId,
        /// The reason of the end.
        reason: CloseReason,
    },
    /// The transport's timer reached its deadline and is no longer set.
    Timer {
        /// Transport whose timer fired.
        id: ConnectionId,
    },
    /// [`Waker::wake`] was called, once or more, since the last `Woken`.
    Woken,
}

/// The sockets and timers of a worker, owned by one thread.
///
/// Any call may be made from inside the sink of [`turn`](Self::turn), and none calls the sink: events caused by a call
/// come later in this turn or in the next, which then does not wait.
///
/// A call on an id that is stale, or whose `close` was called, does nothing: `send` returns the buffer, `unsent` is 0.
pub trait Driver: Sized {
    /// Takes over a listening socket (see [`bind`](crate::bind)) and starts to accept. The socket is made non-blocking.
    ///
    /// # Errors
    /// The registration failed.
    fn listen(&mut self, socket: OwnedFd) -> io::Result<ListenerId>;

    /// Stops accepting: new connections wait in the kernel's backlog.
    fn pause_accept(&mut self, listener: ListenerId);

    /// Resumes accepting after [`pause_accept`](Self::pause_accept).
    fn resume_accept(&mut self, listener: ListenerId);

    /// Opens a connection. `Connected` or `Closed` follows; sends before that are queued.
    ///
    /// # Errors
    /// No descriptor or memory for one more socket.
    fn connect(&mut self, addr: SocketAddr) -> io::Result<ConnectionId> {
        self.connect_from(addr, None)
    }

    /// Like [`connect`](Self::connect), from a given local address: each has its own ports towards `addr`.
    ///
    /// # Errors
    /// Those of `connect`, or `from` is not a local address.
    fn connect_from(&mut self, addr: SocketAddr, from: Option<IpAddr>) -> io::Result<ConnectionId>;

    /// Sends all of `buffer` after earlier sends. The buffer is returned immediately if all of it went out, otherwise
    /// with [`DriverEvent::Sent`]; after a `close` or an error it is dropped with the transport.
    ///
    /// `more` announces another `send` on `id` in this turn, so that the bytes may be held back and leave together in
    /// one system call. If no send follows, they leave at the beginning of the next turn.
    ///
    /// The queue is unbounded: the caller watches [`unsent`](Self::unsent).
    fn send(&mut self, id: ConnectionId, buffer: Buffer, more: bool) -> Option<Buffer>;

    /// Returns the number of bytes passed to `send` that the kernel has not taken yet.
    fn unsent(&self, id: ConnectionId) -> usize;

    /// Stops receiving; at most [`RECEIVE_AFTER_PAUSE_MAX`] bytes still come. A reset by the peer is noticed all the
    /// same.
    fn pause(&mut self, id: ConnectionId);

    /// Resumes receiving after [`pause`](Self::pause).
    fn resume(&mut self, id: ConnectionId);

    /// Sends FIN after the queued bytes; later sends do nothing. Receiving continues. When both sides have ended, the
    /// caller still has to call `close`.
    fn shutdown(&mut self, id: ConnectionId);

    /// Ends the transport at once: queued bytes are dropped, and undelivered bytes of the peer make the kernel answer
    /// with a reset. To let the peer read the last bytes: `shutdown`, wait for `Ended`, `close`.
    fn close(&mut self, id: ConnectionId);

    /// Takes the connection out of the driver to pass it on: the kernel holds no operation of it any more. The id ends
    /// as with [`close`](Self::close) while the connection stays open: its new owner reads and sends the bytes in
    /// [`Detached`] first. The peer's FIN stays on the socket; a `shutdown` that waits for queued bytes is forgotten.
    ///
    /// Returns `None` if it is not connected, has failed meanwhile (`Closed` says why), or has no descriptor
    /// ([`Simulated`]).
    ///
    /// [`Simulated`]: crate::Simulated
    fn detach(&mut self, id: ConnectionId) -> Option<Detached>;

    /// Sets the transport's only timer and replaces an earlier deadline. Timers fire in the order of their deadlines,
    /// never early; a deadline that is not in the future fires in the next millisecond.
    fn set_timer(&mut self, id: ConnectionId, deadline_ms: u64);

    /// Clears the transport's timer.
    fn clear_timer(&mut self, id: ConnectionId);

    /// Returns the waker, which ends this driver's wait from any thread.
    fn waker(&self) -> Waker;

    /// Returns the monotonic time in milliseconds, read once per turn, right after the wait.
    fn now_ms(&self) -> u64;

    /// Returns the options of the driver.
    fn options(&self) -> &Options;

    /// Waits once and delivers one batch: waits for events, at most `timeout_ms` (`None`: without limit; 0: not at
    /// all), then passes them to `sink`. Events beyond the limits of [`Options`] come in the next turn, round robin:
    /// each ready transport is served once before any is served twice, so one among `n` of them is served within `n /
    /// receives_max` turns and one more, however much the others send. (On io_uring the kernel itself serves 20 at a
    /// time, from Linux 6.13 on.) A transport is served once per turn, with less than two receives' worth of bytes.
    ///
    /// # Errors
    /// The wait itself failed: a bug or a closed descriptor, not a fault of a peer. A signal is no error: the turn ends
    /// early.
    fn turn(
        &mut self,
        timeout_ms: Option<u64>,
        sink: &mut impl FnMut(&mut Self, DriverEvent<'_>),
    ) -> io::Result<()> {
        self.turn_within(timeout_ms.map(Duration::from_millis), sink)
    }

    /// Like [`turn`](Self::turn), with a timeout of finer resolution than a millisecond, for senders at a fixed rate.
    /// May cost a second system call.
    ///
    /// # Errors
    /// Those of `turn`.
    fn turn_within(
        &mut self,
        timeout: Option<Duration>,
        sink: &mut impl FnMut(&mut Self, DriverEvent<'_>),
    ) -> io::Result<()>;
}
