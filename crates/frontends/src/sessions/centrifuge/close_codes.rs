//! Conversion of the server's close codes and reasons to those of Centrifugo's protocol.

use std::borrow::Cow;

use veche_centrifuge::DisconnectCode;
use veche_types::codes::CloseCode;

use crate::context::identity::AuthError;

/// Converts the server's close code and reason to those of Centrifugo's protocol.
pub(crate) fn close_code_and_reason(code: u16, reason: &str) -> (u16, Cow<'_, str>) {
    let known = match CloseCode::with_parts(code, reason) {
        Some(CloseCode::GoingAway | CloseCode::Restarting) => DisconnectCode::Shutdown,
        Some(CloseCode::SlowConsumer) => DisconnectCode::Slow,
        Some(CloseCode::TooFast) => DisconnectCode::TooManyRequests,
        Some(CloseCode::Idle) => DisconnectCode::ConnectionClosed,
        _ => return (code, reason.into()),
    };
    (known.code(), known.text().into())
}

/// Returns the close code for a permanent authentication error; `None` for any other error.
pub(super) fn disconnect(why: AuthError) -> Option<DisconnectCode> {
    match why {
        AuthError::RejectedByHook => Some(DisconnectCode::InvalidToken),
        AuthError::ForbiddenByHook | AuthError::Blocked => Some(DisconnectCode::PermissionDenied),
        _ => None,
    }
}
