//! UTF-8 checked while it arrives: text that no further byte can mend is refused at once (RFC 6455 section 8.1).

use super::ProtocolError;

/// Checks `text`, of which the first `checked` bytes are whole characters already. Returns the same for now: what
/// lies behind it is the beginning of one character, at most three bytes.
#[inline]
pub(super) fn check_more(text: &[u8], checked: usize) -> Result<usize, ProtocolError> {
    match simdutf8::compat::from_utf8(&text[checked..]) {
        Ok(_) => Ok(text.len()),
        Err(fault) if fault.error_len().is_none() => Ok(checked + fault.valid_up_to()),
        Err(_) => Err(ProtocolError::InvalidUtf8),
    }
}

/// Checks a whole text.
#[inline]
pub(super) fn check(text: &[u8]) -> Result<(), ProtocolError> {
    simdutf8::basic::from_utf8(text)
        .map(drop)
        .map_err(|_| ProtocolError::InvalidUtf8)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes after which `text` is refused, given one at a time.
    fn refused_after(text: &[u8]) -> Option<usize> {
        let mut checked = 0;
        (1..=text.len()).find(|&end| match check_more(&text[..end], checked) {
            Ok(more) => {
                assert!(end - more <= 3);
                checked = more;
                false
            }
            Err(_) => true,
        })
    }

    #[test]
    fn refuses_at_the_first_byte_that_cannot_be_mended() {
        assert_eq!(refused_after("κόσμε €𝄞".as_bytes()), None);
        assert_eq!(refused_after(b"\xf4\x8f\xbf\xbf"), None); // U+10FFFF
        assert_eq!(refused_after(b"\xf4\x90\x80\x80"), Some(2)); // above U+10FFFF
        assert_eq!(refused_after(b"\xed\xa0\x80"), Some(2)); // surrogate
        assert_eq!(refused_after(b"\xe0\x80\xaf"), Some(2)); // overlong
        assert_eq!(refused_after(b"\xc0\xaf"), Some(1));
        assert_eq!(refused_after(b"a\x80"), Some(2));
        assert_eq!(refused_after(b"ab\xf5"), Some(3));
        assert_eq!(refused_after(b"\xce\xba\xe1\xbd\x41"), Some(5));
    }
}
