//! How a route delivers publications to its sessions.

/// Which publications are kept for a client that reads too slowly to receive all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropPolicy {
    /// The newest publications that fit into the outbox.
    KeepNewest,
    /// The newest publication of each channel.
    KeepLatestPerChannel,
}

/// How publications are delivered to a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryMode {
    /// The session receives no publications.
    Disabled,
    /// The session receives all publications; a client that reads too slowly is disconnected.
    Reliable,
    /// A client that reads too slowly loses some publications.
    Lossy(DropPolicy),
    /// The session receives all publications, each with its position in its channel.
    WithPositions,
}
