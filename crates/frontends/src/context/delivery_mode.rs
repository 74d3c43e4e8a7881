//! What a session gets of publications, as its route has it.

/// Which publications a client gets that reads too slowly for all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropPolicy {
    /// The newest, as many as there is room for.
    KeepNewest,
    /// Of each channel the newest.
    KeepLatestPerChannel,
}

/// What a session gets of what is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryMode {
    /// Nothing.
    Disabled,
    /// All of it; a client that reads too slowly loses its connection.
    Reliable,
    /// The same, but a client that reads too slowly loses some of it.
    Lossy(DropPolicy),
    /// All of it, each with its place in its channel.
    WithPositions,
}
