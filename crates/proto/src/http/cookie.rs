//! The Cookie header (RFC 6265 section 4.2.1), parsed leniently: malformed pairs are skipped.

use super::syntax::trim_ows;

/// Returns the value of the first cookie with this name in one Cookie header, without quotes.
pub(super) fn find<'b>(header: &'b str, name: &str) -> Option<&'b str> {
    header.split(';').find_map(|pair| {
        let (cookie, value) = pair.split_once('=')?;
        if trim_ows(cookie) != name {
            return None;
        }
        let value = trim_ows(value);
        Some(
            value
                .strip_prefix('"')
                .and_then(|rest| rest.strip_suffix('"'))
                .unwrap_or(value),
        )
    })
}
