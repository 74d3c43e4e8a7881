//! The normal form of a request's path: the only spelling used by everything behind the parser.
//!
//! If two components interpret one path differently, they disagree on which rules apply to it: a router that compares
//! bytes lets `/%70rivate` pass a rule on `/private`, although a handler decodes it. So a path is interpreted once,
//! here (RFC 3986 section 6.2.2):
//!
//! - Percent-encoded bytes are decoded once. Two stay encoded, in upper case: `%2F`, since a slash within a name is not
//!   a separator, and `%25`, since a decoded percent sign could be taken for the start of another encoded byte. So
//!   decoding a segment of a normal path once more yields its text, and normalising is idempotent.
//! - `.` and `..` are resolved, encoded or not, without leaving the root.
//! - Consecutive slashes are merged. A slash at the end stays: `/a` and `/a/` are two paths.
//! - Percent signs without two hexadecimal digits, backslashes and NUL (encoded or not), and paths that are not UTF-8
//!   when decoded are refused: parsers interpret each of them differently.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use super::HttpError;

/// Characters that a path can't contain unencoded (`pchar` of RFC 3986 section 3.3), except `%`,
/// which is already encoded in a normal path.
const NOT_IN_PATH: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// How a byte affects [`split`].
#[derive(Clone, Copy, PartialEq, Eq)]
enum SegmentByte {
    Plain,
    /// `/` or `.`: if the byte follows a slash, the path is possibly not normal.
    Before,
    /// `?` or `#`: ends the path.
    End,
    Closer,
}

static SEGMENT_BYTES: [SegmentByte; 256] = {
    let mut table = [SegmentByte::Plain; 256];
    table[b'/' as usize] = SegmentByte::Before;
    table[b'.' as usize] = SegmentByte::Before;
    table[b'?' as usize] = SegmentByte::End;
    table[b'#' as usize] = SegmentByte::End;
    table[b'%' as usize] = SegmentByte::Closer;
    table[b'\\' as usize] = SegmentByte::Closer;
    table[0] = SegmentByte::Closer;
    table
};

/// Splits a target that begins with a path into the normalised path and the query after `?`. Scans the path once, and
/// borrows it if it is already normal.
///
/// # Errors
/// Those of [`normal_path`], and 400 for a fragment.
#[inline]
pub(super) fn split(target: &str) -> Result<(Cow<'_, str>, &str), HttpError> {
    let bytes = target.as_bytes();
    let mut is_plain = true;
    let mut end = bytes.len();
    for (at, &byte) in bytes.iter().enumerate() {
        match SEGMENT_BYTES[byte as usize] {
            SegmentByte::Plain => {}
            SegmentByte::Before => is_plain &= at == 0 || bytes[at - 1] != b'/',
            SegmentByte::Closer => is_plain = false,
            SegmentByte::End => {
                end = at;
                break;
            }
        }
    }
    let (path, rest) = target.split_at(end);
    // Clients must not send fragments.
    if memchr::memchr(b'#', rest.as_bytes()).is_some() {
        return Err(HttpError::bad("the request target contains a fragment (#)"));
    }
    let path = match is_plain {
        true => Cow::Borrowed(path),
        false => normal_path(path)?,
    };
    Ok((path, rest.get(1..).unwrap_or_default()))
}

/// Encodes a normal path for a URL: ASCII, percent-encoded where needed.
#[must_use]
pub fn encoded_path(normal: &str) -> Cow<'_, str> {
    utf8_percent_encode(normal, NOT_IN_PATH).into()
}

