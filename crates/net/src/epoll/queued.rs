//! Send queues. They contain bytes that the socket did not accept immediately, and bytes that are
//! held back because of `more`.

use std::io::IoSlice;

use rustix::io::Errno;

use super::{Epoll, OUTPUT};
use crate::base::PendingEvent;
use crate::queue::{SLICES_MAX, SendQueue};
use crate::sys::socket;
use crate::transport::{Fin, TransportState};
use crate::{Buffer, ConnectionId, Driver};

impl Epoll {
    /// Queues the bytes that the socket did not accept. They are sent when it is writable.
    #[cold]
    pub(super) fn send_rest(&mut self, id: ConnectionId, buffer: Buffer, sent: usize) {
        let Some(transport) = self.base.transports.live(id) else {
            return;
        };
        let mut queue = self.base.queues.take();
        queue.push(buffer);
        queue.advance(sent, drop);
        transport.is_above_low_water = queue.unsent() > self.base.options.low_water_bytes;
        transport.queue = Some(queue);
        let interest = transport.interest | OUTPUT;
        self.set_interest(id, interest);
    }

    /// Appends the buffer to the queue. Creates the queue at the first send with `more` or while
    /// the transport is connecting.
    pub(super) fn send_queued(
        &mut self,
        id: ConnectionId,
        buffer: Buffer,
        more: bool,
    ) -> Option<Buffer> {
        let transport = self.base.transports.live(id)?;
        if buffer.is_empty() && (more || transport.queue.is_none()) {
            return Some(buffer);
        }
        let queue = transport
            .queue
            .get_or_insert_with(|| self.base.queues.take());
        let kept = if buffer.is_empty() {
            Some(buffer)
        } else {
            queue.push(buffer);
            None
        };
        let blocked = transport.interest & OUTPUT != 0 || transport.state != TransportState::Open;
        if blocked {
            transport.is_above_low_water |= queue.unsent() > self.base.options.low_water_bytes;
            return kept;
        }
        if more && queue.len() < SLICES_MAX {
            if !queue.held {
                queue.held = true;
                self.held.push(id);
            }
            return kept;
        }
        let done = self.flush(id);
        // If this call has sent the buffer completely, it is returned here instead of by an event.
        let returned = if done && kept.is_none() {
            self.take_last_sent(id)
        } else {
            kept
        };
        self.settle(id);
        returned
    }

    fn take_last_sent(&mut self, id: ConnectionId) -> Option<Buffer> {
        match self.base.pending.pop() {
            Some(PendingEvent::Sent(of, buffer)) if of == id => Some(buffer),
            other => {
                self.base.pending.extend(other);
                None
            }
        }
    }

    /// Sends bytes that were held back for an announced `send`, which did not follow.
    #[inline]
    pub(super) fn flush_held(&mut self) {
        while let Some(id) = self.held.pop() {
            let held = self
                .base
                .transports
                .live(id)
                .and_then(|transport| transport.queue.as_deref());
            if held.is_some_and(|queue| queue.held) {
                self.flush(id);
                self.settle(id);
            }
        }
    }

    #[cold]
    pub(super) fn writable(&mut self, id: ConnectionId) {
        let (pending_before, before) = (self.base.pending.len(), self.unsent(id));
        self.flush(id);
        self.settle(id);
        // A pending `Sent` or `Drained` already reports the progress.
        if self.base.pending.len() == pending_before && self.unsent(id) < before {
            self.base.pending.push(PendingEvent::Progressed(id));
        }
    }

    /// Sends as much of the queue as the socket accepts. Returns whether the queue is empty
    /// afterwards.
    fn flush(&mut self, id: ConnectionId) -> bool {
        let Some(transport) = self.base.transports.live(id) else {
            return false;
        };
        let Some(queue) = transport.queue.as_deref_mut() else {
            return true;
        };
        let socket = transport
            .socket
            .as_ref()
            .expect("a transport in use must have a socket");
        queue.held = false;
        while !queue.is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let (count, offered) = queue.fill_slices(&mut slices);
            let sent = match socket::send_many(socket, &slices[..count]) {
                Ok(sent) => sent,
                Err(Errno::AGAIN | Errno::INTR) => 0,
                Err(errno) => {
                    self.end(id, errno.into());
                    return false;
                }
            };
            queue.advance(sent, |buffer| {
                self.base.pending.push(PendingEvent::Sent(id, buffer))
            });
            if sent < offered {
                return false;
            }
        }
        true
    }

    /// Completes an attempt to send: updates the polled events, reports a queue that has fallen to the
    /// low water mark, frees an empty queue, and sends a FIN that is due.
    pub(super) fn settle(&mut self, id: ConnectionId) {
        let Some(transport) = self.base.transports.live(id) else {
            return;
        };
        let mut interest = transport.interest;
        match &transport.queue {
            Some(queue) if !queue.is_empty() => {
                // The transport waits for room in the socket only after an attempt to send. No
                // attempt is made while the queue is held back or the transport is connecting.
                if !queue.held && transport.state == TransportState::Open {
                    interest |= OUTPUT;
                }
            }
            Some(_) => {
                interest &= !OUTPUT;
                let queue = transport.queue.take();
                queue
                    .into_iter()
                    .for_each(|queue| self.base.queues.give(queue));
            }
            None => interest &= !OUTPUT,
        }
        let unsent = transport.queue.as_deref().map_or(0, SendQueue::unsent);
        let above = unsent > self.base.options.low_water_bytes;
        if transport.is_above_low_water && !above {
            self.base.pending.push(PendingEvent::Drained(id));
        }
        transport.is_above_low_water = above;
        if transport.state == TransportState::Open {
            if transport.queue.is_none() && transport.fin == Fin::Wanted {
                transport.fin = Fin::Sent;
                let socket = transport
                    .socket
                    .as_ref()
                    .expect("a transport in use must have a socket");
                if let Err(errno) = socket::shutdown_write(socket) {
                    return self.end(id, errno.into());
                }
            }
            self.set_interest(id, interest);
        }
    }

    pub(super) fn shutdown_send(&mut self, id: ConnectionId) {
        let Some(transport) = self.base.transports.live(id) else {
            return;
        };
        if transport.fin != Fin::None {
            return;
        }
        transport.fin = Fin::Wanted;
        if transport.queue.as_deref().is_some_and(|queue| queue.held) {
            self.flush(id);
        }
        self.settle(id);
    }
}
