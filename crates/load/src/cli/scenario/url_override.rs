//! Runs a scenario against other servers: the command line gives its URLs another base.
//!
//! A URL keeps its path and its kind (WebSocket or HTTP); only the server and the use of TLS
//! change.

use std::fmt;
use std::str::FromStr;

use super::flag_value::FlagValue;

/// Replacements for the URLs of a file.
#[derive(Clone, Debug, Default)]
pub(super) struct UrlOverride {
    pub(super) url: Option<UrlBase>,
    /// The bases for `publish` URLs: one for `tcp://`, one for HTTP and WebSocket.
    pub(super) publish: Vec<UrlBase>,
}

/// The base of a URL: scheme and server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UrlBase {
    scheme: Scheme,
    authority: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scheme {
    /// HTTP or WebSocket. A base for HTTP also replaces the bases of WebSocket URLs, and vice versa.
    Http {
        is_tls: bool,
    },
    Tcp,
}

impl FromStr for UrlBase {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || {
            "expected the beginning of a URL such as \"wss://staging.example.org\": scheme, host and port".to_owned()
        };
        let (scheme, rest) = text.split_once("://").ok_or_else(expected)?;
        let scheme = match scheme {
            "ws" | "http" => Scheme::Http { is_tls: false },
            "wss" | "https" => Scheme::Http { is_tls: true },
            "tcp" => Scheme::Tcp,
            _ => return Err(expected()),
        };
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        if authority.is_empty() || authority.contains(['/', '?', '#', '@']) {
            return Err(expected());
        }
        Ok(Self {
            scheme,
            authority: authority.to_owned(),
        })
    }
}

impl fmt::Display for UrlBase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.scheme {
            Scheme::Http { is_tls: false } => "http or ws",
            Scheme::Http { is_tls: true } => "https or wss",
            Scheme::Tcp => "tcp",
        };
        write!(f, "{scheme}://{}", self.authority)
    }
}

impl UrlOverride {
    /// Redirects the URLs in a value of the scenario file, if the user has given a base for its key.
    ///
    /// # Errors
    /// The value can't be redirected, or it would keep its server although other URLs are
    /// redirected.
    pub(super) fn take(&self, word: &mut FlagValue) -> Result<(), String> {
        let places: &[UrlBase] = match word.key.as_str() {
            "url" => self.url.as_slice(),
            "publish" if self.publish.is_empty() && self.url.is_some() => {
                return Err(format!(
                    "{} would not be redirected: --url requires --publish as well",
                    word.texts.join(", ")
                ));
            }
            "publish" => &self.publish,
            _ => &[],
        };
        if places.is_empty() {
            return Ok(());
        }
        word.change(|url| moved(url, places))
    }
}

/// Redirects a URL of the file to the matching base. Invalid URLs are unchanged and reported later.
fn moved(url: &str, places: &[UrlBase]) -> Result<String, String> {
    if !url.contains("://") {
        return Ok(url.to_owned());
    }
    let mut moved = places.iter().filter_map(|place| place.of(url));
    match (moved.next(), moved.next()) {
        (Some(one), None) => Ok(one),
        (Some(one), Some(other)) => Err(format!(
            "{url:?} could be redirected both to {one} and to {other}"
        )),
        (None, _) => {
            let places: Vec<String> = places.iter().map(ToString::to_string).collect();
            Err(format!(
                "{url:?} can't be redirected to {}",
                places.join(" or ")
            ))
        }
    }
}

impl UrlBase {
    /// Redirects a URL to this base. Returns `None` if only one of them has the scheme `tcp://`,
    /// which can't replace another scheme or be replaced by one.
    fn of(&self, url: &str) -> Option<String> {
        let (scheme, rest) = url.split_once("://")?;
        let path = rest.find(['/', '?', '#']).map_or("", |at| &rest[at..]);
        let scheme = match (scheme, self.scheme) {
            ("ws" | "wss", Scheme::Http { is_tls: false }) => "ws",
            ("ws" | "wss", Scheme::Http { is_tls: true }) => "wss",
            ("http" | "https", Scheme::Http { is_tls: false }) => "http",
            ("http" | "https", Scheme::Http { is_tls: true }) => "https",
            ("tcp", Scheme::Tcp) => "tcp",
            _ => return None,
        };
        Some(format!("{scheme}://{}{path}", self.authority))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_keeps_its_path_and_its_protocol() {
        for (place, url, moved) in [
            (
                "wss://staging.example.org",
                "ws://127.0.0.1:8080/ws?user=b{i}",
                "wss://staging.example.org/ws?user=b{i}",
            ),
            (
                "wss://staging.example.org/",
                "http://127.0.0.1:8080/",
                "https://staging.example.org/",
            ),
            (
                "http://[::1]:9000",
                "wss://a.example/echo",
                "ws://[::1]:9000/echo",
            ),
            ("ws://b:1", "ws://a", "ws://b:1"),
            ("ws://b:1", "ws://a?x=/", "ws://b:1?x=/"),
            (
                "tcp://staging:1234",
                "tcp://127.0.0.1:1234",
                "tcp://staging:1234",
            ),
            ("ws://b:1", "nonsense", "nonsense"),
        ] {
            let place: UrlBase = place.parse().unwrap();
            assert_eq!(super::moved(url, &[place]).as_deref(), Ok(moved));
        }
    }

    #[test]
    fn urls_are_assigned_by_scheme() {
        let places = |texts: &[&str]| -> Vec<UrlBase> {
            texts.iter().map(|text| text.parse().unwrap()).collect()
        };
        let both = places(&["tcp://staging:1234", "https://api.staging"]);
        for (url, moved) in [
            ("tcp://127.0.0.1:9", "tcp://staging:1234"),
            (
                "http://127.0.0.1:8081/api/push",
                "https://api.staging/api/push",
            ),
            (
                "ws://127.0.0.1:8081/api/socket",
                "wss://api.staging/api/socket",
            ),
        ] {
            assert_eq!(super::moved(url, &both).as_deref(), Ok(moved));
        }
        assert_eq!(
            moved("http://h/api/push", &both[..1]).unwrap_err(),
            "\"http://h/api/push\" can't be redirected to tcp://staging:1234"
        );
        assert_eq!(
            moved("ws://h/x", &places(&["ws://a", "http://b"])).unwrap_err(),
            "\"ws://h/x\" could be redirected both to ws://a/x and to ws://b/x"
        );
    }

    #[test]
    fn invalid_url_prefixes_are_rejected() {
        for text in [
            "staging:80",
            "ftp://staging",
            "ws://",
            "ws:///",
            "ws://a/path",
            "ws://a?x",
            "ws://u@a",
        ] {
            assert!(text.parse::<UrlBase>().is_err(), "{text}");
        }
    }
}
