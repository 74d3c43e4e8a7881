//! Errors in the format of the back end's API, with their HTTP statuses.

use std::fmt::Write as _;

use serde_json::Value;
use veche_proto::http::Status;
use veche_types::codes::ErrorCode;

use crate::context::publish_limiter::PublishError;
use crate::http::reply::Refusal;

/// Returns the HTTP status of a response that consists of an error with this code.
pub(crate) fn status_of(code: u32) -> Status {
    match ErrorCode::with_number(code) {
        Some(ErrorCode::Unauthorized) => Status::UNAUTHORIZED,
        Some(ErrorCode::PermissionDenied) => Status::FORBIDDEN,
        Some(ErrorCode::UnknownChannel | ErrorCode::MethodNotFound) => Status::NOT_FOUND,
        Some(ErrorCode::BadRequest | ErrorCode::NotAvailable) => Status::BAD_REQUEST,
        Some(ErrorCode::TooManyRequests) => Status::TOO_MANY_REQUESTS,
        Some(ErrorCode::UnrecoverablePosition) => Status::RANGE_NOT_SATISFIABLE,
        _ => Status::INTERNAL_SERVER_ERROR,
    }
}

/// Seconds after which a client that was refused for lack of memory may retry.
const MEMORY_RETRY_S: u64 = 1;

/// Returns the refusal of a valid call that can't be served at present.
pub(crate) fn busy(busy: PublishError) -> Refusal {
    let (status, seconds) = match busy {
        PublishError::RateLimited { wait_ms } => {
            (Status::TOO_MANY_REQUESTS, wait_ms.div_ceil(1000).max(1))
        }
        PublishError::OutOfMemory => (Status::SERVICE_UNAVAILABLE, MEMORY_RETRY_S),
    };
    of_api(status, busy.code(), &busy.to_string()).with("Retry-After", seconds.to_string())
}

/// Returns a refusal with this status, whose body is the error in the API's format.
pub(crate) fn of_api(status: Status, code: ErrorCode, why: &str) -> Refusal {
    let body = String::from_utf8(error_body(code, why)).unwrap_or_default();
    Refusal::json(status, body)
}

/// Returns the refusal of a call without a valid key.
pub(crate) fn unauthorized() -> Refusal {
    of_api(
        Status::UNAUTHORIZED,
        ErrorCode::Unauthorized,
        "X-API-Key is missing or wrong",
    )
    .with("WWW-Authenticate", "X-API-Key")
}

pub(crate) fn error_body(code: ErrorCode, message: &str) -> Vec<u8> {
    let mut text = String::from("{");
    write_error(&mut text, code, message);
    text.push('}');
    text.into_bytes()
}

/// Writes `"error":{…}` without the surrounding braces.
pub fn write_error(text: &mut String, code: ErrorCode, message: &str) {
    let (code, message) = (code.code(), Value::from(message));
    let _ = write!(text, "\"error\":{{\"code\":{code},\"message\":{message}}}");
}
