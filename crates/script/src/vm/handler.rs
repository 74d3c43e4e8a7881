//! The functions of an application that Veche calls.

use crate::role::AppRole;

/// The number of handler functions.
pub(super) const HANDLERS: usize = 11;

/// A function of the application that Veche calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandlerName {
    /// Called once per VM, before all other handlers.
    Start,
    /// Called for a handshake, before the response 101.
    Handshake,
    /// Called for an open connection, after the response 101.
    Open,
    /// Called for each message.
    Message,
    /// Called when a connection whose outbox was full can send again.
    Drain,
    /// Called when the connection has closed.
    Close,
    /// Called for each HTTP request.
    Request,
    /// Called with channel and user events.
    Events,
    /// Called when the VM is about to end.
    Stop,
    /// Called with uncaught errors.
    Error,
    /// The main function of a service. A service has no other handlers except `Stop`.
    Run,
}

impl HandlerName {
    pub(super) const ALL: [(Self, &'static str); HANDLERS] = [
        (Self::Start, "start"),
        (Self::Handshake, "handshake"),
        (Self::Open, "open"),
        (Self::Message, "message"),
        (Self::Drain, "drain"),
        (Self::Close, "close"),
        (Self::Request, "request"),
        (Self::Events, "events"),
        (Self::Stop, "stop"),
        (Self::Error, "error"),
        (Self::Run, "run"),
    ];

    /// Returns the handler's name in scripts.
    pub(super) fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// Returns whether applications of a role use the handler.
    pub(super) fn is_for(self, role: AppRole) -> bool {
        match role {
            AppRole::Clients => self != Self::Run,
            AppRole::Service { .. } => matches!(self, Self::Run | Self::Stop),
        }
    }
}
