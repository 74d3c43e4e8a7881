//! Whose web pages may open a WebSocket: the defence against cross-site WebSocket hijacking.
//!
//! Browsers send `Origin` and let no page forge it; other clients need not send one and are not held up by it.

/// One rule of those by which a route accepts browsers; any one suffices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Pages that were served by the same host and port (the default).
    SameHost,
    /// Pages of these origins.
    Listed(Pattern),
    /// Pages of anybody.
    Any,
}

/// `https://shop.example`, `https://*.example:8443`: a scheme, a host with at most one leading `*.`, a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    scheme: String,
    host: String,
    any_subdomain: bool,
    port: Option<u16>,
}

impl Pattern {
    /// Parses a pattern; `None` when it is no origin.
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
                // A whole label must stand before the domain: `evilexample` is not below `example`.
                host.len() > self.host.len() + 1
                    && host.is_char_boundary(host.len() - self.host.len())
                    && host[host.len() - self.host.len()..].eq_ignore_ascii_case(&self.host)
                    && host.as_bytes()[host.len() - self.host.len() - 1] == b'.'
            } else {
                host.eq_ignore_ascii_case(&self.host)
            }
    }
}

/// Whether a handshake with these `Origin` and `Host` headers may go on.
pub fn accept(rules: &[Rule], origin: Option<&str>, host: Option<&str>) -> bool {
    let Some(origin) = origin else { return true };
    let parts = split(origin);
    rules.iter().any(|rule| match (rule, parts) {
        (Rule::Any, _) => true,
        (_, None) => false,
        (Rule::Listed(pattern), Some((scheme, name, port))) => pattern.accepts(scheme, name, port),
        (Rule::SameHost, Some((scheme, name, port))) => {
            let Some((host, host_port)) = host.and_then(split_port) else {
                return false;
            };
            name.eq_ignore_ascii_case(host)
                && port.or(default_port(scheme)) == host_port.or(default_port(scheme))
        }
    })
}

/// `scheme://host[:port]`, nothing after it. `null` and the like are none.
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
    use super::*;

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
                accept(&[Rule::SameHost], origin, host),
                accepted,
                "{origin:?}"
            );
        }
        assert!(accept(
            &[Rule::SameHost],
            Some("https://good.example"),
            Some("good.example")
        ));
        assert!(accept(
            &[Rule::SameHost],
            Some("http://[::1]:80"),
            Some("[::1]")
        ));
        assert!(!accept(
            &[Rule::SameHost],
            Some("http://good.example"),
            None
        ));
    }

    #[test]
    fn listed_origins_match_whole_labels() {
        let rules = |list: &[&str]| {
            list.iter()
                .map(|&p| Rule::Listed(Pattern::parse(p).unwrap()))
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
                accept(&rules, Some(origin), Some("irrelevant")),
                accepted,
                "{origin}"
            );
        }
        assert!(Pattern::parse("shop.example").is_none());
        assert!(Pattern::parse("https://*").is_none());
        assert!(Pattern::parse("https://a.*.b").is_none());
    }
}
