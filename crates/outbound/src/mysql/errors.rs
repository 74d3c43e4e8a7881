//! The driver's errors as faults.

use mysql_async::{DriverError, Error, IoError};
use veche_calls::{CallError, CallErrorKind};

/// The server rolls back everything, not the statement alone: a deadlock, and its kind in clusters.
const ROLLED_BACK: [&str; 2] = ["mysql: 1213 ", "mysql: 1180 "];

/// Codes by which a server says that the connection is over: it stops (1053), killed (1317 ends but a statement), an
/// administrator (1927), idle for too long (4031), a packet that it does not read to its end (1153).
const LAST_WORDS: [u16; 5] = [1053, 1927, 4031, 1153, 1159];

/// Those of them that are not the statement's fault.
const GOODBYES: [u16; 3] = [1053, 1927, 4031];

/// As whoever asked is told.
pub(super) fn call_error(error: &Error) -> CallError {
    let (kind, words) = match error {
        Error::Server(error) => {
            let words = format!("{} ({}): {}", error.code, error.state, error.message);
            let kind = match GOODBYES.contains(&error.code) {
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
                "the statement has {required} places for values, and {supplied} were given"
            );
            (CallErrorKind::Invalid, words)
        }
        Error::Driver(DriverError::ConnectionClosed) => {
            (CallErrorKind::ConnectionLost, "connection lost".to_owned())
        }
        Error::Driver(error @ (DriverError::Params(_) | DriverError::MixedParams)) => {
            let words = format!("values are bound to ? only, in order: {error}");
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

/// The same of an attempt to connect.
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

/// Whether the connection is of no use after it.
pub(super) fn lost(error: &Error) -> bool {
    match error {
        Error::Server(error) => LAST_WORDS.contains(&error.code),
        // Found before anything was sent.
        Error::Driver(
            DriverError::StmtParamsMismatch { .. }
            | DriverError::Params(_)
            | DriverError::MixedParams,
        ) => false,
        _ => true,
    }
}

/// Whether the server has ended the transaction in which it was said.
pub(super) fn has_ended_transaction(fault: &CallError) -> bool {
    ROLLED_BACK
        .iter()
        .any(|start| fault.words.starts_with(start))
}
