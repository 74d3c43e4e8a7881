//! Incremental UTF-8 validation: text that no further byte can make valid is refused immediately (RFC 6455 section
//! 8.1).

use super::ProtocolError;

/// Validates `text`, of which the first `checked` bytes are complete characters. Returns the new length of that prefix:
/// at most three bytes of an incomplete character follow.
#[inline]
pub(super) fn check_more(text: &[u8], checked: usize) -> Result<usize, ProtocolError> {
    match simdutf8::compat::from_utf8(&text[checked..]) {
        Ok(_) => Ok(text.len()),
        Err(fault) if fault.error_len().is_none() => Ok(checked + fault.valid_up_to()),
        Err(_) => Err(ProtocolError::InvalidUtf8),
    }
}

/// Validates a complete text.
#[inline]
pub(super) fn check(text: &[u8]) -> Result<(), ProtocolError> {
    simdutf8::basic::from_utf8(text)
        .map(drop)
        .map_err(|_| ProtocolError::InvalidUtf8)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of bytes after which `text`, passed byte by byte, is refused.
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
