//! How a route delivers publications to its sessions.

/// The publications that are kept for a client that reads too slowly to receive all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropPolicy {
    /// The newest ones that fit.
    KeepNewest,
    /// The newest one of each channel.
    KeepLatestPerChannel,
}

/// How publications are delivered to a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryMode {
    /// The session receives no publications.
    Disabled,
    /// Completely; a client that reads too slowly is disconnected.
    Reliable,
    /// A client that reads too slowly loses some.
    Lossy(DropPolicy),
    /// Completely, each with its position in its channel.
    WithPositions,
}
