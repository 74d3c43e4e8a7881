//! Maps request paths to files, and refuses ambiguous paths.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;
use veche_proto::http::encoded_path;

/// The only hidden name that is served, and only directly below the root (RFC 8615).
const WELL_KNOWN: &str = ".well-known";

/// Returns the path below the root for a normalised request path: names joined by `/`, empty for the root itself.
/// Returns `None` for every path that could lead out of the root or that programs may interpret differently: if one
/// of its names is `.`, `..`, empty or hidden, or contains a slash, backslash or control character.
pub(super) fn relative(below: &str) -> Option<Cow<'_, str>> {
    let below = below.strip_prefix('/').unwrap_or(below);
    let below = below.strip_suffix('/').unwrap_or(below);
    if below.is_empty() {
        return Some(Cow::Borrowed(below));
    }
    if !below.contains('%') {
        return below
            .split('/')
            .enumerate()
            .all(|(depth, name)| is_safe_name(depth, name))
            .then_some(Cow::Borrowed(below));
    }
    let mut relative = String::with_capacity(below.len());
    for (depth, name) in below.split('/').enumerate() {
        let name = percent_decode_str(name).decode_utf8().ok()?;
        if !is_safe_name(depth, &name) {
            return None;
        }
        if depth > 0 {
            relative.push('/');
        }
        relative.push_str(&name);
    }
    Some(Cow::Owned(relative))
}

/// Returns whether a decoded path that is not empty passes the checks of `relative`.
pub(super) fn is_safe(relative: &str) -> bool {
    let mut names = relative.split('/').enumerate();
    names.all(|(depth, name)| is_safe_name(depth, name))
}

fn is_safe_name(depth: usize, name: &str) -> bool {
    let is_hidden = name.starts_with('.') && !(depth == 0 && name == WELL_KNOWN);
    !name.is_empty()
        && !is_hidden
        && !name
            .bytes()
            .any(|byte| matches!(byte, b'/' | b'\\' | 0..=0x1f | 0x7f))
}

/// Returns the target of the redirect for a folder that was requested without a slash at the end; `path` is
/// normalised. The target is relative and has no host, so that no path can redirect to another site.
pub(super) fn with_slash(path: &str, query: &str) -> String {
    let name = encoded_path(path.rsplit('/').next().unwrap_or_default());
    let mark = if query.is_empty() { "" } else { "?" };
    format!("./{name}/{mark}{query}")
}