/// Returns the normal form of a path that begins with `/`, borrowed if it is already normal.
///
/// # Errors
/// 400 for malformed percent signs, backslashes, NUL and invalid UTF-8.
#[cold]
pub fn normal_path(path: &str) -> Result<Cow<'_, str>, HttpError> {
    let mut normal = String::with_capacity(path.len());
    let mut is_folder = false;
    let mut segment = Vec::new();
    for raw in path.strip_prefix('/').unwrap_or(path).split('/') {
        segment.clear();
        decode(raw.as_bytes(), &mut segment)?;
        let Ok(text) = str::from_utf8(&segment) else {
            return Err(HttpError::bad("the path is not UTF-8"));
        };
        is_folder = matches!(text, "" | "." | "..");
        match text {
            "" | "." => {}
            ".." => normal.truncate(normal.rfind('/').unwrap_or(0)),
            _ => {
                normal.push('/');
                normal.push_str(text);
            }
        }
    }
    if is_folder {
        normal.push('/');
    }
    Ok(if normal == path {
        Cow::Borrowed(path)
    } else {
        Cow::Owned(normal)
    })
}

/// Decodes a segment, except for `%2F` and `%25`, and appends it.
fn decode(raw: &[u8], out: &mut Vec<u8>) -> Result<(), HttpError> {
    const FORBIDDEN: HttpError = HttpError::bad("the path contains a backslash or NUL");
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let mut rest = raw;
    while let [first, after @ ..] = rest {
        let (byte, is_encoded);
        (byte, is_encoded, rest) = match (first, after) {
            (b'%', [high, low, after @ ..]) => match (digit(*high), digit(*low)) {
                (Some(high), Some(low)) => ((high << 4 | low) as u8, true, after),
                _ => return Err(MALFORMED),
            },
            (b'%', _) => return Err(MALFORMED),
            _ => (*first, false, after),
        };
        match byte {
            b'/' if is_encoded => out.extend_from_slice(b"%2F"),
            b'%' => out.extend_from_slice(b"%25"),
            b'\\' | 0 => return Err(FORBIDDEN),
            _ => out.push(byte),
        }
    }
    Ok(())
}

const MALFORMED: HttpError =
    HttpError::bad("a percent sign in the path is not followed by two hexadecimal digits");

#[cfg(test)]
mod tests {
    use percent_encoding::percent_decode_str;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_path_has_one_spelling() {
        for (path, normal) in [
            ("/", "/"),
            ("/private/x", "/private/x"),
            ("/%70rivate/x", "/private/x"),
            ("/%40admin", "/@admin"),
            ("/id/%73taff/7", "/id/staff/7"),
            ("/a%20b/%C3%A9", "/a b/é"),
            ("/a b/é", "/a b/é"),
            ("/%2570rivate", "/%2570rivate"),
            ("/100%25", "/100%25"),
            ("/%252F", "/%252F"),
            ("/a%2fb", "/a%2Fb"),
            ("/a%2Fb", "/a%2Fb"),
            ("/..%2fa", "/..%2Fa"),
            ("/a/../private/x", "/private/x"),
            ("/a/%2e%2e/private/x", "/private/x"),
            ("/a/.%2E/private/./x", "/private/x"),
            ("/a/b/..", "/a/"),
            ("/a/b/%2e", "/a/b/"),
            ("/..", "/"),
            ("/../../a", "/a"),
            ("//private", "/private"),
            ("/a//b///", "/a/b/"),
            ("/a//../b", "/b"),
            ("/.well-known/x", "/.well-known/x"),
            ("/a/...", "/a/..."),
            ("/a.b/c..", "/a.b/c.."),
            ("/%3Aid/%2A", "/:id/*"),
            ("/a%0Ab", "/a\nb"),
            ("/a%3Fb%23", "/a?b#"),
        ] {
            assert_eq!(normal_path(path).as_deref(), Ok(normal), "{path}");
        }
    }

    #[test]
    fn what_readers_differ_over_is_refused() {
        for path in [
            "/%",
            "/%7",
            "/%zz",
            "/%+1",
            "/a%",
            "/%u0070",
            "/100%/x",
            "/a\\b",
            "/a%5Cb",
            "/a%5c..",
            "/%00",
            "/a\0",
            "/%ff",
            "/%c0%ae%c0%ae/a",
            "/%e2%82",
            "/%ff/../a",
            "/%00/../a",
            "/%ed%a0%80",
        ] {
            let error = normal_path(path).expect_err(path);
            assert_eq!(error.status.0, 400, "{path}");
        }
    }

