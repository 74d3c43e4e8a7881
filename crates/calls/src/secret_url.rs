//! URLs that may contain secrets: user information before the host, keys in the query.

use std::fmt;

/// The replacement of a secret.
const MASK: &str = "***";

/// A URL whose text form has only scheme, host, port and path: `https://***@host/path?***`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct SecretUrl(String);

impl SecretUrl {
    /// Wraps a complete URL without validating it.
    #[must_use]
    pub fn new(url: String) -> Self {
        Self(url)
    }

    /// Returns the complete URL, for requests and comparisons only.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&masked(&self.0))
    }
}

impl fmt::Debug for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&masked(&self.0), f)
    }
}

/// Returns `url` without its user information, query and fragment (RFC 3986, section 3), even if it is invalid.
#[must_use]
pub fn masked(url: &str) -> String {
    let (scheme, rest) = match url.find("//") {
        Some(at) if at == 0 || url[..at].ends_with(':') => url.split_at(at + 2),
        _ => ("", url),
    };
    let is_web = scheme.starts_with("http");
    let authority_ends = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let user_ends = match rest[..authority_ends].rfind('@') {
        Some(at) => Some(at),
        // A password with an unescaped `/`, `?` or `#` seems to end the authority. Then the last "@" ends the user
        // information. But paths of web URLs may contain an "@" too, so there the last "@" counts only if the text
        // after the host is neither empty nor a numeric port.
        None if !is_web || !has_port_or_none(&rest[..authority_ends]) => rest.rfind('@'),
        None => None,
    };
    let (user, rest) = match user_ends {
        Some(at) => (MASK, &rest[at..]),
        None => ("", rest),
    };
    let shown_ends = rest.find(['?', '#']).unwrap_or(rest.len());
    let (shown, hidden) = rest.split_at(shown_ends);
    let (mark, mask) = match hidden.get(..1) {
        Some(mark) => (mark, MASK),
        None => ("", ""),
    };
    format!("{scheme}{user}{shown}{mark}{mask}")
}

fn has_port_or_none(authority: &str) -> bool {
    let port = match authority.rsplit_once(':') {
        Some((_, port)) if !port.ends_with(']') => port,
        _ => "",
    };
    port.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_masked_and_the_rest_is_not() {
        for (url, expected) in [
            ("http://h", "http://h"),
            ("mysql://u:12/3@h/db", "mysql://***@h/db"),
            ("https://h:443/@user", "https://h:443/@user"),
            ("https://h:8/a/b", "https://h:8/a/b"),
            ("https://h/a?key=SECRET&x", "https://h/a?***"),
            ("https://h?SECRET", "https://h?***"),
            ("https://h/a#SECRET?SECRET", "https://h/a#***"),
            ("https://h/a?m=a@b", "https://h/a?***"),
            ("https://h/@ann", "https://h/@ann"),
            ("https://u:SECRET@h:8/a?SECRET", "https://***@h:8/a?***"),
            ("redis://:SECRET@[::1]:6379/0", "redis://***@[::1]:6379/0"),
            ("http://[::1]/a@b", "http://[::1]/a@b"),
            ("mysql://u:SE/CRET@h/db", "mysql://***@h/db"),
            ("mysql://u:SE?CRET@h/db", "mysql://***@h/db"),
            ("mysql://u:SE#CRET@SECRET@h/db", "mysql://***@h/db"),
            ("http:https://h/?SECRET", "http:https://h/?***"),
            ("/next?code=SECRET", "/next?***"),
            ("//u:SECRET@h/next", "//***@h/next"),
            ("u:SECRET@h?SECRET", "***@h?***"),
            ("", ""),
        ] {
            assert_eq!(masked(url), expected, "{url}");
            let secret = SecretUrl::new(url.to_owned());
            assert_eq!(secret.to_string(), expected);
            assert!(!format!("{secret:?}").contains("SECRET"));
            assert_eq!(secret.expose(), url);
        }
    }
}
