//! Converts the driver's errors to call errors.

use mysql_async::{DriverError, Error, IoError};
use veche_calls::{Fault, FaultKind};

/// Errors after which the server has rolled back the whole transaction: a deadlock, and its counterpart in clusters.
const ROLLED_BACK: [&str; 2] = ["mysql: 1213 ", "mysql: 1180 "];

/// Error codes that end the connection: shutdown (1053), killed by an administrator (1927), idle timeout (4031), a
/// packet that the server does not read completely (1153); 1317 ends only a statement.
const LAST_WORDS: [u16; 5] = [1053, 1927, 4031, 1153, 1159];

/// Those that are not caused by the statement.
const GOODBYES: [u16; 3] = [1053, 1927, 4031];

/// Converts an error of a statement.
pub(super) fn fault(error: &Error) -> Fault {
    let (kind, words) = match error {
        Error::Server(error) => {
            let words = format!("{} ({}): {}", error.code, error.state, error.message);
            let kind = match GOODBYES.contains(&error.code) {
                true => FaultKind::ConnectionLost,
                false => FaultKind::Refused,
            };
            (kind, words)
        }
        Error::Io(IoError::Tls(error)) => (FaultKind::Broken, format!("TLS: {error}")),
        Error::Io(IoError::Io(error)) => (
            FaultKind::ConnectionLost,
            format!("connection lost: {error}"),
        ),
        Error::Driver(DriverError::StmtParamsMismatch { required, supplied }) => {
            let words = format!(
                "the statement has {required} places for values, and {supplied} were given"
            );
            (FaultKind::Invalid, words)
        }
        Error::Driver(DriverError::ConnectionClosed) => {
            (FaultKind::ConnectionLost, "connection lost".to_owned())
        }
        Error::Driver(error @ (DriverError::Params(_) | DriverError::MixedParams)) => {
            let words = format!("values are bound to ? only, in order: {error}");
            (FaultKind::Invalid, words)
        }
        Error::Driver(DriverError::PacketTooLarge) => {
            let words = "a value is larger than the server's max_allowed_packet".to_owned();
            (FaultKind::Invalid, words)
        }
        Error::Driver(error) => (FaultKind::Broken, error.to_string()),
        Error::Other(error) => (FaultKind::Broken, error.to_string()),
        Error::Url(error) => (FaultKind::Invalid, error.to_string()),
    };
    Fault::new(kind, format!("mysql: {words}"))
}

/// Converts an error of connecting.
pub(super) fn not_connected(error: &Error) -> Fault {
    match error {
        Error::Io(IoError::Io(error)) => {
            let words = format!("mysql: not connected: {error}");
            Fault::new(FaultKind::Unreachable, words)
        }
        error => match fault(error) {
            Fault {
                kind: FaultKind::ConnectionLost,
                words,
            } => Fault::new(FaultKind::Unreachable, words),
            fault => fault,
        },
    }
}

/// Returns whether the connection is unusable after an error.
pub(super) fn lost(error: &Error) -> bool {
    match error {
        Error::Server(error) => LAST_WORDS.contains(&error.code),
        // Detected before anything was sent.
        Error::Driver(
            DriverError::StmtParamsMismatch { .. }
            | DriverError::Params(_)
            | DriverError::MixedParams,
        ) => false,
        _ => true,
    }
}

/// Returns whether the server has ended the transaction with this error.
pub(super) fn has_ended_transaction(fault: &Fault) -> bool {
    ROLLED_BACK
        .iter()
        .any(|start| fault.words.starts_with(start))
}
