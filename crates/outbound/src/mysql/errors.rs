//! Converts the driver's errors to call errors.

use mysql_async::{DriverError, Error, IoError};
use veche_calls::{CallError, CallErrorKind};

/// Errors after which the server has rolled back the whole transaction: a deadlock, and its counterpart in clusters.
const ROLLED_BACK: [&str; 2] = ["mysql: 1213 ", "mysql: 1180 "];

/// Codes of errors with which the server ends the connection: shutdown (1053), killed by an administrator (1927), idle timeout
/// (4031), a packet that exceeds the server's limit (1153) or does not arrive in time (1159). 1317 (query interrupted) is not
/// among them, since it ends only a statement.
const FATAL_ERRORS: [u16; 5] = [1053, 1927, 4031, 1153, 1159];

/// The subset of [`FATAL_ERRORS`] that the statement did not cause.
const DISCONNECT_ERRORS: [u16; 3] = [1053, 1927, 4031];

/// Converts an error of a statement.
pub(super) fn call_error(error: &Error) -> CallError {
    let (kind, words) = match error {
        Error::Server(error) => {
            let words = format!("{} ({}): {}", error.code, error.state, error.message);
            let kind = match DISCONNECT_ERRORS.contains(&error.code) {
                true => CallErrorKind::ConnectionLost,
                false => CallErrorKind::Refused,
            };
            (kind, words)
        }
        Error::Io(IoError::Tls(error)) => (CallErrorKind::Broken, format!("TLS: {error}")),
        Error::Io(IoError::Io(error)) => (
            CallErrorKind::ConnectionLost,
            format!("connection lost: {error}"),
        ),
        Error::Driver(DriverError::StmtParamsMismatch { required, supplied }) => {
            let words = format!(
                "the statement has {required} placeholders, but {supplied} values were given"
            );
            (CallErrorKind::Invalid, words)
        }
        Error::Driver(DriverError::ConnectionClosed) => {
            (CallErrorKind::ConnectionLost, "connection lost".to_owned())
        }
        Error::Driver(error @ (DriverError::Params(_) | DriverError::MixedParams)) => {
            let words =
                format!("the values do not match the `?` placeholders of the statement: {error}");
            (CallErrorKind::Invalid, words)
        }
        Error::Driver(DriverError::PacketTooLarge) => {
            let words = "a value is larger than the server's max_allowed_packet".to_owned();
            (CallErrorKind::Invalid, words)
        }
        Error::Driver(error) => (CallErrorKind::Broken, error.to_string()),
        Error::Other(error) => (CallErrorKind::Broken, error.to_string()),
        Error::Url(error) => (CallErrorKind::Invalid, error.to_string()),
    };
    CallError::new(kind, format!("mysql: {words}"))
}

/// Converts an error that occurred while connecting.
pub(super) fn not_connected(error: &Error) -> CallError {
    match error {
        Error::Io(IoError::Io(error)) => {
            let words = format!("mysql: not connected: {error}");
            CallError::new(CallErrorKind::Unreachable, words)
        }
        error => match call_error(error) {
            CallError {
                kind: CallErrorKind::ConnectionLost,
                words,
            } => CallError::new(CallErrorKind::Unreachable, words),
            fault => fault,
        },
    }
}

/// Returns whether the connection is unusable after an error.
pub(super) fn lost(error: &Error) -> bool {
    match error {
        Error::Server(error) => FATAL_ERRORS.contains(&error.code),
        // The driver detects these errors before it sends anything, so the connection stays usable.
        Error::Driver(
            DriverError::StmtParamsMismatch { .. }
            | DriverError::Params(_)
            | DriverError::MixedParams,
        ) => false,
        _ => true,
    }
}

/// Returns whether the server has ended the transaction with this error.
pub(super) fn has_ended_transaction(fault: &CallError) -> bool {
    ROLLED_BACK
        .iter()
        .any(|start| fault.words.starts_with(start))
}
