//! Why what a client sent was refused.

/// What came is not the protocol. Always the client's fault: the connection ends with
/// [`BadRequest`](crate::DisconnectCode::BadRequest).
///
/// It says what is wrong and where, and never repeats what came, which may hold secrets: fit for a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// More bytes than [`message_bytes_max`](crate::Limits::message_bytes_max).
    #[error("message too big")]
    TooBig,
    /// More than [`commands_max`](crate::Limits::commands_max) in one message.
    #[error("too many commands in one message")]
    TooManyCommands,
    /// More entries in one map of a command than [`ENTRIES_MAX`](crate::ENTRIES_MAX).
    #[error("too many entries in a command")]
    TooManyEntries,
    /// Data nested deeper than [`DEPTH_MAX`](crate::DEPTH_MAX).
    #[error("data nested too deep")]
    TooDeep,
    /// Text that is not UTF-8.
    #[error("invalid UTF-8")]
    Utf8,
    /// Not JSON, or cut off.
    #[error("invalid JSON at line {line}, column {column}")]
    Json {
        /// Line of the message, from 1.
        line: usize,
        /// Column in bytes, from 1.
        column: usize,
    },
    /// JSON with a value of another type than its field has, out of its range, or there twice.
    #[error("unexpected value at line {line}, column {column}")]
    Value {
        /// Line of the message, from 1.
        line: usize,
        /// Column in bytes, from 1.
        column: usize,
    },
    /// Protobuf whose end is missing: a length points beyond it.
    #[error("truncated message")]
    CutOff,
    /// Not Protobuf: a number that is too long, a field without a number, or of a kind that there is not.
    #[error("invalid Protobuf")]
    Protobuf,
    /// A field of Protobuf with a value of another type than it has, or out of its range.
    #[error("unexpected value in field {field}")]
    Field {
        /// The field's number in the message or the request in which it stands.
        field: u32,
    },
    /// A command that has to be answered has no id.
    #[error("command without an id")]
    NoId,
    /// A command has an id and no request that is known.
    #[error("command without a request")]
    NoRequest,
    /// A command has more than one request.
    #[error("command with more than one request")]
    ManyRequests,
}
