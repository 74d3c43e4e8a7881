//! What comes of the kernel by itself: connections and bytes.

use std::collections::VecDeque;
use std::io;
use std::mem;

use rustix::io::Errno;

use super::{CANCELLING, CHANGES, KEEPING, RECEIVING, Uring};
use crate::accept::Accepts as _;
use crate::base::BackEnd as _;
use crate::sys::socket;
use crate::sys::uring::{Filled, Kind};
use crate::transport::State;
use crate::{ConnectionId, Event, ListenerId};

/// Bytes to send that don't wait for the turn's end: they would drive each other out of the core's cache.
const UNSENT_MAX: usize = 128 * 1024;
/// What one that had found no room is supposed to take, in bytes.
const HELPING: usize = 8 * 1024;

/// Something the sink is to be told in its turn.
#[derive(Debug)]
pub(super) enum Arrived {
    /// Some wait on a listener.
    Connections(ListenerId),
    /// One of ours is connected.
    Connected(ConnectionId),
    Bytes(ConnectionId, Filled),
    /// The peer's FIN.
    End(ConnectionId),
    /// The connection is broken; what came before is told first.
    Failed(ConnectionId, Errno),
}

impl Uring {
    /// Asks for the bytes of a transport, if nobody has.
    pub(super) fn start_receiving(&mut self, id: ConnectionId) {
        let Some(transport) = self.base.transports.live(id) else {
            return;
        };
        if transport.interest & RECEIVING != 0 || transport.ended || transport.state != State::Open
        {
            return;
        }
        transport.interest |= RECEIVING;
        if let Some(socket) = &transport.socket {
            self.ring.receive(id.index, socket);
        }
    }

    /// A completion of a receive.
    pub(super) fn received(
        &mut self,
        index: u32,
        filled: Result<Option<Filled>, Errno>,
        has_more: bool,
    ) {
        let Some((id, _)) = self.at(index) else {
            // It has ended: its buffer goes back unread.
            if let Ok(Some(filled)) = filled {
                self.ring.give_back(filled);
            }
            return;
        };
        match filled {
            Ok(Some(filled)) => {
                self.arrived.push_back(Arrived::Bytes(id, filled));
                if !has_more {
                    self.hungry.push(id);
                }
            }
            Ok(None) => self.arrived.push_back(Arrived::End(id)),
            // All buffers are in use: it goes on when some have been given back.
            Err(Errno::NOBUFS) => self.starved.push_back(id),
            // It was cancelled: while paused.
            Err(Errno::CANCELED | Errno::AGAIN | Errno::INTR) => self.hungry.push(id),
            Err(errno) => self.arrived.push_back(Arrived::Failed(id, errno)),
        }
    }

