//! What the log is to have of connections: what they did, and what was decided about them.
//!
//! Notes are for the operator, and limited in number. Decisions are reported only while they are watched
//! ([`Process::is_watched`](crate::Process::is_watched)): one for each answer to a client.

use veche_hub::ConnectionId;

/// Something that a connection did and the log should have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogNote {
    /// The connection that it is about.
    pub session: ConnectionId,
    /// Whether the operator should see it even without looking for it.
    pub level: NoteLevel,
    /// One line; what the peer sent stands in it quoted, if at all.
    pub text: String,
}

/// How much a [`LogNote`] matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoteLevel {
    /// A peer's mistake, answered.
    Info,
    /// A limit was reached.
    Warn,
}

/// What was decided about a client. Texts that do not apply are empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuthDecision<'a> {
    /// `connect`, `token`, `subscribe`, `unsubscribe`, `publish`, `refresh`, `sub_refresh` or `disconnect`.
    pub what: &'static str,
    /// The user, as far as it is known.
    pub user: &'a str,
    /// The id that the client was given.
    pub client: &'a str,
    /// The channel in question.
    pub channel: &'a str,
    /// 0 for yes; otherwise the code or the status that the client was given.
    pub code: u32,
    /// The reason, for people to read; empty where the code says all.
    pub reason: &'a str,
}
