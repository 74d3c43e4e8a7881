//! Errors in the format of the back end's API: their codes, and how they are written.

use std::fmt::Write as _;

use serde_json::Value;
use veche_proto::http::Status;

use crate::context::publishing::{Busy, TOO_MANY_REQUESTS};
use crate::http::reply::Refusal;

/// Error code for what is a fault of ours.
pub(crate) const INTERNAL: u32 = 100;
/// Error code for what is too large to be answered.
pub(crate) const LIMIT_EXCEEDED: u32 = 106;
/// Error code for a request that can't be understood or carried out as written.
pub const BAD_REQUEST: u32 = 107;
/// Error code for a channel whose namespace does not exist.
pub const UNKNOWN_CHANNEL: u32 = 102;
/// Error code for a caller without a key.
pub const UNAUTHORIZED: u32 = 101;
/// Error code for what the caller may not do.
pub const PERMISSION_DENIED: u32 = 103;
/// Error code for a method that does not exist.
pub const METHOD_NOT_FOUND: u32 = 104;
/// Error code for what the channel's namespace does not have.
pub(crate) const NOT_AVAILABLE: u32 = 108;
/// Error code for a position that is none of the channel's.
pub(crate) const UNRECOVERABLE: u32 = 112;

/// Returns the status of an answer by HTTP that is nothing but an error with this code.
pub(crate) fn status_of(code: u32) -> Status {
    match code {
        UNAUTHORIZED => Status::UNAUTHORIZED,
        PERMISSION_DENIED => Status::FORBIDDEN,
        UNKNOWN_CHANNEL | METHOD_NOT_FOUND => Status::NOT_FOUND,
        BAD_REQUEST | NOT_AVAILABLE => Status::BAD_REQUEST,
        TOO_MANY_REQUESTS => Status::TOO_MANY_REQUESTS,
        UNRECOVERABLE => Status::RANGE_NOT_SATISFIABLE,
        _ => Status::INTERNAL_SERVER_ERROR,
    }
}

/// Seconds after which a client refused for lack of memory may retry.
const MEMORY_RETRY_S: u64 = 1;

/// Returns the refusal of a call that is not carried out now.
pub(crate) fn busy(busy: Busy) -> Refusal {
    let (status, seconds) = match busy {
        Busy::TooFast { wait_ms } => (Status::TOO_MANY_REQUESTS, wait_ms.div_ceil(1000).max(1)),
        Busy::NoMemory => (Status::SERVICE_UNAVAILABLE, MEMORY_RETRY_S),
    };
    of_api(status, busy.code(), &busy.to_string()).with("Retry-After", seconds.to_string())
}

/// Returns a refusal that gives its reason as the API does.
pub(crate) fn of_api(status: Status, code: u32, why: &str) -> Refusal {
    let body = String::from_utf8(error_body(code, why)).unwrap_or_default();
    Refusal::json(status, body)
}

/// The answer to whoever has no key, or a wrong one.
pub(crate) fn unauthorized() -> Refusal {
    of_api(
        Status::UNAUTHORIZED,
        UNAUTHORIZED,
        "X-API-Key is missing or wrong",
    )
    .with("WWW-Authenticate", "X-API-Key")
}

/// `{"error":{…}}`
pub(crate) fn error_body(code: u32, message: &str) -> Vec<u8> {
    let mut text = String::from("{");
    write_error(&mut text, code, message);
    text.push('}');
    text.into_bytes()
}

/// `"error":{…}`, without the braces around.
pub fn write_error(text: &mut String, code: u32, message: &str) {
    let message = Value::from(message);
    let _ = write!(text, "\"error\":{{\"code\":{code},\"message\":{message}}}");
}
