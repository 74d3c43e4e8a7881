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
}

impl Epoll {
    pub(super) fn add_listener(&mut self, socket: OwnedFd) -> io::Result<ListenerId> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        let id = ListenerId(self.listeners.len() as u32);
        self.poller.add(&socket, u64::from(id.0), EventFlags::IN)?;
        self.listeners.push(Listener {
            socket,
            paused: false,
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
        let wanted = !listener.paused && !self.base.is_resting(id);
        let flags = if wanted {
            EventFlags::IN
        } else {
            EventFlags::empty()
        };
        let done = self.poller.modify(&listener.socket, u64::from(id.0), flags);
        debug_assert!(done.is_ok(), "a listener stays registered: {done:?}");
    }

    pub(super) fn accept(&mut self, id: ListenerId, sink: &mut impl FnMut(&mut Self, Event<'_>)) {
        for _ in 0..self.base.options.accepts_max {
            // The sink may pause the listener between two connections.
            let listener = &self.listeners[id.0 as usize];
            if listener.paused || self.base.is_resting(id) {
                return;
            }
            match socket::accept(&listener.socket) {
                Ok((socket, peer)) => {
                    let transport = self.base.transports.add(socket, State::Open);
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
                Err(errno) if socket::is_peers(errno) => {}
                Err(errno) => return self.stall(id, errno, sink),
            }
        }
    }

    #[cold]
    fn stall(&mut self, id: ListenerId, errno: Errno, sink: &mut impl FnMut(&mut Self, Event<'_>)) {
        self.base.rest(id);
        self.watch_listener(id);
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
            self.watch_listener(id);
        }
    }
}
