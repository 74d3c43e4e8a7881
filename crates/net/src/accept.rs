//! Accepts connections in batches, pauses listeners, and backs off when descriptors have run out.
//! Shared by all socket back ends.

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;

use crate::base::SocketBackEnd;
use crate::sys::socket;
use crate::{ConnectionId, DriverEvent, ListenerId};

#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) socket: OwnedFd,
    is_paused: bool,
}

/// A back end that is notified of waiting connections.
pub(crate) trait AcceptBackEnd: SocketBackEnd {
    /// Starts or stops watching a listener for waiting connections.
    fn watch_listener(&mut self, id: ListenerId, is_wanted: bool);

    /// Registers an accepted connection.
    fn add_accepted(&mut self, socket: OwnedFd) -> ConnectionId;

    fn add_listener(&mut self, socket: OwnedFd) -> io::Result<ListenerId> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        let listeners = &mut self.base().listeners;
        listeners.push(Listener {
            socket,
            is_paused: false,
        });
        Ok(ListenerId(listeners.len() as u32 - 1))
    }

    fn is_accepting(&mut self, id: ListenerId) -> bool {
        let base = self.base();
        !base.listeners[id.0 as usize].is_paused && !base.is_backing_off(id)
    }

    fn set_accepting(&mut self, id: ListenerId, accepting: bool) {
        if let Some(listener) = self.base().listeners.get_mut(id.0 as usize) {
            listener.is_paused = !accepting;
            self.update_listener(id);
        }
    }

    fn update_listener(&mut self, id: ListenerId) {
        let is_wanted = self.is_accepting(id);
        self.watch_listener(id, is_wanted);
    }

    /// Accepts waiting connections up to the limit of a turn.
    fn accept(&mut self, id: ListenerId, sink: &mut impl FnMut(&mut Self, DriverEvent<'_>)) {
        for _ in 0..self.base().options.accepts_max {
            // The sink may have paused the listener after the previous connection.
            if !self.is_accepting(id) {
                return;
            }
            match socket::accept(&self.base().listeners[id.0 as usize].socket) {
                Ok((socket, peer)) => {
                    let transport = self.add_accepted(socket);
                    let event = DriverEvent::Accepted {
                        id: transport,
                        listener: id,
                        peer,
                    };
                    sink(self, event);
                }
                // No more connections are waiting, or another process or worker has accepted them.
                Err(Errno::AGAIN) => return,
                Err(errno) if is_connection_error(errno) => {}
                Err(errno) => return self.stall(id, errno, sink),
            }
        }
    }

    /// Backs off because descriptors or memory have run out.
    #[cold]
    fn stall(
        &mut self,
        id: ListenerId,
        errno: Errno,
        sink: &mut impl FnMut(&mut Self, DriverEvent<'_>),
    ) {
        self.base().back_off(id);
        self.update_listener(id);
        let event = DriverEvent::AcceptStalled {
            listener: id,
            errno: errno.raw_os_error(),
        };
        sink(self, event);
    }

    fn retry_accept(&mut self) {
        while let Some(id) = self.base().next_listener_to_retry() {
            self.update_listener(id);
        }
    }
}

/// Returns whether an error concerns only the connection that was taken off the backlog. According
/// to accept(2), the next connection should then be accepted.
fn is_connection_error(errno: Errno) -> bool {
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
