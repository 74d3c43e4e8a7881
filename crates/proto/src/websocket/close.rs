//! The body of a close frame (RFC 6455 section 5.5.1).

use veche_types::codes::{REASON_BYTES_MAX, is_sendable};

use super::ProtocolError;

/// Parses a close frame's payload.
pub(super) fn parse(payload: &[u8]) -> Result<(Option<u16>, &str), ProtocolError> {
    match payload {
        [] => Ok((None, "")),
        [_] => Err(ProtocolError::CloseTruncated),
        [high, low, reason @ ..] => {
            let code = u16::from_be_bytes([*high, *low]);
            if !is_sendable(code) {
                return Err(ProtocolError::CloseCode);
            }
            let reason = std::str::from_utf8(reason).map_err(|_| ProtocolError::InvalidUtf8)?;
            Ok((Some(code), reason))
        }
    }
}

/// Returns the longest prefix of `reason` that fits into a close frame, cut between characters.
pub(super) fn fit(reason: &str) -> &str {
    &reason[..reason.floor_char_boundary(REASON_BYTES_MAX)]
}
