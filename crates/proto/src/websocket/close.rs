//! Close codes (RFC 6455 section 7.4 and IANA's registry) and the body of a close frame.

use super::Error;

/// The purpose is fulfilled.
pub const NORMAL: u16 = 1000;
/// The server goes down, or the page was left.
pub const GOING_AWAY: u16 = 1001;
/// The peer broke the protocol.
pub const PROTOCOL_ERROR: u16 = 1002;
/// The peer sent a kind of data that we do not take.
pub const UNSUPPORTED: u16 = 1003;
/// The peer sent data that is not what its kind says: text that is not UTF-8.
pub const INVALID_DATA: u16 = 1007;
/// Against the rules of the application.
pub const POLICY: u16 = 1008;
/// The message is too big.
pub const TOO_BIG: u16 = 1009;
/// The server failed.
pub const INTERNAL_ERROR: u16 = 1011;
/// The server restarts; come back later.
pub const RESTART: u16 = 1012;
/// The server is overloaded, or the peer reads too slowly.
pub const TRY_AGAIN: u16 = 1013;

/// Longest reason that fits a control frame beside its code.
pub const REASON_BYTES_MAX: usize = 123;

/// Whether `code` may stand in a close frame. 1004, 1005, 1006 and 1015 are for reporting only, 1016 to 2999 are
/// reserved, below 1000 and from 5000 on there are no codes.
#[must_use]
pub fn is_sendable(code: u16) -> bool {
    matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999)
}

/// Reads a close frame's payload.
pub(super) fn parse(payload: &[u8]) -> Result<(Option<u16>, &str), Error> {
    match payload {
        [] => Ok((None, "")),
        [_] => Err(Error::CloseTruncated),
        [high, low, reason @ ..] => {
            let code = u16::from_be_bytes([*high, *low]);
            if !is_sendable(code) {
                return Err(Error::CloseCode);
            }
            let reason = std::str::from_utf8(reason).map_err(|_| Error::InvalidUtf8)?;
            Ok((Some(code), reason))
        }
    }
}

/// The longest part of `reason` that fits, cut between characters.
pub(super) fn fit(reason: &str) -> &str {
    &reason[..reason.floor_char_boundary(REASON_BYTES_MAX)]
}
