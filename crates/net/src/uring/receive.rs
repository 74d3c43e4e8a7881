//! Handles input from the kernel (connections and bytes), and determines the order in which it is
//! delivered to the sink.

use std::collections::VecDeque;
use std::io;
use std::mem;

use rustix::io::Errno;

use super::{
    CANCELLING, CHANGES, HAS_LATER_PARTS, POLLING, READY, RECEIVING, SPARE_PARTS_MAX, Uring,
};
use crate::accept::AcceptBackEnd as _;
use crate::base::SocketBackEnd as _;
use crate::sys::socket;
use crate::sys::uring::FilledBuffer;
use crate::transport::TransportState;
use crate::{ConnectionId, DriverEvent, ListenerId};

/// If more unsent bytes than this are queued, sends are submitted during the turn instead of at the
/// beginning of the next one. More bytes would not fit into the core's cache.
const UNSENT_MAX: usize = 128 * 1024;
/// A transport's next receive uses the ring's buffers if its last receiving call returned at most
/// this many bytes. With the default options, this is a quarter of a buffer, so all buffers together
/// can hold the input of 32 such transports.
const QUIET_BYTES_MAX: usize = 16 * 1024;

/// An entry of the queue of ready sockets.
#[derive(Debug)]
pub(super) enum Ready {
    /// Connections are waiting at a listener.
    Listener(ListenerId),
    /// An outgoing connection is established.
    Connected(ConnectionId),
    /// A transport that has input or whose socket must be checked. Nearly all transports have a
    /// single part of input, which is stored here. Further parts are in [`Uring::later_parts`].
    Transport(ConnectionId, Option<FilledBuffer>),
}

/// Undelivered input of a transport.
#[derive(Debug)]
pub(super) enum InputPart {
    Filled(FilledBuffer),
    /// Input of a paused transport, which was copied so that its buffer could be returned to the
    /// kernel.
    Copied(Vec<u8>),
    /// The peer sent FIN.
    End,
    /// The connection is broken; earlier input is delivered first.
    Failed(Errno),
}

impl InputPart {
    fn len(&self) -> usize {
        match self {
            Self::Filled(filled) => filled.len(),
            Self::Copied(bytes) => bytes.len(),
            Self::End | Self::Failed(_) => 0,
        }
    }
}

impl Uring {
    /// Makes the kernel report a transport's next bytes. `last_bytes` is the number of bytes of its
    /// last receiving call. If it is large, or if no buffer is left, a poll is used instead of a
    /// receive, and the bytes stay in the socket until the transport is served.
    pub(super) fn arm(&mut self, id: ConnectionId, last_bytes: usize) {
        let has_room = self.ring.has_room();
        let Some(transport) = self.base.transports.live(id) else {
            return;
        };
        if transport.interest & RECEIVING != 0
            || transport.ended
            || transport.state != TransportState::Open
        {
            return;
        }
        if transport.paused {
            return self.watch_changes(id);
        }
        let Some(socket) = &transport.socket else {
            return;
        };
        transport.interest |= RECEIVING;
        if has_room && last_bytes <= QUIET_BYTES_MAX {
            self.ring.receive(id.index, socket);
        } else {
            transport.interest |= POLLING;
            self.ring.poll_readable(id.index, socket);
        }
    }

