//! Response headers that a route adds.

use veche_proto::http::{InvalidHeader, Status, check_header};

/// Response headers that a route adds; all are valid.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers(Box<[Added]>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Added {
    name: String,
    value: String,
    /// Whether error responses get it too.
    is_of_refusals: bool,
}

/// Why a route can't add a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadHeader {
    /// Its name or value is invalid.
    #[error(transparent)]
    Invalid(#[from] InvalidHeader),
    /// The value of the header is empty.
    #[error("the value is empty")]
    Empty,
    /// It belongs to the connection or to message framing.
    #[error("the server sets this header itself: it describes the connection, not the response")]
    Connection,
    /// It differs between responses.
    #[error("the server or the script sets this header on each response: it describes the body")]
    Content,
    /// It applies to some responses only.
    #[error("the server or the script sets this header on the responses that need it")]
    Single,
}

/// Headers of the connection, in addition to those that [`check_header`] refuses and all that begin with
/// `Sec-WebSocket-`.
const OF_CONNECTIONS: [&str; 4] = ["Upgrade", "Trailer", "TE", "Proxy-Connection"];

const OF_CONTENTS: [&str; 7] = [
    "Content-Type",
    "Content-Encoding",
    "Content-Range",
    "Accept-Ranges",
    "ETag",
    "Last-Modified",
    "Vary",
];

const OF_SINGLE_ANSWERS: [&str; 4] = ["Location", "Allow", "WWW-Authenticate", "Retry-After"];

impl Headers {
    /// Validates and stores headers; names must be unique.
    ///
    /// # Errors
    /// Returns the error of the first invalid header.
    pub fn new(headers: impl IntoIterator<Item = (String, String)>) -> Result<Self, BadHeader> {
        let added = headers.into_iter().map(|(name, value)| {
            Self::check(&name, &value)?;
            Ok(Added {
                is_of_refusals: !is_about_content(&name),
                name,
                value,
            })
        });
        Ok(Self(added.collect::<Result<_, BadHeader>>()?))
    }

    /// Checks whether a route can add this header.
    ///
    /// # Errors
    /// It is invalid, or set elsewhere.
    pub fn check(name: &str, value: &str) -> Result<(), BadHeader> {
        match check_header(name, value.as_bytes()) {
            Err(InvalidHeader::Reserved) => return Err(BadHeader::Connection),
            judged => judged?,
        }
        let is_in = |names: &[&str]| names.iter().any(|other| other.eq_ignore_ascii_case(name));
        if is_in(&OF_CONNECTIONS) || starts_with(name, "sec-websocket-") {
            return Err(BadHeader::Connection);
        }
        if is_in(&OF_CONTENTS) {
            return Err(BadHeader::Content);
        }
        if is_in(&OF_SINGLE_ANSWERS) {
            return Err(BadHeader::Single);
        }
        if value.trim_matches([' ', '\t']).is_empty() {
            return Err(BadHeader::Empty);
        }
        Ok(())
    }

    /// Returns the headers of a response with this status.
    pub(crate) fn of(&self, status: Status) -> impl Iterator<Item = (&str, &str)> {
        let is_refusal = !matches!(status.0, 200..=299 | 304);
        self.0
            .iter()
            .filter(move |added| added.is_of_refusals || !is_refusal)
            .map(|added| (&*added.name, &*added.value))
    }
}

/// Returns whether a header describes the requested resource and must not be on an error: no cache should store a 404
/// for a year.
fn is_about_content(name: &str) -> bool {
    const CACHE_CONTROL: &str = "cache-control";
    // `CDN-Cache-Control` (RFC 9213) and similar headers.
    let is_cache_control = name
        .len()
        .checked_sub(CACHE_CONTROL.len())
        .and_then(|at| name.get(at..))
        .is_some_and(|end| end.eq_ignore_ascii_case(CACHE_CONTROL));
    is_cache_control
        || name.eq_ignore_ascii_case("expires")
        || name.eq_ignore_ascii_case("surrogate-control")
        || starts_with(name, "content-") && !starts_with(name, "content-security-policy")
}

