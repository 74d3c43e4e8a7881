//! Errors in messages of clients.

/// An invalid message. This is always the client's fault: the connection ends with
/// [`BadRequest`](crate::DisconnectCode::BadRequest).
///
/// The error text names the kind of error and, where it is known, the position. It can be logged,
/// because it never repeats the message, which may contain secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MalformedMessage {
    /// A message above the limit on its length.
    #[error("message too big")]
    TooBig,
    /// More commands in one message than the limit.
    #[error("too many commands in one message")]
    TooManyCommands,
    /// A command contains a map with more than [`ENTRIES_MAX`](crate::ENTRIES_MAX) entries.
    #[error("too many entries in a command")]
    TooManyEntries,
    /// Data nested deeper than [`DEPTH_MAX`](crate::DEPTH_MAX).
    #[error("data nested too deep")]
    TooDeep,
    /// Text that is not UTF-8.
    #[error("invalid UTF-8")]
    Utf8,
    /// Invalid or truncated JSON.
    #[error("invalid JSON at line {line}, column {column}")]
    Json {
        /// Line of the message, from 1.
        line: usize,
        /// Column in bytes, from 1.
        column: usize,
    },
    /// A JSON value of the wrong type, out of range, or duplicate.
    #[error("unexpected value at line {line}, column {column}")]
    Value {
        /// Line of the message, from 1.
        line: usize,
        /// Column in bytes, from 1.
        column: usize,
    },
    /// Truncated Protobuf: a length exceeds the message.
    #[error("truncated message")]
    Truncated,
    /// Invalid Protobuf: an overlong number, a field without a number, or an unknown wire type.
    #[error("invalid Protobuf")]
    Protobuf,
    /// A Protobuf field with a value of the wrong type or out of range.
    #[error("unexpected value in field {field}")]
    Field {
        /// The field's number in its message or request.
        field: u32,
    },
    /// A command that needs a reply has no id.
    #[error("a command has no id")]
    NoId,
    /// A command with an id has no known request.
    #[error("a command has no request")]
    NoRequest,
    /// A command has more than one request.
    #[error("a command has more than one request")]
    ManyRequests,
}