    #[test]
    fn what_is_normal_is_borrowed() {
        for path in ["/", "/ws", "/a/b.c/", "/.well-known/a", "/a%2Fb", "/é"] {
            assert!(matches!(normal_path(path), Ok(Cow::Borrowed(_))), "{path}");
            assert!(matches!(split(path), Ok((Cow::Borrowed(_), ""))), "{path}");
        }
    }

    #[test]
    fn a_query_stays_as_it_is() {
        for (target, path, query) in [
            ("/a?%70=/../x//%5C", "/a", "%70=/../x//%5C"),
            ("/%61?%zz", "/a", "%zz"),
            ("/a%3Fb?c?d", "/a?b", "c?d"),
            ("/?", "/", ""),
        ] {
            let (found, rest) = split(target).expect(target);
            assert_eq!((&*found, rest), (path, query), "{target}");
        }
        for target in ["/a#b", "/a?b#c", "/%61#b"] {
            assert_eq!(split(target).expect_err(target).status.0, 400);
        }
    }

    /// Returns a spelling of a path: each byte unencoded, or encoded with hexadecimal digits in
    /// either case.
    fn spelled(text: &str, choices: &[u8]) -> String {
        let mut choices = choices.iter().copied().cycle();
        let mut spelling = String::new();
        for c in text.chars() {
            let choice = choices.next().unwrap_or(0);
            if c == '/' || (choice % 3 == 0 && !matches!(c, '%' | '\\' | '\0')) {
                spelling.push(c);
                continue;
            }
            for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                spelling += &match choice % 3 {
                    1 => format!("%{byte:02X}"),
                    _ => format!("%{byte:02x}"),
                };
            }
        }
        spelling
    }

    proptest! {
        #[test]
        fn all_spellings_of_a_path_are_one(
            names in prop::collection::vec("[a-c.%/:*@ \u{e9}\n]{1,4}", 0..5),
            is_folder: bool,
            choices in prop::collection::vec(any::<u8>(), 1..20),
        ) {
            // A slash within a name is always encoded, because a plain slash would end the name.
            let escape = |name: &String| spelled(name, &choices).replace('/', "%2f");
            let path: String = names.iter().map(|name| format!("/{}", escape(name))).collect();
            let path = if is_folder || path.is_empty() { path + "/" } else { path };
            let normal = normal_path(&path).expect("nothing in it is refused");
            let mut expected: Vec<&str> = Vec::new();
            for name in &names {
                match name.as_str() {
                    "." => {}
                    ".." => drop(expected.pop()),
                    name => expected.push(name),
                }
            }
            let read: Vec<String> = normal
                .split('/')
                .skip(1)
                .filter(|segment| !segment.is_empty())
                .map(|segment| percent_decode_str(segment).decode_utf8().expect("UTF-8").into_owned())
                .collect();
            prop_assert_eq!(&read, &expected);
            let ends = names.last().is_none_or(|last| matches!(last.as_str(), "." | "..")) || is_folder;
            prop_assert_eq!(normal.ends_with('/'), ends);
        }

        #[test]
        fn a_normal_path_is_its_own_normal_form(path in "/([a-z%2F5Ce.\\\\/\u{e9}\0-]|%2[EeFf5]|%[0-9a-f]{2}){0,20}") {
            if let Ok(normal) = normal_path(&path) {
                let again = normal_path(&normal);
                prop_assert!(matches!(again, Ok(Cow::Borrowed(_))), "{path:?}: {normal:?}");
                prop_assert!(matches!(split(&path), Ok((found, "")) if found == normal));
                let encoded = encoded_path(&normal);
                prop_assert!(encoded.bytes().all(|byte| byte.is_ascii_graphic()), "{encoded:?}");
                let again = normal_path(&encoded);
                prop_assert_eq!(again.as_deref(), Ok(&*normal));
                prop_assert!(!normal.contains("//") && !normal.contains(['\\', '\0']));
                prop_assert!(normal.split('/').all(|segment| !matches!(segment, "." | "..")));
            }
        }
    }
}
