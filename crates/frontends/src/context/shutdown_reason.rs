//! Why the server shuts down, and the close code that its sessions get.

use veche_types::codes::CloseCode;

/// Why the server shuts down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShutdownReason {
    /// The server process is stopping.
    Stopping,
    /// Another server process has taken over.
    Replaced,
}

impl ShutdownReason {
    /// Returns the close code and reason for sessions.
    pub fn close_code_and_reason(self) -> (u16, &'static str) {
        let close = match self {
            Self::Stopping => CloseCode::GoingAway,
            Self::Replaced => CloseCode::Restarting,
        };
        close.parts()
    }
}
