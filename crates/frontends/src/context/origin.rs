//! Which origins may open a WebSocket: the defence against cross-site WebSocket hijacking.
//!
//! Browsers send `Origin` and `Sec-Fetch-Site`, which pages can't forge. Clients other than browsers need not send
//! them and are not restricted.

use veche_proto::http::Head;

/// A rule that accepts origins of pages. A route accepts an origin that matches at least one of its rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OriginCheck {
    /// Accepts pages of the same host and port as the request (the default); on a listener with TLS only pages over
    /// `https`.
    SameHost,
    /// Accepts pages whose origin matches this pattern.
    Listed(OriginPattern),
    /// Accepts pages of any origin.
    Any,
}

/// A pattern for origins such as `https://shop.example` or `https://*.example:8443`: a scheme, a host which may begin
/// with one `*.`, and optionally a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginPattern {
    scheme: String,
    host: String,
    any_subdomain: bool,
    port: Option<u16>,
}

impl OriginPattern {
    /// Parses a pattern; returns `None` if the text does not have the form of an [`OriginPattern`].
    pub fn parse(text: &str) -> Option<Self> {
        let (scheme, host, port) = split(text)?;
        let (host, any_subdomain) = match host.strip_prefix("*.") {
            Some(domain) => (domain, true),
            None => (host, false),
        };
        if host.is_empty() || host.contains('*') {
            return None;
        }
        Some(Self {
            scheme: scheme.to_ascii_lowercase(),
            host: host.to_ascii_lowercase(),
            any_subdomain,
            port: port.or(default_port(scheme)),
        })
    }

    fn accepts(&self, scheme: &str, host: &str, port: Option<u16>) -> bool {
        scheme.eq_ignore_ascii_case(&self.scheme)
            && port.or(default_port(scheme)) == self.port
            && if self.any_subdomain {
                // At least one label and a dot must precede the domain: `evilexample` is not below `example`.
                host.len() > self.host.len() + 1
                    && host.is_char_boundary(host.len() - self.host.len())
                    && host[host.len() - self.host.len()..].eq_ignore_ascii_case(&self.host)
                    && host.as_bytes()[host.len() - self.host.len() - 1] == b'.'
            } else {
                host.eq_ignore_ascii_case(&self.host)
            }
    }
}

/// Returns whether these rules accept a request's origin. `is_tls`: whether its listener uses TLS.
///
/// A browser may also send a request without `Origin`: a page can make the browser load a URL of another site as an
/// image or by navigation. The origin of such a request is unknown, but browsers mark it with `Sec-Fetch-Site`: it is
/// refused if a page of another site or origin caused it.
pub(crate) fn admits(rules: &[OriginCheck], head: &Head<'_>, is_tls: bool) -> bool {
    let host = Some(head.host).filter(|host| !host.is_empty());
    match head.header_bytes("origin") {
        None => !is_cross_origin(head),
        // An `Origin` that is not UTF-8 matches no rule.
        Some(origin) => {
            str::from_utf8(origin).is_ok_and(|origin| accept(rules, origin, host, is_tls))
        }
    }
}

/// Returns whether a browser marks the request as caused by a page of another site or origin.
pub(crate) fn is_cross_origin(head: &Head<'_>) -> bool {
    head.header_bytes("sec-fetch-site")
        .is_some_and(|site| site != b"same-origin" && site != b"none")
}

/// Returns whether one of the rules accepts this origin. `host`: the value of the request's `Host`.
fn accept(rules: &[OriginCheck], origin: &str, host: Option<&str>, is_tls: bool) -> bool {
    let parts = split(origin);
    rules.iter().any(|rule| match (rule, parts) {
        (OriginCheck::Any, _) => true,
        (_, None) => false,
        (OriginCheck::Listed(pattern), Some((scheme, name, port))) => {
            pattern.accepts(scheme, name, port)
        }
        (OriginCheck::SameHost, Some((scheme, name, port))) => {
            let Some((host, host_port)) = host.and_then(split_port) else {
                return false;
            };
            // On a listener without TLS, a proxy in front of it may use TLS, so both `http` and `https` match.
            default_port(scheme).is_some_and(|port| port == 443 || !is_tls)
                && name.eq_ignore_ascii_case(host)
                && port.or(default_port(scheme)) == host_port.or(default_port(scheme))
        }
    })
}

/// Splits `scheme://host[:port]`; returns `None` for other forms, such as an origin with a path or `null`.
fn split(origin: &str) -> Option<(&str, &str, Option<u16>)> {
    let (scheme, rest) = origin.split_once("://")?;
    let (host, port) = split_port(rest)?;
    let plain = |text: &str| !text.is_empty() && !text.contains(['/', '?', '#', '@', ' ']);
    (plain(scheme) && plain(host)).then_some((scheme, host, port))
}

pub(crate) fn split_port(authority: &str) -> Option<(&str, Option<u16>)> {
    let after_address = authority.rfind(']').map_or(0, |at| at + 1);
    match authority[after_address..].rfind(':') {
        Some(at) => {
            let (host, port) = authority.split_at(after_address + at);
            Some((host, Some(port[1..].parse().ok()?)))
        }
        None => Some((authority, None)),
    }
}

