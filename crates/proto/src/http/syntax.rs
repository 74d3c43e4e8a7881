//! Bytes and lists of RFC 9110 section 5.6: tokens, field values, comma-separated members.

/// `tchar`: what a token, and so a method or a header name, is made of.
pub(super) const fn is_token_byte(byte: u8) -> bool {
    TOKEN[byte as usize]
}

/// What a header value may hold: visible ASCII, space, tab, and obs-text. No CR, LF, NUL or other control.
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

/// The members of a comma-separated list without the white space around them; empty ones are left out (RFC 9110
/// section 5.6.1.2). For lists of tokens only: a comma inside a quoted string would split it.
pub fn list_members(value: &str) -> impl Iterator<Item = &str> {
    value
        .split(',')
        .map(trim_ows)
        .filter(|member| !member.is_empty())
}

/// Without spaces and tabs at both ends.
pub(super) fn trim_ows(value: &str) -> &str {
    value.trim_matches([' ', '\t'])
}
