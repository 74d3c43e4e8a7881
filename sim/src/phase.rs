//! The phases of a client's connection.

/// The phase of a client's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Offline,
    /// The handshake was sent.
    Handshaking,
    /// The connect command was sent.
    Connecting,
    Online,
    /// One side has sent a Close.
    Closing,
}
