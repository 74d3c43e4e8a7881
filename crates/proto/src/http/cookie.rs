//! The Cookie header (RFC 6265 section 4.2.1), read leniently: what is no pair is passed over.

use super::syntax::trim_ows;

/// The value of the first cookie of that name in one Cookie header, without the quotes around it.
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
