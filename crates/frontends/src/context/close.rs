//! Why the server shuts down, and the close code for its sessions.

use veche_types::codes::CloseCode;

/// Why the server shuts down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parting {
    /// The server process is stopping.
    Stopping,
    /// Another server process has taken over.
    Replaced,
}

impl Parting {
    /// Returns the close code and reason.
    pub fn words(self) -> (u16, &'static str) {
        let close = match self {
            Self::Stopping => CloseCode::GoingAway,
            Self::Replaced => CloseCode::Restarting,
        };
        close.parts()
    }
}
