//! WebSocket URLs: RFC 6455, section 3.

use std::net::Ipv6Addr;

/// The longest URL in bytes.
const BYTES_MAX: usize = 8192;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Url {
    pub(super) is_tls: bool,
    /// A host name, or an address without brackets.
    pub(super) host: String,
    pub(super) port: u16,
    /// The value of the `Host` header; the scheme's default port is omitted.
    pub(super) authority: String,
    /// Path and query; at least `/`.
    pub(super) target: String,
}

impl Url {
    /// Parses a URL. The error is a text that follows "bad argument".
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let expected = || "ws://host:port/path or wss://host:port/path expected".to_owned();
        if text.len() > BYTES_MAX {
            return Err(format!("a URL may have at most {BYTES_MAX} bytes"));
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(
                "a URL must be printable ASCII: write other characters as %XX, and hosts as xn--…"
                    .into(),
            );
        }
        let (scheme, rest) = text.split_once("://").ok_or_else(expected)?;
        let is_tls = match scheme.to_ascii_lowercase().as_str() {
            "ws" => false,
            "wss" => true,
            _ => return Err(expected()),
        };
        // RFC 6455, section 3: a fragment is meaningless and not allowed.
        if rest.contains('#') {
            return Err("the URL of a WebSocket can't have a #fragment".into());
        }
        let at = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(at);
        if authority.contains('@') {
            return Err("a URL must not contain a name and password: send a header instead".into());
        }
        let (host, port) = split_port(authority).ok_or_else(expected)?;
        let usual = if is_tls { 443 } else { 80 };
        let port = match port {
            None => usual,
            Some(port) => port
                .parse()
                .ok()
                .filter(|port| *port != 0)
                .ok_or("a port must be a number from 1 to 65535")?,
        };
        let shown = match authority.starts_with('[') {
            true => format!("[{host}]"),
            false => host.to_owned(),
        };
        Ok(Self {
            is_tls,
            host: host.to_ascii_lowercase(),
            port,
            authority: match port == usual {
                true => shown,
                false => format!("{shown}:{port}"),
            },
            target: match target.starts_with('/') {
                true => target.to_owned(),
                false => format!("/{target}"),
            },
        })
    }
}

/// Splits `host`, `host:port`, `[v6]` or `[v6]:port`.
fn split_port(authority: &str) -> Option<(&str, Option<&str>)> {
    if let Some(rest) = authority.strip_prefix('[') {
        let (host, after) = rest.split_once(']')?;
        host.parse::<Ipv6Addr>().ok()?;
        return match after {
            "" => Some((host, None)),
            _ => Some((host, Some(after.strip_prefix(':')?))),
        };
    }
    let (host, port) = match authority.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (authority, None),
    };
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    (!host.is_empty() && host.bytes().all(is_name)).then_some((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taken_apart() {
        let table = [
            (
                "ws://127.0.0.1:8080/chat?a=b",
                "127.0.0.1",
                8080,
                "127.0.0.1:8080",
                "/chat?a=b",
            ),
            ("WS://Example.COM", "example.com", 80, "Example.COM", "/"),
            ("ws://a:80?x", "a", 80, "a", "/?x"),
            ("wss://a", "a", 443, "a", "/"),
            ("wss://a:80/", "a", 80, "a:80", "/"),
            ("ws://[::1]:9/x", "::1", 9, "[::1]:9", "/x"),
            ("wss://[::1]", "::1", 443, "[::1]", "/"),
        ];
        for (text, host, port, authority, target) in table {
            let url = Url::parse(text).expect(text);
            let is_tls = text.starts_with("wss");
            assert_eq!(
                (
                    url.is_tls,
                    &*url.host,
                    url.port,
                    &*url.authority,
                    &*url.target
                ),
                (is_tls, host, port, authority, target),
                "{text}"
            );
        }
    }

    #[test]
    fn refused() {
        for text in [
            "",
            "ws",
            "ws:",
            "ws://",
            "ws:///x",
            "http://a/",
            "ws//a",
            "ws://a:0/",
            "ws://a:99999/",
            "ws://a:x/",
            "ws://a:/",
            "ws://[::1/",
            "ws://[x]/",
            "ws://[::1]x/",
            "ws://u:p@a/",
            "ws://a/#x",
            "ws://a/ b",
            "ws://a/\r\nX: y",
            "ws://a\0b/",
            "ws://вече/",
            "ws://a b/",
            "ws://a\"b/",
            "ws://%61/",
        ] {
            assert!(Url::parse(text).is_err(), "{text:?}");
        }
        assert!(Url::parse(&format!("ws://a/{}", "x".repeat(BYTES_MAX))).is_err());
    }
}
