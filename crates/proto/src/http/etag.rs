//! Entity tags (RFC 9110 section 8.8.3) and the lists in If-Match and If-None-Match.

/// How two entity tags are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EtagComparison {
    /// Weak tags (`W/"…"`) never match. Used for If-Match and If-Range.
    Strong,
    /// Tags match if they are equal apart from `W/`. Used for If-None-Match.
    Weak,
}

/// Returns whether a list of entity tags contains `etag`, or is `*`. `etag` is in its wire format: `"…"` or `W/"…"`.
/// Parsing of the list stops at the first malformed member; earlier members count.
#[must_use]
pub fn etag_list_matches(list: &str, etag: &str, comparison: EtagComparison) -> bool {
    if list.trim_matches([' ', '\t']) == "*" {
        return true;
    }
    let (is_weak, opaque) = split_weak(etag);
    if is_weak && comparison == EtagComparison::Strong {
        return false;
    }
    let mut rest = list;
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        let (member_is_weak, tag) = split_weak(rest);
        // The opaque part may contain commas, so it is parsed from quote to quote.
        let Some(end) = tag.strip_prefix('"').and_then(|inside| inside.find('"')) else {
            return false;
        };
        let (member, after) = tag.split_at(end + 2);
        if member == opaque && !(member_is_weak && comparison == EtagComparison::Strong) {
            return true;
        }
        rest = after;
    }
}

fn split_weak(etag: &str) -> (bool, &str) {
    etag.strip_prefix("W/")
        .map_or((false, etag), |opaque| (true, opaque))
}
