//! Listeners: accepting in batches, pausing, and running out of descriptors.

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;

use super::{Epoll, INPUT, REGISTERED};
use crate::sys::epoll::EventFlags;
use crate::sys::socket;
use crate::transport::State;
use crate::{Event, ListenerId};

#[derive(Debug)]
pub(super) struct Listener {
    socket: OwnedFd,
    paused: bool,
    /// Set while descriptors or memory are short.
    retry_at_ms: Option<u64>,
}

impl Epoll {
    pub(super) fn add_listener(&mut self, socket: OwnedFd) -> io::Result<ListenerId> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        let id = ListenerId(self.listeners.len() as u32);
        self.poller.add(&socket, u64::from(id.0), EventFlags::IN)?;
        self.listeners.push(Listener {
            socket,
            paused: false,
            retry_at_ms: None,
        });
        Ok(id)
    }

    pub(super) fn set_accepting(&mut self, id: ListenerId, accepting: bool) {
        let Some(listener) = self.listeners.get_mut(id.0 as usize) else {
            return;
        };
        listener.paused = !accepting;
        self.watch_listener(id);
    }

    /// Tells epoll whether connections on a listener are of interest.
    fn watch_listener(&mut self, id: ListenerId) {
        let listener = &self.listeners[id.0 as usize];
        let wanted = !listener.paused && listener.retry_at_ms.is_none();
        let flags = if wanted {
            EventFlags::IN
        } else {
            EventFlags::empty()
        };
        let done = self.poller.modify(&listener.socket, u64::from(id.0), flags);
        debug_assert!(done.is_ok(), "a listener stays registered: {done:?}");
    }

    pub(super) fn accept(&mut self, id: ListenerId, sink: &mut impl FnMut(&mut Self, Event<'_>)) {
        for _ in 0..self.options.accepts_max {
            // The sink may pause the listener between two connections.
            let listener = &self.listeners[id.0 as usize];
            if listener.paused || listener.retry_at_ms.is_some() {
                return;
            }
            match socket::accept(&listener.socket) {
                Ok((socket, peer)) => {
                    let transport = self.transports.add(socket, State::Open);
                    self.set_interest(transport, REGISTERED | INPUT);
                    sink(
                        self,
                        Event::Accepted {
                            id: transport,
                            listener: id,
                            peer,
                        },
                    );
                }
                // Another process or worker was faster, or there is no more.
                Err(Errno::AGAIN) => return,
                Err(errno) if is_peers(errno) => {}
                Err(errno) => return self.stall(id, errno, sink),
            }
        }
    }

    /// Descriptors or memory are short: waiting connections would make a
    /// level-triggered loop spin, so the listener rests.
    #[cold]
    fn stall(&mut self, id: ListenerId, errno: Errno, sink: &mut impl FnMut(&mut Self, Event<'_>)) {
        let retry_at_ms = self.now_ms + self.options.accept_retry_ms;
        self.listeners[id.0 as usize].retry_at_ms = Some(retry_at_ms);
        self.stalled += 1;
        self.watch_listener(id);
        sink(
            self,
            Event::AcceptStalled {
                listener: id,
                errno: errno.raw_os_error(),
            },
        );
    }

    /// When the next stalled listener tries again.
    pub(super) fn next_accept_ms(&self) -> Option<u64> {
        self.listeners
            .iter()
            .filter_map(|listener| listener.retry_at_ms)
            .min()
    }

    pub(super) fn retry_accept(&mut self) {
        for index in 0..self.listeners.len() {
            let listener = &mut self.listeners[index];
            if listener
                .retry_at_ms
                .is_some_and(|at_ms| at_ms <= self.now_ms)
            {
                listener.retry_at_ms = None;
                self.stalled -= 1;
                self.watch_listener(ListenerId(index as u32));
            }
        }
    }
}

/// Errors of the one connection that was taken off the backlog: accept(2) says
/// to go on with the next.
fn is_peers(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::INTR
            | Errno::CONNABORTED
            | Errno::PERM
            | Errno::PROTO
            | Errno::NETDOWN
            | Errno::NOPROTOOPT
            | Errno::HOSTDOWN
            | Errno::NONET
            | Errno::HOSTUNREACH
            | Errno::OPNOTSUPP
            | Errno::NETUNREACH
    )
}