fn default_port(scheme: &str) -> Option<u16> {
    match scheme {
        _ if scheme.eq_ignore_ascii_case("http") => Some(80),
        _ if scheme.eq_ignore_ascii_case("https") => Some(443),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use veche_proto::http::{HeadLimits, HeadScan, read_head};

    use super::*;

    fn on_plain(rules: &[OriginCheck], origin: Option<&str>, host: Option<&str>) -> bool {
        origin.is_none_or(|origin| accept(rules, origin, host, false))
    }

    fn admitted(rules: &[OriginCheck], lines: impl AsRef<[u8]>, is_tls: bool) -> bool {
        let text = [b"GET / HTTP/1.1\r\nHost: a\r\n", lines.as_ref(), b"\r\n"].concat();
        let mut scan = HeadScan::default();
        let (head, _) = read_head(&mut scan, &text, &HeadLimits::default())
            .expect("a head")
            .expect("a whole one");
        admits(rules, &head, is_tls)
    }

    #[test]
    fn on_a_listener_with_tls_only_https_is_the_same() {
        for (origin, plain, tls) in [
            ("http://a", true, false),
            ("http://a:80", true, false),
            ("http://a:443", false, false),
            ("https://a", true, true),
            ("HTTPS://A:443", true, true),
            ("https://a:80", false, false),
            ("ws://a", false, false),
        ] {
            for (is_tls, expected) in [(false, plain), (true, tls)] {
                let line = format!("Origin: {origin}\r\n");
                assert_eq!(
                    admitted(&[OriginCheck::SameHost], line, is_tls),
                    expected,
                    "{origin}"
                );
            }
        }
        let with_port = Some("a:8443");
        assert!(accept(
            &[OriginCheck::SameHost],
            "https://a:8443",
            with_port,
            true
        ));
        assert!(!accept(
            &[OriginCheck::SameHost],
            "http://a:8443",
            with_port,
            true
        ));
        let listed = OriginPattern::parse("http://b").expect("an origin");
        assert!(accept(
            &[OriginCheck::Listed(listed)],
            "http://b",
            with_port,
            true
        ));
    }

    #[test]
    fn a_page_that_does_not_name_itself_is_known_by_what_its_browser_says() {
        let table: [(&[u8], bool); 10] = [
            (b"", true),
            (b"Sec-Fetch-Site: same-origin\r\n", true),
            (b"Sec-Fetch-Site: none\r\n", true),
            (b"Sec-Fetch-Site: same-site\r\n", false),
            (
                b"Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n",
                false,
            ),
            (b"Sec-Fetch-Site: \xff\r\n", false),
            (b"Origin: \xff\r\n", false),
            (b"Origin: http://a\xff\r\nSec-Fetch-Site: none\r\n", false),
            (b"Origin: http://a\r\nSec-Fetch-Site: same-site\r\n", true),
            (
                b"Origin: http://b\r\nSec-Fetch-Site: same-origin\r\n",
                false,
            ),
        ];
        for (lines, expected) in table {
            let text = String::from_utf8_lossy(lines);
            assert_eq!(
                admitted(&[OriginCheck::SameHost], lines, false),
                expected,
                "{text}"
            );
        }
        let line = b"Origin: http://b\r\nSec-Fetch-Site: cross-site\r\n";
        assert!(admitted(&[OriginCheck::Any], line, false));
        for lines in [
            b"Origin: \xff\r\n".as_slice(),
            b"Sec-Fetch-Site: cross-site\r\n",
        ] {
            assert!(!admitted(&[OriginCheck::Any], lines, false));
        }
    }

    #[test]
    fn the_same_host_is_accepted_and_its_look_alikes_are_not() {
        let host = Some("good.example:8080");
        for (origin, accepted) in [
            (Some("http://good.example:8080"), true),
            (Some("HTTP://GOOD.example:8080"), true),
            (None, true),
            (Some("null"), false),
            (Some("http://good.example"), false),
            (Some("http://good.example:8081"), false),
            (Some("http://good.example.evil:8080"), false),
            (Some("http://evil.example:8080"), false),
            (Some("http://good.example:8080/path"), false),
            (Some("http://x@good.example:8080"), false),
            (Some("http://"), false),
            (Some(""), false),
        ] {
            assert_eq!(
                on_plain(&[OriginCheck::SameHost], origin, host),
                accepted,
                "{origin:?}"
            );
        }
        assert!(on_plain(
            &[OriginCheck::SameHost],
            Some("https://good.example"),
            Some("good.example")
        ));
        assert!(on_plain(
            &[OriginCheck::SameHost],
            Some("http://[::1]:80"),
            Some("[::1]")
        ));
        assert!(!on_plain(
            &[OriginCheck::SameHost],
            Some("http://good.example"),
            None
        ));
    }

    #[test]
    fn listed_origins_match_whole_labels() {
        let rules = |list: &[&str]| {
            list.iter()
                .map(|&p| OriginCheck::Listed(OriginPattern::parse(p).unwrap()))
                .collect::<Vec<_>>()
        };
        let rules = rules(&["https://shop.example", "https://*.team.example:8443"]);
        for (origin, accepted) in [
            ("https://shop.example", true),
            ("https://shop.example:443", true),
            ("http://shop.example", false),
            ("https://a.team.example:8443", true),
            ("https://a.b.team.example:8443", true),
            ("https://team.example:8443", false),
            ("https://evilteam.example:8443", false),
            ("https://.team.example:8443", false),
            ("https://ä.team.example:8443", true),
        ] {
            assert_eq!(
                on_plain(&rules, Some(origin), Some("irrelevant")),
                accepted,
                "{origin}"
            );
        }
        assert!(OriginPattern::parse("shop.example").is_none());
        assert!(OriginPattern::parse("https://*").is_none());
        assert!(OriginPattern::parse("https://a.*.b").is_none());
    }
}
