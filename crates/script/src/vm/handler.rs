//! The functions of an application that Veche calls, by name.

use crate::role::AppRole;

/// Functions of an application that Veche calls.
pub(super) const HANDLERS: usize = 11;

/// A function of the application that Veche calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandlerName {
    /// Once per VM, before anything else.
    Start,
    /// Before the 101.
    Handshake,
    /// After it.
    Open,
    /// For each message.
    Message,
    /// The connection can take more again.
    Drain,
    /// The connection is gone.
    Close,
    /// For each HTTP request.
    Request,
    /// For what has happened to channels and users.
    Events,
    /// The VM is about to end.
    Stop,
    /// An error that nobody has caught.
    Error,
    /// A service's own work; the only one that a service has beside `Stop`.
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

    /// As scripts name it.
    pub(super) fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// Whether an application of that role has it called.
    pub(super) fn is_for(self, role: AppRole) -> bool {
        match role {
            AppRole::Clients => self != Self::Run,
            AppRole::Service { .. } => matches!(self, Self::Run | Self::Stop),
        }
    }
}
