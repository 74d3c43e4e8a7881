//! Handles rare events of a transport: its connect has ended, its peer has sent FIN, or its socket is ready although it
//! is not read.

use super::{Epoll, INPUT, OUTPUT, REGISTERED};
use crate::sys::epoll::EventFlags;
use crate::sys::socket;
use crate::transport::TransportState;
use crate::{CloseReason, ConnectionId, DriverEvent};

impl Epoll {
    #[cold]
    pub(super) fn connect_ready(
        &mut self,
        id: ConnectionId,
        sink: &mut impl FnMut(&mut Self, DriverEvent<'_>),
    ) {
        let Some(transport) = self.base.transports.live(id) else {
            return;
        };
        let socket = transport
            .socket
            .as_ref()
            .expect("a transport in use must have a socket");
        if let Err(errno) = socket::take_error(socket) {
            return self.end(id, errno.into());
        }
        transport.state = TransportState::Open;
        let output = if transport.queue.is_some() { OUTPUT } else { 0 };
        self.set_interest(id, REGISTERED | INPUT | output);
        sink(self, DriverEvent::Connected { id });
        self.settle(id);
    }

    #[cold]
    pub(super) fn peer_ended(
        &mut self,
        id: ConnectionId,
        sink: &mut impl FnMut(&mut Self, DriverEvent<'_>),
    ) {
        let Some(transport) = self.base.transports.live(id) else {
            return;
        };
        transport.ended = true;
        // After FIN the socket stays readable forever. If its input were still watched, the loop
        // would spin.
        let interest = transport.interest & !INPUT;
        self.set_interest(id, interest);
        sink(self, DriverEvent::Ended { id });
    }

    /// Handles readiness of a transport that is not read, because it is paused or its peer has sent
    /// FIN.
    #[cold]
    pub(super) fn unreadable_ready(&mut self, id: ConnectionId, flags: EventFlags) {
        let Some(transport) = self.base.transports.live(id) else {
            return;
        };
        let socket = transport
            .socket
            .as_ref()
            .expect("a transport in use must have a socket");
        let interest = transport.interest & !INPUT;
        if flags.contains(EventFlags::ERR) {
            let reason = socket::take_error(socket)
                .err()
                .map_or(CloseReason::Reset, Into::into);
            self.end(id, reason);
        } else if flags.contains(EventFlags::HUP) {
            // Both directions have ended. Epoll would report this in every turn, whatever the
            // interest, so the registration is removed until `resume` requests the unread bytes.
            self.set_interest(id, 0);
        } else {
            self.set_interest(id, interest);
        }
    }
}
