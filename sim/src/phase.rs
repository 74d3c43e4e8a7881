//! The phases of a client's connection.

/// How far the connection of a client is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Offline,
    /// The handshake is sent.
    Handshaking,
    /// The connect command is sent.
    Connecting,
    Online,
    /// One side has sent a Close.
    Closing,
}
