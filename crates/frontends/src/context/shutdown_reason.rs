//! Why the server goes away, and how it closes sessions then.

use veche_types::codes::CloseCode;

/// Why the server goes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShutdownReason {
    /// It stops.
    Stopping,
    /// Another server process has taken over.
    Replaced,
}

impl ShutdownReason {
    /// The close code and its reason.
    pub fn close_code_and_reason(self) -> (u16, &'static str) {
        let close = match self {
            Self::Stopping => CloseCode::GoingAway,
            Self::Replaced => CloseCode::Restarting,
        };
        close.parts()
    }
}
