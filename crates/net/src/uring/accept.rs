//! Listeners: connections as they come, pausing, and running out of descriptors.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;

use super::Uring;
use super::receive::Arrived;
use crate::sys::socket;
use crate::sys::uring::Kind;
use crate::transport::State;
use crate::{Event, ListenerId, TransportId};

#[derive(Debug)]
pub(super) struct Listener {
    socket: OwnedFd,
    is_paused: bool,
    /// Connections are asked for.
    is_accepting: bool,
    /// That is being cancelled.
    is_cancelling: bool,
    /// Those that came while it was paused.
    kept: VecDeque<OwnedFd>,
}

impl Uring {
    pub(super) fn add_listener(&mut self, socket: OwnedFd) -> io::Result<ListenerId> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        let id = ListenerId(self.listeners.len() as u32);
        self.listeners.push(Listener {
            socket,
            is_paused: false,
            is_accepting: false,
            is_cancelling: false,
            kept: VecDeque::new(),
        });
        self.ask_for_connections(id);
        Ok(id)
    }

    /// Asks the kernel for connections of a listener, if they are wanted and it does not do so already.
    pub(super) fn ask_for_connections(&mut self, id: ListenerId) {
        let listener = &mut self.listeners[id.0 as usize];
        let is_wanted = !listener.is_paused && !self.base.is_resting(id);
        if is_wanted && !listener.is_accepting {
            listener.is_accepting = true;
            self.ring.accept(id.0, &listener.socket);
        }
    }

    pub(super) fn set_accepting(&mut self, id: ListenerId, accepting: bool) {
        let Some(listener) = self.listeners.get_mut(id.0 as usize) else {
            return;
        };
        listener.is_paused = !accepting;
        if accepting {
            for socket in listener.kept.drain(..) {
                self.arrived.push_back(Arrived::Connection(id, socket));
            }
            self.ask_for_connections(id);
        } else if listener.is_accepting && !listener.is_cancelling {
            listener.is_cancelling = true;
            self.ring.cancel(Kind::Accept, id.0);
        }
    }

    pub(super) fn cancel_accept_again(&mut self, index: u32) {
        let listener = &self.listeners[index as usize];
        if listener.is_accepting && listener.is_cancelling {
            self.ring.cancel(Kind::Accept, index);
        }
    }

    /// The kernel has taken a connection, or says why there is none.
    pub(super) fn accepted(
        &mut self,
        id: ListenerId,
        socket: Result<OwnedFd, Errno>,
        has_more: bool,
    ) {
        let listener = &mut self.listeners[id.0 as usize];
        if !has_more {
            listener.is_accepting = false;
            listener.is_cancelling = false;
        }
        match socket {
            Ok(socket) => self.arrived.push_back(Arrived::Connection(id, socket)),
            // Cancelled, or an error of the one connection that was taken off the backlog.
            Err(errno) if errno == Errno::CANCELED || socket::is_peers(errno) => {}
            Err(errno) => self.arrived.push_back(Arrived::Shortage(id, errno)),
        }
        if !has_more {
            // One that ended by itself goes on, behind what it has brought.
            self.arrived.push_back(Arrived::Accepting(id));
        }
    }

    /// Tells of a connection, unless its listener is paused.
    pub(super) fn tell_connection(
        &mut self,
        listener: ListenerId,
        socket: OwnedFd,
        sink: &mut impl FnMut(&mut Self, Event<'_>),
    ) {
        let own = &mut self.listeners[listener.0 as usize];
        if own.is_paused {
            own.kept.push_back(socket);
            return;
        }
        let peer = socket::peer_of(&socket);
        let id: TransportId = self.base.transports.add(socket, State::Open);
        self.start_receiving(id);
        sink(self, Event::Accepted { id, listener, peer });
    }

    /// Descriptors or memory are short: the listener rests.
    #[cold]
    pub(super) fn stall(
        &mut self,
        id: ListenerId,
        errno: Errno,
        sink: &mut impl FnMut(&mut Self, Event<'_>),
    ) {
        // An attempt that was under way when it was paused.
        if self.listeners[id.0 as usize].is_paused {
            return;
        }
        self.base.rest(id);
        sink(
            self,
            Event::AcceptStalled {
                listener: id,
                errno: errno.raw_os_error(),
            },
        );
    }

    pub(super) fn retry_accept(&mut self) {
        while let Some(id) = self.base.next_rested() {
            self.ask_for_connections(id);
        }
    }
}
