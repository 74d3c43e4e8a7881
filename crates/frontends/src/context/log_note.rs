//! Log messages of connections, and reports of decisions about clients.
//!
//! Log messages are for the operator and limited in number. Decisions, one for each answer to a client, are reported
//! only while the decision log is being watched ([`ProcessServices`](crate::ProcessServices)).

use veche_hub::ConnectionId;

/// A log message of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogNote {
    /// The id of the connection.
    pub session: ConnectionId,
    /// The importance of the message.
    pub level: NoteLevel,
    /// The text, one line. Data of the peer is quoted in it.
    pub text: String,
}

/// The importance of a log message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoteLevel {
    /// A peer's mistake that was answered with an error.
    Info,
    /// A problem that the operator may be able to solve, such as an invalid response of an application.
    Warn,
}

/// A report of a decision about a client. Texts that do not apply are empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuthDecision<'a> {
    /// The command that was decided: `connect`, `token`, `subscribe`, `unsubscribe`, `publish`, `refresh`,
    /// `sub_refresh` or `disconnect`.
    pub what: &'static str,
    /// The user, if known.
    pub user: &'a str,
    /// The id of the client.
    pub client: &'a str,
    /// The channel, if any.
    pub channel: &'a str,
    /// 0 for success; otherwise the error code or HTTP status sent to the client.
    pub code: u32,
    /// The reason for people; empty if the code is sufficient.
    pub reason: &'a str,
}
