//! What a session gets of publications, as its route has it.

/// Which publications a client gets that reads too slowly for all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeping {
    /// The newest, as many as there is room for.
    Newest,
    /// Of each channel the newest.
    Latest,
}

/// What a session gets of what is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hears {
    /// Nothing.
    Nothing,
    /// All of it; a client that reads too slowly loses its connection.
    Publications,
    /// The same, but a client that reads too slowly loses some of it.
    Some(Keeping),
    /// All of it, each with its place in its channel.
    Positions,
}