fn starts_with(name: &str, beginning: &str) -> bool {
    name.get(..beginning.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(beginning))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_route_can_add() {
        let rows: &[(&str, &str, Result<(), BadHeader>)] = &[
            (
                "Cache-Control",
                "public, max-age=31536000, immutable",
                Ok(()),
            ),
            (
                "Content-Security-Policy",
                "default-src 'self'; img-src *",
                Ok(()),
            ),
            ("X-Content-Type-Options", "nosniff", Ok(())),
            ("X-Robots-Tag", "none\tall", Ok(())),
            ("x", "\u{e9}", Ok(())),
            ("Server", "x", Ok(())),
            ("Te-st", "x", Ok(())),
            ("", "x", Err(BadHeader::Invalid(InvalidHeader::Name))),
            ("X Y", "x", Err(BadHeader::Invalid(InvalidHeader::Name))),
            ("X:", "x", Err(BadHeader::Invalid(InvalidHeader::Name))),
            ("X\r\nY", "x", Err(BadHeader::Invalid(InvalidHeader::Name))),
            ("\u{e9}", "x", Err(BadHeader::Invalid(InvalidHeader::Name))),
            (
                "X",
                "a\r\nSet-Cookie: b",
                Err(BadHeader::Invalid(InvalidHeader::Value)),
            ),
            ("X", "a\nb", Err(BadHeader::Invalid(InvalidHeader::Value))),
            ("X", "a\0", Err(BadHeader::Invalid(InvalidHeader::Value))),
            (
                "X",
                "a\u{7f}",
                Err(BadHeader::Invalid(InvalidHeader::Value)),
            ),
            ("X", "", Err(BadHeader::Empty)),
            ("X", " \t", Err(BadHeader::Empty)),
            ("Content-Length", "0", Err(BadHeader::Connection)),
            ("content-length", "0", Err(BadHeader::Connection)),
            ("Transfer-Encoding", "chunked", Err(BadHeader::Connection)),
            ("Connection", "close", Err(BadHeader::Connection)),
            ("Keep-Alive", "timeout=5", Err(BadHeader::Connection)),
            ("Date", "today", Err(BadHeader::Connection)),
            ("Upgrade", "h2c", Err(BadHeader::Connection)),
            ("trailer", "X", Err(BadHeader::Connection)),
            ("Sec-WebSocket-Accept", "x", Err(BadHeader::Connection)),
            ("Content-Type", "text/html", Err(BadHeader::Content)),
            ("CONTENT-ENCODING", "gzip", Err(BadHeader::Content)),
            ("ETag", "\"1\"", Err(BadHeader::Content)),
            ("Vary", "Cookie", Err(BadHeader::Content)),
            ("Last-Modified", "today", Err(BadHeader::Content)),
            ("Location", "/", Err(BadHeader::Single)),
            ("www-authenticate", "Basic", Err(BadHeader::Single)),
        ];
        for (name, value, expected) in rows {
            assert_eq!(
                Headers::check(name, value),
                *expected,
                "{name:?}: {value:?}"
            );
            let headers = Headers::new([((*name).to_owned(), (*value).to_owned())]);
            assert_eq!(headers.map(drop), *expected, "{name:?}: {value:?}");
        }
    }

    #[test]
    fn which_answers_have_it() {
        let rows = [
            ("Cache-Control", false),
            ("cache-control", false),
            ("CDN-Cache-Control", false),
            ("Expires", false),
            ("Content-Disposition", false),
            ("Content-Language", false),
            ("Content-Security-Policy", true),
            ("Content-Security-Policy-Report-Only", true),
            ("Strict-Transport-Security", true),
            ("X-Frame-Options", true),
            ("Access-Control-Allow-Origin", true),
            ("Cache", true),
        ];
        for (name, is_of_refusals) in rows {
            let headers = Headers::new([(name.to_owned(), "x".to_owned())]).unwrap();
            for status in [200, 201, 204, 206, 304] {
                assert_eq!(headers.of(Status(status)).count(), 1, "{name} {status}");
            }
            for status in [301, 400, 403, 404, 406, 412, 416, 500, 503] {
                let count = headers.of(Status(status)).count();
                assert_eq!(count == 1, is_of_refusals, "{name} {status}");
            }
        }
    }
}
