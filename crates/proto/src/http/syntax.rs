//! Bytes and lists of RFC 9110 section 5.6: tokens, field values, comma-separated members.

/// Returns whether a byte is a `tchar`, which tokens such as methods and header names consist of.
pub(super) const fn is_token_byte(byte: u8) -> bool {
    TOKEN[byte as usize]
}

/// Returns whether a header value may contain a byte: visible ASCII, space, tab, and obs-text. No CR, LF, NUL or other
/// control character.
pub(super) const fn is_value_byte(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

static TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        let b = byte as u8;
        table[byte] = b.is_ascii_alphanumeric()
            || matches!(
                b,
                b'!' | b'#'
                    | b'$'
                    | b'%'
                    | b'&'
                    | b'\''
                    | b'*'
                    | b'+'
                    | b'-'
                    | b'.'
                    | b'^'
                    | b'_'
                    | b'`'
                    | b'|'
                    | b'~'
            );
        byte += 1;
    }
    table
};

/// Returns the members of a comma-separated list without surrounding white space and empty ones (RFC 9110 section
/// 5.6.1.2). Only for lists of tokens: a comma inside a quoted string would split it.
pub fn list_members(value: &str) -> impl Iterator<Item = &str> {
    value
        .split(',')
        .map(trim_ows)
        .filter(|member| !member.is_empty())
}

/// Trims spaces and tabs.
pub(super) fn trim_ows(value: &str) -> &str {
    value.trim_matches([' ', '\t'])
}
