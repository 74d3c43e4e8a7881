//! Log messages of connections, and decisions about clients.
//!
//! Log messages are for the operator and limited in number. Decisions are reported only while they are watched
//! ([`ProcessServices`](crate::ProcessServices)): one for each answer to a client.

use veche_hub::ConnectionId;

/// A log message of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogNote {
    /// The id of the connection.
    pub session: ConnectionId,
    /// Whether the operator should see it without searching.
    pub level: NoteLevel,
    /// One line; data of the peer is quoted, if present.
    pub text: String,
}

/// The importance of a log message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoteLevel {
    /// A peer's mistake that was answered with an error.
    Info,
    /// A limit was reached.
    Warn,
}

/// A decision about a client. Texts that do not apply are empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuthDecision<'a> {
    /// `connect`, `token`, `subscribe`, `unsubscribe`, `publish`, `refresh`, `sub_refresh` or `disconnect`.
    pub what: &'static str,
    /// The user, if known.
    pub user: &'a str,
    /// The id of the client.
    pub client: &'a str,
    /// The channel, if any.
    pub channel: &'a str,
    /// 0 for success; otherwise the code or status sent to the client.
    pub code: u32,
    /// The reason for people; empty if the code suffices.
    pub reason: &'a str,
}
