//! Why the server goes away, and how it closes sessions then.

use veche_types::codes::CloseCode;

/// Why the server goes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parting {
    /// It stops.
    Stopping,
    /// Another server process has taken over.
    Replaced,
}

impl Parting {
    /// The close code and its reason.
    pub fn words(self) -> (u16, &'static str) {
        let close = match self {
            Self::Stopping => CloseCode::GoingAway,
            Self::Replaced => CloseCode::Restarting,
        };
        close.parts()
    }
}
