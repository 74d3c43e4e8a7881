//! Range requests (RFC 9110 section 14): the response contains one range of bytes, or the whole file.

use std::ops::Range;

use veche_proto::http::{Head, Method};

use super::FileMetadata;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RangeChoice {
    Whole,
    /// Send this range, which is never empty.
    Part(Range<u64>),
    Unsatisfiable,
}

/// Selects the part of the file to send. The whole file is sent if the request has several ranges, an invalid range, or
/// a range of another version of the file. RFC 9110 section 14.2 permits a server to ignore several ranges, so a
/// request with many overlapping ranges does no harm.
pub(super) fn choose(head: &Head<'_>, file: &FileMetadata) -> RangeChoice {
    let Some(range) = head.header("range").filter(|_| head.method == Method::Get) else {
        return RangeChoice::Whole;
    };
    // RFC 9110 section 13.1.5: `If-Range` has to contain a strong entity tag, or exactly the date that the server sent.
    let is_of_this_version = head
        .header_bytes("if-range")
        .is_none_or(|of| of == file.etag.as_bytes() || of == file.last_modified.as_bytes());
    if !is_of_this_version || head.header_all("range").count() > 1 {
        return RangeChoice::Whole;
    }
    parse(range, file.len_bytes).unwrap_or(RangeChoice::Whole)
}

/// Parses the header; returns `None` unless it contains a single range of bytes.
fn parse(range: &str, len_bytes: u64) -> Option<RangeChoice> {
    let unit_end = range.find('=')?;
    let (unit, spec) = (
        &range[..unit_end],
        range[unit_end + 1..].trim_matches([' ', '\t']),
    );
    if !unit.eq_ignore_ascii_case("bytes") {
        return None;
    }
    let (first, last) = spec.split_once('-')?;
    if first.is_empty() {
        let suffix = number(last)?;
        if suffix == 0 || len_bytes == 0 {
            return Some(RangeChoice::Unsatisfiable);
        }
        return Some(RangeChoice::Part(
            len_bytes.saturating_sub(suffix)..len_bytes,
        ));
    }
    let first = number(first)?;
    let last = if last.is_empty() {
        u64::MAX
    } else {
        number(last)?
    };
    if last < first {
        return None;
    }
    if first >= len_bytes {
        return Some(RangeChoice::Unsatisfiable);
    }
    Some(RangeChoice::Part(
        first..last.saturating_add(1).min(len_bytes),
    ))
}

/// Parses decimal digits. Numbers that are too large become the maximum.
fn number(digits: &str) -> Option<u64> {
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(digits.parse().unwrap_or(u64::MAX))
}