    /// Tells what has arrived, as much of it as a turn may.
    pub(super) fn tell_arrived(
        &mut self,
        sink: &mut impl FnMut(&mut Self, Event<'_>),
    ) -> io::Result<()> {
        let most = self.base.options.receives_max.max(1);
        let mut told = 0;
        while told < most
            && let Some(arrived) = self.arrived.pop_front()
        {
            match arrived {
                Arrived::Connections(listener) => {
                    self.accept(listener, sink);
                    self.settle_listener(listener);
                }
                Arrived::Connected(id) => self.tell_connected(id, sink),
                Arrived::Bytes(id, filled) => {
                    told += 1;
                    self.tell_bytes(id, filled, sink);
                    if self.unsent_bytes > UNSENT_MAX {
                        // What is paused by now would go on receiving.
                        self.stop_receiving();
                        self.submit_sends()?;
                        self.land()?;
                        self.deliver_pending(sink);
                    }
                }
                Arrived::End(id) => self.peer_ended(id, sink),
                Arrived::Failed(id, errno) => self.end(id, errno.into()),
            }
        }
        Ok(())
    }

    #[inline]
    fn tell_bytes(
        &mut self,
        id: ConnectionId,
        mut filled: Filled,
        sink: &mut impl FnMut(&mut Self, Event<'_>),
    ) {
        let bytes = filled.bytes();
        match self.base.transports.live(id) {
            Some(transport) if transport.paused || transport.interest & KEEPING != 0 => {
                self.keep(id, bytes);
            }
            Some(_) => sink(self, Event::Received { id, bytes }),
            None => {}
        }
        self.ring.give_back(filled);
    }

    /// Asks for no more bytes of those that are paused still.
    pub(super) fn stop_receiving(&mut self) {
        while let Some(id) = self.pausing.pop() {
            if let Some(transport) = self.base.transports.live(id)
                && transport.paused
                && transport.interest & (RECEIVING | CANCELLING) == RECEIVING
            {
                transport.interest |= CANCELLING;
                self.ring.cancel(Kind::Receive, id.index);
            }
        }
    }

    /// Bytes that had come before a transport was paused: they wait.
    #[cold]
    fn keep(&mut self, id: ConnectionId, bytes: &[u8]) {
        let Some(transport) = self.base.transports.live(id) else {
            return;
        };
        transport.interest |= KEEPING;
        let kept = self.kept.entry(id.index).or_default();
        kept.push_back(bytes.to_vec());
    }

    #[cold]
    fn peer_ended(&mut self, id: ConnectionId, sink: &mut impl FnMut(&mut Self, Event<'_>)) {
        let Some(transport) = self.base.transports.live(id) else {
            return;
        };
        if transport.ended {
            return;
        }
        if transport.paused || transport.interest & KEEPING != 0 {
            // To be found again by the receive that follows `resume`.
            self.hungry.push(id);
            return;
        }
        transport.ended = true;
        sink(self, Event::Ended { id });
        self.watch_changes(id);
    }

    /// What `resume` asked for, and what ended by itself: kept bytes are told, receives are asked for again.
    /// `true` if the sink was told something.
    pub(super) fn feed(&mut self, sink: &mut impl FnMut(&mut Self, Event<'_>)) -> bool {
        // No more than find room: thousands that ask again in each turn would cost more than what they get.
        if !self.starved.is_empty() {
            let free = self.ring.room() / self.base.options.ring_buffer_bytes.clamp(1, HELPING);
            let fed = self.starved.len().min(free.max(1));
            // The last first: one that sends without end would have all of them each time.
            self.hungry.extend(self.starved.drain(..fed).rev());
        }
        if self.hungry.is_empty() {
            return false;
        }
        let mut has_told = false;
        let mut hungry = mem::take(&mut self.hungry);
        for id in hungry.drain(..) {
            has_told |= self.kept.contains_key(&id.index);
            self.feed_one(id, sink);
        }
        hungry.append(&mut self.hungry);
        self.hungry = hungry;
        has_told
    }

    fn feed_one(&mut self, id: ConnectionId, sink: &mut impl FnMut(&mut Self, Event<'_>)) {
        let Some(transport) = self.base.transports.live(id) else {
            return;
        };
        if transport.interest & RECEIVING != 0 {
            // Its last completion is still to come, and with it the next look.
            if transport.interest & CANCELLING == 0 && transport.interest & KEEPING != 0 {
                self.tell_kept(id, sink);
            }
            return;
        }
        if transport.paused {
            return self.watch_changes(id);
        }
        self.tell_kept(id, sink);
        match self.base.transports.live(id) {
            Some(transport) if transport.paused => self.watch_changes(id),
            Some(_) => self.start_receiving(id),
            None => {}
        }
    }

    /// Tells what came while a transport was paused, as long as it is not paused again.
    fn tell_kept(&mut self, id: ConnectionId, sink: &mut impl FnMut(&mut Self, Event<'_>)) {
        while let Some(transport) = self.base.transports.live(id) {
            if transport.paused {
                return;
            }
            // The rest stays where it can be found: the sink may do anything.
            let kept = self.kept.get_mut(&id.index);
            let Some(mut bytes) = kept.and_then(VecDeque::pop_front) else {
                transport.interest &= !KEEPING;
                self.kept.remove(&id.index);
                return;
            };
            let bytes = bytes.as_mut_slice();
            sink(self, Event::Received { id, bytes });
        }
    }

    /// What has come of a transport and was not told.
    pub(super) fn take_arrived(&mut self, id: ConnectionId) -> Vec<u8> {
        let kept = self.kept.remove(&id.index).unwrap_or_default();
        let mut bytes: Vec<u8> = kept.into_iter().flatten().collect();
        for _ in 0..self.arrived.len() {
            match self.arrived.pop_front() {
                Some(Arrived::Bytes(of, mut filled)) if of == id => {
                    bytes.extend_from_slice(filled.bytes());
                    self.ring.give_back(filled);
                }
                other => self.arrived.extend(other),
            }
        }
        bytes
    }

    /// Asks to be told of a reset where nothing is received that would tell it.
    pub(super) fn watch_changes(&mut self, id: ConnectionId) {
        let Some(transport) = self.base.transports.live(id) else {
            return;
        };
        if transport.interest & (CHANGES | RECEIVING) != 0 || transport.state != State::Open {
            return;
        }
        transport.interest |= CHANGES;
        if let Some(socket) = &transport.socket {
            self.ring.poll_changes(id.index, socket);
        }
    }

    /// The poll for a reset tells of something: an error ends the transport, an end is found by who reads.
    pub(super) fn changed(&mut self, index: u32) {
        let Some((id, transport)) = self.at(index) else {
            return;
        };
        if let Some(socket) = &transport.socket
            && let Err(errno) = socket::take_error(socket)
        {
            self.arrived.push_back(Arrived::Failed(id, errno));
        }
    }
}
