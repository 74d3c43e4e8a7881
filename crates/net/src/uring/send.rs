//! Collects the sends of a turn and submits them together at the beginning of the next turn.

use std::io::{self, IoSlice};
use std::mem;

use rustix::io::Errno;

use super::receive::Ready;
use super::{UNSENT, Uring, WRITABLE};
use crate::base::PendingEvent;
use crate::queue::{SLICES_MAX, SendQueue};
use crate::sys::socket;
use crate::transport::{Fin, TransportState};
use crate::{Buffer, ConnectionId, DriverEvent};

/// Maximum number of sends in flight before their completions are taken. The completion queue has
/// room for twice as many.
const SENDS_MAX: usize = 4096;

impl Uring {
    #[inline]
    pub(super) fn send_buffer(&mut self, id: ConnectionId, buffer: Buffer) -> Option<Buffer> {
        let Some(transport) = self.base.transports.live(id) else {
            return Some(buffer);
        };
        if transport.fin != Fin::None || buffer.is_empty() {
            return Some(buffer);
        }
        let queue = transport
            .queue
            .get_or_insert_with(|| self.base.queues.take());
        self.unsent_bytes += buffer.len();
        queue.push(buffer);
        transport.is_above_low_water |= queue.unsent() > self.base.options.low_water_bytes;
        let is_blocked =
            transport.interest & WRITABLE != 0 || transport.state != TransportState::Open;
        if !is_blocked {
            self.want_to_send(id);
        }
        None
    }

    /// Marks a transport's queue for the next submission of sends.
    #[inline]
    fn want_to_send(&mut self, id: ConnectionId) {
        if let Some(transport) = self.base.transports.live(id)
            && transport.queue.is_some()
            && transport.interest & UNSENT == 0
        {
            transport.interest |= UNSENT;
            self.unsent.push(id);
        }
    }

    /// Submits the sends collected since the last submission.
    pub(super) fn submit_sends(&mut self) -> io::Result<()> {
        self.unsent_bytes = 0;
        let mut unsent = mem::take(&mut self.unsent);
        for (place, id) in unsent.drain(..).enumerate() {
            if place % SENDS_MAX == SENDS_MAX - 1 {
                self.reap_sends()?;
            }
            let Some(transport) = self.base.transports.live(id) else {
                continue;
            };
            transport.interest &= !UNSENT;
            if let (Some(queue), Some(socket)) = (transport.queue.take(), &transport.socket) {
                self.ring.send(id, socket, queue);
            }
        }
        // Sends that `reap_sends` queued are submitted in the next turn.
        unsent.append(&mut self.unsent);
        self.unsent = unsent;
        Ok(())
    }

    /// Sends as much of the queue as the socket accepts immediately, because the transport is about
    /// to end.
    #[cold]
    pub(super) fn send_now(&mut self, id: ConnectionId) {
        if let Some(transport) = self.base.transports.live(id)
            && transport.state == TransportState::Open
            && transport.interest & UNSENT != 0
            && let (Some(queue), Some(socket)) = (&transport.queue, &transport.socket)
        {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let (count, _) = queue.fill_slices(&mut slices);
            // The remaining bytes are dropped with the transport. An error is ignored.
            let _ = socket::send_many(socket, &slices[..count]);
        }
    }

    /// Handles the completion of a send. The transport may have ended since the send was submitted.
    pub(super) fn sent(
        &mut self,
        id: ConnectionId,
        sent: Result<usize, Errno>,
        mut queue: Box<SendQueue>,
    ) {
        let Some(transport) = self.base.transports.live(id) else {
            // A receive in the same batch of completions has ended the transport.
            return self.base.queues.give(queue);
        };
        let count = match sent {
            Ok(count) => count,
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Err(errno) => {
                transport.queue = Some(queue);
                return self.end(id, errno.into());
            }
        };
        let pending_before = self.base.pending.len();
        queue.advance(count, |buffer| {
            self.base.pending.push(PendingEvent::Sent(id, buffer))
        });
        if queue.is_empty() {
            self.base.queues.give(queue);
        } else {
            transport.queue = Some(queue);
        }
        self.settle(id);
        // If `Sent` or `Drained` is pending, it already reports the progress.
        if count > 0 && self.base.pending.len() == pending_before {
            self.base.pending.push(PendingEvent::Progressed(id));
        }
    }

    /// Called after an attempt to send. Reports `Drained` if it is due, polls for writability if
    /// bytes remain, and otherwise sends a FIN that is due.
    fn settle(&mut self, id: ConnectionId) {
        let Some(transport) = self.base.transports.live(id) else {
            return;
        };
        let unsent = transport.queue.as_deref().map_or(0, SendQueue::unsent);
        let is_above = unsent > self.base.options.low_water_bytes;
        if transport.is_above_low_water && !is_above {
            self.base.pending.push(PendingEvent::Drained(id));
        }
        transport.is_above_low_water = is_above;
        if transport.state != TransportState::Open || transport.interest & UNSENT != 0 {
            return;
        }
        if transport.queue.is_some() {
            return self.watch_writable(id);
        }
        if transport.fin == Fin::Wanted
            && let Some(socket) = &transport.socket
        {
            transport.fin = Fin::Sent;
            if let Err(errno) = socket::shutdown_write(socket) {
                self.end(id, errno.into());
            }
        }
    }

    /// Polls until the socket accepts more bytes, or until a connect has succeeded or failed.
    pub(super) fn watch_writable(&mut self, id: ConnectionId) {
        let Some(transport) = self.base.transports.live(id) else {
            return;
        };
        if transport.interest & WRITABLE == 0
            && let Some(socket) = &transport.socket
        {
            transport.interest |= WRITABLE;
            self.ring.poll_writable(id.index, socket);
        }
    }

    /// Handles the completion of the poll for writability.
    pub(super) fn writable(&mut self, index: u32) {
        let Some((id, transport)) = self.at(index) else {
            return;
        };
        if transport.state == TransportState::Connecting {
            let Some(socket) = &transport.socket else {
                return;
            };
            if let Err(errno) = socket::take_error(socket) {
                return self.end(id, errno.into());
            }
            self.ready.push_back(Ready::Connected(id));
            return;
        }
        self.want_to_send(id);
    }

    pub(super) fn deliver_connected(
        &mut self,
        id: ConnectionId,
        sink: &mut impl FnMut(&mut Self, DriverEvent<'_>),
    ) {
        let Some(transport) = self.base.transports.live(id) else {
            return;
        };
        transport.state = TransportState::Open;
        self.want_to_send(id);
        // `arm` also handles a transport that was paused before it was connected.
        self.arm(id, 0);
        sink(self, DriverEvent::Connected { id });
        self.settle(id);
    }

    pub(super) fn shutdown_send(&mut self, id: ConnectionId) {
        let Some(transport) = self.base.transports.live(id) else {
            return;
        };
        if transport.fin == Fin::None {
            transport.fin = Fin::Wanted;
            self.settle(id);
        }
    }
}
