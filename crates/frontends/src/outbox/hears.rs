//! How a route delivers publications to its sessions.

/// Which publications a client keeps that reads too slowly for all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeping {
    /// The newest ones that fit.
    Newest,
    /// The newest one of each channel.
    Latest,
}

/// How publications are delivered to a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hears {
    /// The session receives no publications.
    Nothing,
    /// Completely; a client that reads too slowly is disconnected.
    Publications,
    /// A client that reads too slowly loses some.
    Some(Keeping),
    /// Completely, each with its position in its channel.
    Positions,
}
