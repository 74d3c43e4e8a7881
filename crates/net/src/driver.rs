//! The interface between a worker and its sockets.
//!
//! The trait permits both a readiness loop (epoll) and a completion loop (io_uring) without a
//! difference to its users: received bytes are borrowed for one call, `send` takes ownership of the
//! buffer and returns it when the send is complete, and `close` is complete only with
//! [`DriverEvent::Closed`].

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use veche_types::ConnectionId;

use crate::{Buffer, Options, Waker};

/// Maximum number of bytes of one transport that [`DriverEvent::Received`] may still deliver after
/// [`Driver::pause`], because the back end has already received them. Epoll delivers none.
pub const RECEIVE_AFTER_PAUSE_MAX: usize = 64 * 1024;

/// A listening socket of a driver, numbered from 0 in the order of the [`Driver::listen`] calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListenerId(pub u32);

/// Why a transport ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CloseReason {
    /// The owner called [`Driver::close`].
    Requested,
    /// The peer reset the connection, or had already closed it when data was sent.
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
    /// Bytes passed to `send` that the kernel has not accepted, in order.
    pub unsent: Vec<u8>,
}

/// An event. The first event of a transport is `Accepted` or `Connected`, unless a connect fails.
/// The last one is `Closed`, which is delivered exactly once. No `Received` follows `Ended`. After
/// a call of [`Driver::close`], only `Closed` follows.
#[derive(Debug)]
pub enum DriverEvent<'a> {
    /// A listener accepted a connection.
    Accepted {
        /// Id of the new transport.
        id: ConnectionId,
        /// The listener that accepted the connection.
        listener: ListenerId,
        /// Address of the peer, as seen by the kernel.
        peer: SocketAddr,
    },
    /// A listener can't accept connections because descriptors or memory have run out. It pauses
    /// and retries after [`Options::accept_retry_ms`]. The event is reported for each failed
    /// attempt.
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
        /// The bytes, borrowed for this call. The receiver may overwrite them, for example to
        /// unmask them in place.
        bytes: &'a mut [u8],
    },
    /// The peer sent FIN, so it sends no more data. It may still receive.
    Ended {
        /// Transport whose peer has sent FIN.
        id: ConnectionId,
    },
    /// A buffer passed to [`Driver::send`] is complete, because the kernel has accepted all of it.
    /// Buffers are returned in the order in which they were sent.
    Sent {
        /// Transport on which the buffer was sent.
        id: ConnectionId,
        /// The buffer as passed to `send`.
        buffer: Buffer,
    },
    /// A part of a large send was accepted: [`Driver::unsent`] fell, but no buffer is complete and
    /// the low-water mark is not reached. Reported at most once per attempt to send.
    Progressed {
        /// Transport that sent a part.
        id: ConnectionId,
    },
    /// [`Driver::unsent`] fell from above [`Options::low_water_bytes`] to this value or below it.
    /// Reported once per crossing.
    Drained {
        /// Transport whose number of unsent bytes has fallen.
        id: ConnectionId,
    },
    /// The transport has ended. Its id may be reused after the sink returns.
    Closed {
        /// Transport that has ended.
        id: ConnectionId,
        /// Why the transport has ended.
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
/// The sink of [`turn`](Self::turn) may call all other methods, which never call the sink
/// themselves. Events caused by such a call are delivered later in this turn, or in the next turn,
/// which then does not wait.
///
/// A call with a stale id, or with an id that was passed to `close`, has no effect: `send` returns
/// the buffer, and `unsent` returns 0.
pub trait Driver: Sized {
    /// Takes ownership of a listening socket (see [`bind`](crate::bind)) and starts to accept
    /// connections. Makes the socket non-blocking.
    ///
    /// # Errors
    /// The socket can't be registered with the kernel.
    fn listen(&mut self, socket: OwnedFd) -> io::Result<ListenerId>;

    /// Stops accepting. New connections wait in the kernel's backlog.
    fn pause_accept(&mut self, listener: ListenerId);

    /// Resumes accepting after [`pause_accept`](Self::pause_accept).
    fn resume_accept(&mut self, listener: ListenerId);

    /// Opens a connection. `Connected` or `Closed` follows; sends before that are queued.
    ///
    /// # Errors
    /// There is no descriptor or memory left for another socket.
    fn connect(&mut self, addr: SocketAddr) -> io::Result<ConnectionId> {
        self.connect_from(addr, None)
    }

    /// Like [`connect`](Self::connect), but from a given local address. Each local address has its
    /// own range of ports.
    ///
    /// # Errors
    /// Those of `connect`, or `from` is not a local address.
    fn connect_from(&mut self, addr: SocketAddr, from: Option<IpAddr>) -> io::Result<ConnectionId>;

    /// Sends all of `buffer` after earlier sends. The buffer is returned immediately if the kernel
    /// accepts all of it, otherwise by [`DriverEvent::Sent`]. After a `close` or an error, it is
    /// dropped with the transport.
    ///
    /// `more` announces another `send` on `id` in this turn, so that the bytes may be held back and
    /// sent together in one system call. If no other send follows, they are sent at the beginning
    /// of the next turn.
    ///
    /// The queue is unbounded, so the caller must check [`unsent`](Self::unsent).
    fn send(&mut self, id: ConnectionId, buffer: Buffer, more: bool) -> Option<Buffer>;

    /// Returns the number of bytes passed to `send` that the kernel has not taken yet.
    fn unsent(&self, id: ConnectionId) -> usize;

    /// Stops receiving. At most [`RECEIVE_AFTER_PAUSE_MAX`] bytes are still delivered. A reset by
    /// the peer is still reported.
    fn pause(&mut self, id: ConnectionId);

    /// Resumes receiving after [`pause`](Self::pause).
    fn resume(&mut self, id: ConnectionId);

    /// Sends FIN after the queued bytes. Later sends have no effect. Receiving continues. The
    /// caller must call `close` even after both sides have ended.
    fn shutdown(&mut self, id: ConnectionId);

    /// Ends the transport immediately and drops queued bytes. If the peer has sent bytes that were
    /// not read, the kernel resets the connection. To let the peer read the last bytes, call
    /// `shutdown`, wait for `Ended`, then call `close`.
    fn close(&mut self, id: ConnectionId);

    /// Removes the connection from the driver, so that it can be passed to another owner. No
    /// operation on its socket remains in the kernel. The id ends as with [`close`](Self::close),
    /// but the connection stays open. The new owner must first process the received bytes and send
    /// the unsent bytes of [`Detached`]. The new owner still sees a FIN of the peer, but a
    /// `shutdown` that waits for queued bytes is lost.
    ///
    /// Returns `None` if the transport is not connected, has failed (`Closed` states why), or has
    /// no descriptor ([`Simulated`]).
    ///
    /// [`Simulated`]: crate::Simulated
    fn detach(&mut self, id: ConnectionId) -> Option<Detached>;

    /// Sets the transport's only timer and replaces an earlier deadline. Timers fire in the order
    /// of their deadlines, and never early. If the deadline is not in the future, the timer fires
    /// in the next millisecond.
    fn set_timer(&mut self, id: ConnectionId, deadline_ms: u64);

    /// Clears the transport's timer.
    fn clear_timer(&mut self, id: ConnectionId);

    /// Returns the waker, by which any thread can end this driver's wait.
    fn waker(&self) -> Waker;

    /// Returns the monotonic time in milliseconds. The clock is read once per turn, immediately
    /// after the wait.
    fn now_ms(&self) -> u64;

    /// Returns the options of the driver.
    fn options(&self) -> &Options;

    /// Waits for events, at most `timeout_ms` (`None`: without limit; 0: not at all), and passes
    /// one batch of events to `sink`. Events beyond the limits of [`Options`] are delivered in the
    /// next turn. Ready transports are served round robin: each is served once before any is served
    /// twice. Each of `n` ready transports is therefore served within `n / receives_max + 1` turns,
    /// however much the others send. (On io_uring with Linux 6.13 or later, the kernel itself
    /// serves 20 transports at a time.) A turn serves a transport at most once, and delivers fewer
    /// of its bytes than fill two receive buffers.
    ///
    /// # Errors
    /// The wait itself failed, because of a bug or a closed descriptor, never because of a peer. A
    /// signal is not an error; it ends the turn early.
    fn turn(
        &mut self,
        timeout_ms: Option<u64>,
        sink: &mut impl FnMut(&mut Self, DriverEvent<'_>),
    ) -> io::Result<()> {
        self.turn_within(timeout_ms.map(Duration::from_millis), sink)
    }

    /// Like [`turn`](Self::turn), but the timeout has a finer resolution than a millisecond, for
    /// callers that send at a fixed rate. May cost a second system call.
    ///
    /// # Errors
    /// Those of `turn`.
    fn turn_within(
        &mut self,
        timeout: Option<Duration>,
        sink: &mut impl FnMut(&mut Self, DriverEvent<'_>),
    ) -> io::Result<()>;
}
