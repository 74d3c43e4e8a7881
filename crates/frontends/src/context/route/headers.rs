//! Response headers that a route adds.

use veche_proto::http::{InvalidHeader, Status, check_header};

/// The response headers that a route adds, all of them valid.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteHeaders(Box<[Added]>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Added {
    name: String,
    value: String,
    /// Whether the header is also added to error responses.
    is_of_refusals: bool,
}

/// Why a route can't add a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// The header's name or value is invalid.
    #[error(transparent)]
    Invalid(#[from] InvalidHeader),
    /// The value of the header is empty.
    #[error("the value is empty")]
    Empty,
    /// The header belongs to the connection or to the framing of messages.
    #[error("the server sets this header itself: it describes the connection, not the response")]
    Connection,
    /// The header describes the body, so each response sets its own.
    #[error("the server or the script sets this header on each response: it describes the body")]
    Content,
    /// The header belongs to single responses, such as a redirect: the server or the script sets it on those.
    #[error("the server or the script sets this header on the responses that need it")]
    Single,
}

/// Headers that a route can't add because they concern the connection. A route also can't add
/// headers that [`check_header`] refuses, or that begin with `Sec-WebSocket-`.
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

impl RouteHeaders {
    /// Validates and stores headers; names must be unique.
    ///
    /// # Errors
    /// Returns the error of the first invalid header.
    pub fn new(headers: impl IntoIterator<Item = (String, String)>) -> Result<Self, HeaderError> {
        let added = headers.into_iter().map(|(name, value)| {
            Self::check(&name, &value)?;
            Ok(Added {
                is_of_refusals: !is_about_content(&name),
                name,
                value,
            })
        });
        Ok(Self(added.collect::<Result<_, HeaderError>>()?))
    }

    /// Checks whether a route can add this header.
    ///
    /// # Errors
    /// The header is invalid or empty, or the server or a script sets it.
    pub fn check(name: &str, value: &str) -> Result<(), HeaderError> {
        match check_header(name, value.as_bytes()) {
            Err(InvalidHeader::Reserved) => return Err(HeaderError::Connection),
            verified => verified?,
        }
        let is_in = |names: &[&str]| names.iter().any(|other| other.eq_ignore_ascii_case(name));
        if is_in(&OF_CONNECTIONS) || starts_with(name, "sec-websocket-") {
            return Err(HeaderError::Connection);
        }
        if is_in(&OF_CONTENTS) {
            return Err(HeaderError::Content);
        }
        if is_in(&OF_SINGLE_ANSWERS) {
            return Err(HeaderError::Single);
        }
        if value.trim_matches([' ', '\t']).is_empty() {
            return Err(HeaderError::Empty);
        }
        Ok(())
    }

    /// Returns the headers to add to a response with this status.
    pub(crate) fn of(&self, status: Status) -> impl Iterator<Item = (&str, &str)> {
        let is_refusal = !matches!(status.0, 200..=299 | 304);
        self.0
            .iter()
            .filter(move |added| added.is_of_refusals || !is_refusal)
            .map(|added| (&*added.name, &*added.value))
    }
}

/// Returns whether a header describes the requested resource and must therefore not be added to an error response: no
/// cache should keep a 404 for a year.
fn is_about_content(name: &str) -> bool {
    const CACHE_CONTROL: &str = "cache-control";
    // Matches headers such as `CDN-Cache-Control` (RFC 9213) too.
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
        let rows: &[(&str, &str, Result<(), HeaderError>)] = &[
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
            ("", "x", Err(HeaderError::Invalid(InvalidHeader::Name))),
            ("X Y", "x", Err(HeaderError::Invalid(InvalidHeader::Name))),
            ("X:", "x", Err(HeaderError::Invalid(InvalidHeader::Name))),
            (
                "X\r\nY",
                "x",
                Err(HeaderError::Invalid(InvalidHeader::Name)),
            ),
            (
                "\u{e9}",
                "x",
                Err(HeaderError::Invalid(InvalidHeader::Name)),
            ),
            (
                "X",
                "a\r\nSet-Cookie: b",
                Err(HeaderError::Invalid(InvalidHeader::Value)),
            ),
            ("X", "a\nb", Err(HeaderError::Invalid(InvalidHeader::Value))),
            ("X", "a\0", Err(HeaderError::Invalid(InvalidHeader::Value))),
            (
                "X",
                "a\u{7f}",
                Err(HeaderError::Invalid(InvalidHeader::Value)),
            ),
            ("X", "", Err(HeaderError::Empty)),
            ("X", " \t", Err(HeaderError::Empty)),
            ("Content-Length", "0", Err(HeaderError::Connection)),
            ("content-length", "0", Err(HeaderError::Connection)),
            ("Transfer-Encoding", "chunked", Err(HeaderError::Connection)),
            ("Connection", "close", Err(HeaderError::Connection)),
            ("Keep-Alive", "timeout=5", Err(HeaderError::Connection)),
            ("Date", "today", Err(HeaderError::Connection)),
            ("Upgrade", "h2c", Err(HeaderError::Connection)),
            ("trailer", "X", Err(HeaderError::Connection)),
            ("Sec-WebSocket-Accept", "x", Err(HeaderError::Connection)),
            ("Content-Type", "text/html", Err(HeaderError::Content)),
            ("CONTENT-ENCODING", "gzip", Err(HeaderError::Content)),
            ("ETag", "\"1\"", Err(HeaderError::Content)),
            ("Vary", "Cookie", Err(HeaderError::Content)),
            ("Last-Modified", "today", Err(HeaderError::Content)),
            ("Location", "/", Err(HeaderError::Single)),
            ("www-authenticate", "Basic", Err(HeaderError::Single)),
        ];
        for (name, value, expected) in rows {
            assert_eq!(
                RouteHeaders::check(name, value),
                *expected,
                "{name:?}: {value:?}"
            );
            let headers = RouteHeaders::new([((*name).to_owned(), (*value).to_owned())]);
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
            let headers = RouteHeaders::new([(name.to_owned(), "x".to_owned())]).unwrap();
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
