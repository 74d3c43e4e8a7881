//! Conditional requests (RFC 9110 section 13): whether the client already has the current version of the file.

use std::time::SystemTime;

use veche_proto::http::{EtagComparison, Head, etag_list_matches};

use super::FileMetadata;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Precondition {
    Send,
    /// The client has the current version: 304.
    NotModified,
    /// A precondition of the client failed: 412.
    Failed,
}

/// Evaluates the conditions of a request in the order of RFC 9110 section 13.2.2. Invalid dates are ignored.
pub(super) fn evaluate(head: &Head<'_>, file: &FileMetadata) -> Precondition {
    let mut if_match = head.header_all("if-match").peekable();
    if if_match.peek().is_some() {
        if !if_match.any(|list| etag_list_matches(list, &file.etag, EtagComparison::Strong)) {
            return Precondition::Failed;
        }
    } else if let Some(since) = head.header("if-unmodified-since").and_then(unix_s)
        && file.modified_unix_s > since
    {
        return Precondition::Failed;
    }
    let mut if_none_match = head.header_all("if-none-match").peekable();
    if if_none_match.peek().is_some() {
        if if_none_match.any(|list| etag_list_matches(list, &file.etag, EtagComparison::Weak)) {
            return Precondition::NotModified;
        }
    } else if let Some(since) = head.header("if-modified-since")
        && (*since == *file.last_modified
            || unix_s(since).is_some_and(|since| file.modified_unix_s <= since))
    {
        return Precondition::NotModified;
    }
    Precondition::Send
}

/// Parses the date in a header to seconds since 1970.
fn unix_s(date: &str) -> Option<u64> {
    let date = httpdate::parse_http_date(date).ok()?;
    date.duration_since(SystemTime::UNIX_EPOCH)
        .ok()
        .map(|since| since.as_secs())
}