    /// Handles the completion of a receive.
    pub(super) fn received(
        &mut self,
        index: u32,
        filled: Result<Option<FilledBuffer>, Errno>,
        has_more: bool,
    ) {
        let Some((id, _)) = self.at(index) else {
            // The transport has ended, so the buffer is returned unread.
            if let Ok(Some(filled)) = filled {
                self.ring.give_back(filled);
            }
            return;
        };
        match filled {
            Ok(Some(filled)) => self.add_filled(id, filled),
            Ok(None) => self.add_later_part(id, InputPart::End),
            // All buffers are in use, or the receive was cancelled. Bytes may be waiting in the
            // socket.
            Err(Errno::NOBUFS | Errno::CANCELED | Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => self.add_later_part(id, InputPart::Failed(errno)),
        }
        if !has_more {
            self.disarmed(index);
        }
    }

    /// Called when the receive or poll that reports a transport's bytes has ended. Queues the
    /// transport, so that its socket is checked when it is served.
    pub(super) fn disarmed(&mut self, index: u32) {
        match self.at(index) {
            Some((id, transport)) if transport.paused => self.watch_changes(id),
            Some((id, _)) => self.queue_ready(id),
            None => {}
        }
    }

    /// Queues a transport behind all other ready ones.
    pub(super) fn queue_ready(&mut self, id: ConnectionId) {
        if let Some(transport) = self.base.transports.live(id)
            && transport.state == TransportState::Open
            && transport.interest & READY == 0
        {
            transport.interest |= READY;
            self.ready.push_back(Ready::Transport(id, None));
        }
    }

    #[inline]
    fn add_filled(&mut self, id: ConnectionId, filled: FilledBuffer) {
        match self.base.transports.live(id) {
            Some(transport) if transport.interest & (READY | HAS_LATER_PARTS) == 0 => {
                transport.interest |= READY;
                self.ready.push_back(Ready::Transport(id, Some(filled)));
            }
            _ => self.add_later_part(id, InputPart::Filled(filled)),
        }
    }

    /// Adds an input part behind the earlier parts of a transport.
    #[cold]
    fn add_later_part(&mut self, id: ConnectionId, part: InputPart) {
        let Some(transport) = self.base.transports.live(id) else {
            return;
        };
        transport.interest |= HAS_LATER_PARTS;
        let parts = self.later_parts.entry(id.index);
        let parts = parts.or_insert_with(|| self.spare.pop().unwrap_or_default());
        parts.push_back(part);
        // The transport receives faster than it can be served. Further bytes stay in its socket, so
        // that other transports can use the buffers.
        if transport.interest & (RECEIVING | CANCELLING | POLLING) == RECEIVING
            && parts.iter().map(InputPart::len).sum::<usize>() > self.base.options.receive_bytes
        {
            transport.interest |= CANCELLING;
            self.cancel_receive(id.index);
        }
        self.queue_ready(id);
    }

    /// Serves the listeners and transports that are ready now, up to the limit of a turn. Those
    /// that become ready meanwhile are served later. Each is therefore served once before any is
    /// served twice, so each of `n` ready sockets is served within `n / receives_max + 1` turns.
    pub(super) fn serve(
        &mut self,
        sink: &mut impl FnMut(&mut Self, DriverEvent<'_>),
    ) -> io::Result<()> {
        let most = self.base.options.receives_max.max(1);
        for _ in 0..self.ready.len().min(most) {
            match self.ready.pop_front() {
                Some(Ready::Transport(id, first)) => self.serve_transport(id, first, sink),
                Some(Ready::Listener(listener)) => {
                    self.accept(listener, sink);
                    self.update_listener(listener);
                }
                Some(Ready::Connected(id)) => self.deliver_connected(id, sink),
                None => break,
            }
            if self.unsent_bytes > UNSENT_MAX {
                // Stops receiving for transports that the sink has paused in this turn.
                self.stop_receiving();
                self.submit_sends()?;
                self.reap_sends()?;
                self.deliver_pending(sink);
            }
        }
        Ok(())
    }

    #[inline]
    fn serve_transport(
        &mut self,
        id: ConnectionId,
        first: Option<FilledBuffer>,
        sink: &mut impl FnMut(&mut Self, DriverEvent<'_>),
    ) {
        let mut delivered = 0;
        let is_paused = match self.base.transports.live(id) {
            Some(transport) => {
                transport.interest &= !READY;
                transport.paused
            }
            None => false,
        };
        if is_paused {
            return self.store_unread(id, first);
        }
        if let Some(mut filled) = first {
            if self.base.transports.peek(id).is_some() {
                delivered = filled.len();
                let bytes = filled.bytes();
                sink(self, DriverEvent::Received { id, bytes });
            }
            self.ring.give_back(filled);
        }
        // Usually there are no further parts, and the kernel reports the next input, so nothing
        // else needs to be done.
        if let Some(transport) = self.base.transports.live(id)
            && transport.interest & (RECEIVING | HAS_LATER_PARTS) != RECEIVING
        {
            self.serve_rest(id, delivered, sink);
        }
    }

    /// Delivers the parts after the first one and then the bytes in the socket, until the delivered
    /// bytes reach the limit of one receive.
    fn serve_rest(
        &mut self,
        id: ConnectionId,
        mut delivered: usize,
        sink: &mut impl FnMut(&mut Self, DriverEvent<'_>),
    ) {
        while let Some(transport) = self.base.transports.live(id) {
            if transport.paused {
                return self.store_unread(id, None);
            }
            if transport.interest & READY != 0 {
                // The sink has marked the transport as ready, so it is served again later.
                return;
            }
            if transport.interest & HAS_LATER_PARTS == 0 {
                let is_armed = transport.interest & RECEIVING != 0 || transport.ended;
                return match delivered {
                    _ if is_armed => {}
                    0 => self.receive_now(id, sink),
                    _ => self.queue_ready(id),
                };
            }
            if delivered >= self.base.options.receive_bytes {
                return self.queue_ready(id);
            }
            let parts = self.later_parts.get_mut(&id.index);
            let part = parts.and_then(VecDeque::pop_front);
            delivered += part.as_ref().map_or(0, InputPart::len);
            match part {
                Some(InputPart::Filled(mut filled)) => {
                    let bytes = filled.bytes();
                    sink(self, DriverEvent::Received { id, bytes });
                    self.ring.give_back(filled);
                }
                Some(InputPart::Copied(mut bytes)) => {
                    let bytes = bytes.as_mut_slice();
                    sink(self, DriverEvent::Received { id, bytes });
                }
                Some(InputPart::End) => self.peer_ended(id, sink),
                Some(InputPart::Failed(errno)) => self.end(id, errno.into()),
                None => {
                    transport.interest &= !HAS_LATER_PARTS;
                    self.drop_later_parts(id.index);
                }
            }
        }
    }

    /// Receives by a system call, as with epoll. None of the transport's bytes may be in the ring's
    /// buffers, and no receive may be in flight.
    fn receive_now(&mut self, id: ConnectionId, sink: &mut impl FnMut(&mut Self, DriverEvent<'_>)) {
        let Some(transport) = self.base.transports.live(id) else {
            return;
        };
        let Some(socket) = &transport.socket else {
            return;
        };
        let mut receive = mem::take(&mut self.receive);
        match socket::receive(socket, &mut receive) {
            Ok(0) => self.peer_ended(id, sink),
            Ok(count) => {
                let bytes = &mut receive[..count];
                sink(self, DriverEvent::Received { id, bytes });
                if count == receive.len() {
                    self.queue_ready(id);
                } else {
                    self.arm(id, count);
                }
            }
            Err(Errno::AGAIN | Errno::INTR) => self.arm(id, 0),
            Err(errno) => self.end(id, errno.into()),
        }
        self.receive = receive;
    }

    /// Stops receiving for transports in `pausing` that are still paused.
    pub(super) fn stop_receiving(&mut self) {
        while let Some(id) = self.pausing.pop() {
            if let Some(transport) = self.base.transports.live(id)
                && transport.paused
                && transport.interest & (RECEIVING | CANCELLING) == RECEIVING
            {
                transport.interest |= CANCELLING;
                self.cancel_receive(id.index);
            }
        }
    }

    /// Copies the undelivered input of a paused transport and returns its buffers to the kernel.
    #[cold]
    fn store_unread(&mut self, id: ConnectionId, first: Option<FilledBuffer>) {
        if let Some(filled) = first {
            let parts = self.later_parts.entry(id.index).or_default();
            parts.push_front(InputPart::Filled(filled));
            self.base.transports.slot(id.index).interest |= HAS_LATER_PARTS;
        }
        let mut failed = None;
        for part in self.later_parts.get_mut(&id.index).into_iter().flatten() {
            match part {
                InputPart::Filled(filled) => {
                    let copied = InputPart::Copied(filled.bytes().to_vec());
                    if let InputPart::Filled(filled) = mem::replace(part, copied) {
                        self.ring.give_back(filled);
                    }
                }
                InputPart::Failed(errno) => failed = Some(*errno),
                InputPart::Copied(_) | InputPart::End => {}
            }
        }
        match failed {
            // A reset is reported even while the transport is paused.
            Some(errno) => self.end(id, errno.into()),
            None => self.watch_changes(id),
        }
    }

    #[cold]
    fn peer_ended(&mut self, id: ConnectionId, sink: &mut impl FnMut(&mut Self, DriverEvent<'_>)) {
        let Some(transport) = self.base.transports.live(id) else {
            return;
        };
        if transport.ended {
            return;
        }
        transport.ended = true;
        sink(self, DriverEvent::Ended { id });
        self.watch_changes(id);
    }

    /// Drops the undelivered parts of a transport. Their buffers are returned to the kernel unread.
    #[cold]
    pub(super) fn drop_later_parts(&mut self, index: u32) {
        let Some(mut parts) = self.later_parts.remove(&index) else {
            return;
        };
        for part in parts.drain(..) {
            if let InputPart::Filled(filled) = part {
                self.ring.give_back(filled);
            }
        }
        if self.spare.len() < SPARE_PARTS_MAX {
            self.spare.push(parts);
        }
    }

    /// Returns the undelivered input of a transport.
    pub(super) fn take_unread(&mut self, id: ConnectionId) -> Vec<u8> {
        let mut bytes = Vec::new();
        for ready in &mut self.ready {
            if let Ready::Transport(of, first) = ready
                && *of == id
                && let Some(mut filled) = first.take()
            {
                bytes.extend_from_slice(filled.bytes());
                self.ring.give_back(filled);
            }
        }
        for part in self.later_parts.remove(&id.index).into_iter().flatten() {
            match part {
                InputPart::Filled(mut filled) => {
                    bytes.extend_from_slice(filled.bytes());
                    self.ring.give_back(filled);
                }
                InputPart::Copied(copied) => bytes.extend(copied),
                InputPart::End | InputPart::Failed(_) => {}
            }
        }
        bytes
    }

    /// Polls for a reset of the connection, unless a receive is in flight, which would report it.
    pub(super) fn watch_changes(&mut self, id: ConnectionId) {
        let Some(transport) = self.base.transports.live(id) else {
            return;
        };
        if transport.interest & (CHANGES | RECEIVING) != 0
            || transport.state != TransportState::Open
        {
            return;
        }
        transport.interest |= CHANGES;
        if let Some(socket) = &transport.socket {
            self.ring.poll_changes(id.index, socket);
        }
    }

    /// Handles the completion of the poll for a reset of the connection. If the socket has an
    /// error, the next receive ends the transport with this error.
    pub(super) fn changed(&mut self, index: u32) {
        let Some((id, transport)) = self.at(index) else {
            return;
        };
        if let Some(socket) = &transport.socket
            && let Err(errno) = socket::take_error(socket)
        {
            self.add_later_part(id, InputPart::Failed(errno));
        }
    }
}
