//! Converts Redis values and errors.

use redis::{ErrorKind, RedisError, Value};
use veche_calls::redis::RedisValue;
use veche_calls::{CallError, CallErrorKind};

/// All integers up to this absolute value are exact in a double.
const WHOLE_MAX: u64 = 1 << 53;

/// The maximum number of values in a reply, including those in nested lists.
const VALUES_MAX: usize = 1_000_000;

/// Converts a reply for a script.
pub(super) fn from_server(value: Value) -> Result<RedisValue, CallError> {
    let mut left = VALUES_MAX;
    convert(value, &mut left).ok_or_else(|| {
        let words = format!("redis: the reply has more than {VALUES_MAX} values");
        CallError::new(CallErrorKind::Broken, words)
    })
}

fn convert(value: Value, left: &mut usize) -> Option<RedisValue> {
    *left = left.checked_sub(1)?;
    Some(match value {
        Value::Nil => RedisValue::Nil,
        Value::Int(number) if number.unsigned_abs() <= WHOLE_MAX => {
            RedisValue::Number(number as f64)
        }
        Value::Int(number) => RedisValue::Bytes(number.to_string().into_bytes()),
        Value::BulkString(bytes) => RedisValue::Bytes(bytes),
        Value::SimpleString(text) => RedisValue::Bytes(text.into_bytes()),
        Value::VerbatimString { text, .. } => RedisValue::Bytes(text.into_bytes()),
        Value::Okay => RedisValue::Bytes(b"OK".to_vec()),
        Value::Double(number) => RedisValue::Number(number),
        Value::Boolean(value) => RedisValue::Boolean(value),
        Value::BigNumber(digits) => RedisValue::Bytes(digits),
        Value::ServerError(error) => RedisValue::Error(error_text(error.code(), error.details())),
        Value::Attribute { data, .. } => convert(*data, left)?,
        Value::Array(values) | Value::Set(values) | Value::Push { data: values, .. } => {
            let values = values.into_iter().map(|value| convert(value, left));
            RedisValue::List(values.collect::<Option<_>>()?)
        }
        Value::Map(pairs) => {
            let pairs = pairs.into_iter();
            let pairs =
                pairs.map(|(key, value)| Some((convert(key, left)?, convert(value, left)?)));
            RedisValue::Map(pairs.collect::<Option<_>>()?)
        }
        // A later version of the driver may add types.
        _ => RedisValue::Nil,
    })
}

fn error_text(code: &str, details: Option<&str>) -> String {
    match details {
        Some(details) => format!("{code} {details}"),
        None => code.to_owned(),
    }
}

/// Converts an error that the driver returned. The cause may be the driver or the server.
pub(crate) fn call_error(error: &RedisError) -> CallError {
    let (kind, text) = match error.kind() {
        ErrorKind::Io => (
            CallErrorKind::ConnectionLost,
            format!("connection lost: {error}"),
        ),
        ErrorKind::Server(_) | ErrorKind::Extension | ErrorKind::AuthenticationFailed => {
            let code = error.code().unwrap_or("ERR");
            (CallErrorKind::Refused, error_text(code, error.detail()))
        }
        ErrorKind::InvalidClientConfig => (CallErrorKind::Invalid, error.to_string()),
        _ => (CallErrorKind::Broken, error.to_string()),
    };
    CallError::new(kind, format!("redis: {text}"))
}

/// Converts an error of connecting.
pub(super) fn not_connected(error: &RedisError) -> CallError {
    match error.kind() {
        ErrorKind::Io => {
            let words = format!("redis: not connected: {error}");
            CallError::new(CallErrorKind::Unreachable, words)
        }
        _ => call_error(error),
    }
}
