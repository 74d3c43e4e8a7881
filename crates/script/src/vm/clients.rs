//! Outgoing connections: opening, sending, and closing with their VM.
//!
//! An open outgoing connection is handled like any other, except that its handlers are those of `lua/websocket.lua` instead of
//! the application's. It belongs to the VM that opened it and is not adopted by another VM.

use veche_calls::CallErrorKind;
use veche_types::codes::CloseCode;

use super::Vm;
use crate::ConnectionId;
use crate::Now;
use crate::modules;
use crate::raw::Argument;
use veche_runtime::call_errors::tagged;
use veche_runtime::{Level, Token};

impl Vm {
    /// Returns whether a connection is being opened with a token.
    #[must_use]
    pub fn is_dialing(&self, token: Token) -> bool {
        self.context.is_dialing(token)
    }

    /// Returns whether this VM opened a connection.
    #[must_use]
    pub fn has_client(&mut self, id: ConnectionId) -> bool {
        self.local(id).is_some_and(|local| local.is_client)
    }

    /// Handles an opened connection with its subprotocol; returns false if the connection is no longer needed. From now
    /// on the connection's events are [`message`](Self::message), [`full`](Self::full), [`drained`](Self::drained) and
    /// [`closed`](Self::closed).
    pub fn client_opened(
        &mut self,
        token: Token,
        id: ConnectionId,
        protocol: Option<&str>,
        now: Now,
    ) -> bool {
        self.set_now(now);
        let Some(object) = self.context.take_dial(token) else {
            return false;
        };
        self.machine.rename(object, id);
        self.know_as(id, object, true);
        self.context.world.connections.borrow_mut().open_client(id);
        let protocol = match protocol {
            Some(protocol) => Argument::Bytes(protocol.as_bytes()),
            None => Argument::Boolean(false),
        };
        self.go_on(token, &[Argument::Boolean(true), protocol]);
        self.settle();
        true
    }

    /// Handles a connection that could not be opened.
    pub fn client_failed(&mut self, token: Token, why: &str, now: Now) {
        self.set_now(now);
        if let Some(object) = self.context.take_dial(token) {
            self.machine.release(object);
            self.context.client_gone();
            self.fail(token, &not_open(why));
            self.settle();
        }
    }

    /// Marks a connection's outbox as full until [`drained`](Self::drained) is called. Until then
    /// data for another server is rejected, and a `send` to a client reports the full outbox.
    pub fn full(&self, id: ConnectionId) {
        let connections = &self.context.world.connections;
        connections.borrow_mut().set_full(id, true);
    }

    pub(super) fn room_again(&mut self, id: ConnectionId) {
        let connections = &self.context.world.connections;
        connections.borrow_mut().set_full(id, false);
        self.context.wake_senders(id);
        self.settle();
    }

    /// Stops the outgoing connections from reconnecting, since newer code has taken over.
    pub(super) fn retire_clients(&mut self) {
        let retire = &self.retire_clients;
        if let Err(error) = self.machine.guarded_without_limit(|| retire.call::<()>(())) {
            self.context.log(Level::Error, modules::words(&error));
        }
    }

    /// Closes all outgoing connections, since the VM is about to end.
    pub(super) fn end_clients(&mut self) {
        for token in self.context.dials() {
            if let Some(object) = self.context.hang_up(token) {
                self.machine.release(object);
            }
        }
        let clients: Vec<_> = self.ids(|local| local.is_client).collect();
        for id in clients {
            let (code, reason) = CloseCode::DialerGone.parts();
            self.context.close(id, code, reason);
            self.forget(id);
        }
    }

    /// Returns whether there are outgoing connections, including those being opened.
    pub(super) fn has_clients(&self) -> bool {
        self.context.dials_any() || self.ids(|local| local.is_client).next().is_some()
    }
}

/// Returns the error text with its kind: "refused" if the server answered with an HTTP status,
/// otherwise "unreachable".
fn not_open(why: &str) -> String {
    let status = why.strip_prefix("the server answered with status ");
    match status.and_then(|status| status.parse().ok()) {
        Some(status) => tagged(why, CallErrorKind::Refused.name(), Some(status)),
        None => tagged(why, CallErrorKind::Unreachable.name(), None),
    }
}
