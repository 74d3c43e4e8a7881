//! Events of channels and users, with borrowed fields.

/// An event of a channel or a user, as passed to an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelEventView<'a> {
    /// The name of the event, such as `occupied`.
    pub kind: &'static str,
    /// The channel; `None` for an event of a user.
    pub channel: Option<&'a str>,
    /// The user; `None` for an event that concerns only a channel.
    pub user: Option<&'a str>,
    /// The id of the connection that joined or left.
    pub client: Option<&'a str>,
    /// The public data of the connection, as JSON.
    pub info: Option<&'a [u8]>,
    /// The time of the event, in milliseconds since 1970.
    pub at_ms: u64,
}
