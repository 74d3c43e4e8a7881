//! Something that has happened to a channel or a user, lent.

/// What an application is told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelEvent<'a> {
    /// `occupied`, for example.
    pub kind: &'static str,
    /// Where.
    pub channel: Option<&'a str>,
    /// To whom.
    pub user: Option<&'a str>,
    /// The id of his connection.
    pub client: Option<&'a str>,
    /// What others see of it: JSON.
    pub info: Option<&'a [u8]>,
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
}
