//! Targets of a load: parsed URLs, and templates that differ per client.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};

use serde::{Deserialize, Serialize};

/// Why a URL can't be used.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// The URL is not supported.
    #[error(
        "{0:?} can't be tested: expected a URL such as wss://example.org/path; the scheme must be ws, wss, http or https"
    )]
    Malformed(String),
    /// The scheme is not supported by the command.
    #[error("{url:?}: expected {expected}")]
    Scheme {
        /// The URL as given.
        url: String,
        /// The schemes that the command supports.
        expected: &'static str,
    },
    /// The host name of the URL has no address.
    #[error("{host}: {error}")]
    Unknown {
        /// The host with its port.
        host: String,
        /// The error text of the resolver.
        error: String,
    },
}

/// The scheme of a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scheme {
    /// WebSocket without TLS: `ws://`.
    Ws,
    /// WebSocket over TLS: `wss://`.
    Wss,
    /// HTTP without TLS: `http://`.
    Http,
    /// HTTP over TLS: `https://`.
    Https,
    /// Lines over TCP: `tcp://`.
    Tcp,
}

impl Scheme {
    /// Returns whether the scheme uses TLS.
    #[must_use]
    pub fn is_tls(self) -> bool {
        matches!(self, Self::Wss | Self::Https)
    }

    /// Returns whether the scheme uses WebSocket.
    #[must_use]
    pub fn is_websocket(self) -> bool {
        matches!(self, Self::Ws | Self::Wss)
    }

    /// Returns whether the scheme uses HTTP.
    #[must_use]
    pub fn is_http(self) -> bool {
        matches!(self, Self::Http | Self::Https)
    }

    fn port(self) -> Option<u16> {
        match self {
            Self::Ws | Self::Http => Some(80),
            Self::Wss | Self::Https => Some(443),
            Self::Tcp => None,
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ws => "ws",
            Self::Wss => "wss",
            Self::Http => "http",
            Self::Https => "https",
            Self::Tcp => "tcp",
        })
    }
}

/// A parsed and resolved URL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// The scheme of the URL.
    pub scheme: Scheme,
    /// The host name or address without port and brackets, for which the certificate must be valid.
    pub host: String,
    /// Host and port as in the `Host` header.
    pub authority: String,
    /// Path and query, at least `/`; may contain `{i}`.
    pub path: ClientTemplate,
    /// The resolved addresses. The addresses of the same family as the first one are used in turn. A
    /// client that can't connect tries an address of the other family.
    pub addresses: Vec<SocketAddr>,
}

impl Target {
    /// Parses a URL and resolves its name.
    ///
    /// # Errors
    /// The URL is not supported, or the name has no address.
    pub fn parse(url: &str) -> Result<Self, TargetError> {
        let malformed = || TargetError::Malformed(url.to_owned());
        let (scheme, rest) = url.split_once("://").ok_or_else(malformed)?;
        let scheme = match scheme.to_ascii_lowercase().as_str() {
            "ws" => Scheme::Ws,
            "wss" => Scheme::Wss,
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            "tcp" => Scheme::Tcp,
            _ => return Err(malformed()),
        };
        let at = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(at);
        let path = path.split('#').next().unwrap_or_default();
        // The parts may contain only characters that are valid in a request line and a header.
        let is_safe = |part: &str| part.bytes().all(|byte| byte.is_ascii_graphic());
        if authority.is_empty() || authority.contains('@') || !is_safe(authority) || !is_safe(path)
        {
            return Err(malformed());
        }
        let (host, port) = split_port(authority).ok_or_else(malformed)?;
        let port = port.or(scheme.port()).ok_or_else(malformed)?;
        let unknown = |error: String| TargetError::Unknown {
            host: format!("{host}:{port}"),
            error,
        };
        let addresses: Vec<_> = (host, port)
            .to_socket_addrs()
            .map_err(|error| unknown(error.to_string()))?
            .collect();
        if addresses.is_empty() {
            return Err(unknown("the host has no address".to_owned()));
        }
        let path = match path.as_bytes().first() {
            Some(b'/') => path.to_owned(),
            _ => format!("/{path}"),
        };
        Ok(Self {
            scheme,
            host: host.to_owned(),
            authority: authority.to_owned(),
            path: ClientTemplate::new(&path),
            addresses,
        })
    }
}

impl Target {
    /// Returns the addresses grouped by family. The first group is the family of the first address.
    pub(crate) fn families(&self) -> Vec<Vec<SocketAddr>> {
        let is_first_v4 = self.addresses.first().is_some_and(SocketAddr::is_ipv4);
        let (first, second): (Vec<_>, Vec<_>) = self
            .addresses
            .iter()
            .partition(|address| address.is_ipv4() == is_first_v4);
        let families = [first, second].into_iter();
        families.filter(|family| !family.is_empty()).collect()
    }
}

/// Splits `host`, `host:port`, `[v6]` or `[v6]:port`.
fn split_port(authority: &str) -> Option<(&str, Option<u16>)> {
    let (host, port) = if let Some(rest) = authority.strip_prefix('[') {
        let (host, after) = rest.split_once(']')?;
        let port = if after.is_empty() {
            None
        } else {
            Some(after.strip_prefix(':')?)
        };
        (host, port)
    } else {
        match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        }
    };
    if host.is_empty() {
        return None;
    }
    match port {
        None => Some((host, None)),
        Some(port) => Some((host, Some(port.parse().ok().filter(|port| *port != 0)?))),
    }
}

/// A text in which `{i}` stands for the number of the client, from 0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClientTemplate(String);

impl ClientTemplate {
    /// Creates a template from any text, with or without `{i}`.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// Returns the text for client `number`.
    #[must_use]
    pub fn fill(&self, number: u64) -> String {
        self.0.replace("{i}", &number.to_string())
    }

    /// Returns the text before `{i}` is replaced.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether the text is the same for all clients.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        !self.0.contains("{i}")
    }
}

/// Bytes in which `{i}` stands for the number of the client, from 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BodyTemplate(Vec<u8>);

impl BodyTemplate {
    const NUMBER: &[u8] = b"{i}";

    /// Creates a template from any bytes, with or without `{i}`.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// Returns the length of the bytes before `{i}` is replaced.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether the template is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the bytes for client `number`.
    pub(crate) fn fill(&self, number: u64) -> Vec<u8> {
        let digits = number.to_string();
        let mut out = Vec::with_capacity(self.0.len() + digits.len());
        let mut rest = &self.0[..];
        while let Some((before, after)) = Self::split(rest) {
            out.extend_from_slice(before);
            out.extend_from_slice(digits.as_bytes());
            rest = after;
        }
        out.extend_from_slice(rest);
        out
    }

    /// Returns whether the bytes are the same for all clients.
    pub(crate) fn is_plain(&self) -> bool {
        Self::split(&self.0).is_none()
    }

    fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
        let at = bytes
            .windows(Self::NUMBER.len())
            .position(|window| window == Self::NUMBER)?;
        Some((&bytes[..at], &bytes[at + Self::NUMBER.len()..]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        let target = Target::parse("ws://127.0.0.1:8080/chat?user={i}#x").unwrap();
        assert_eq!(target.scheme, Scheme::Ws);
        assert_eq!(target.addresses, ["127.0.0.1:8080".parse().unwrap()]);
        assert_eq!(target.authority, "127.0.0.1:8080");
        assert_eq!(target.path.fill(7), "/chat?user=7");
        let target = Target::parse("wss://[::1]?a").unwrap();
        assert_eq!(target.addresses, ["[::1]:443".parse().unwrap()]);
        assert_eq!((target.host.as_str(), target.path.as_str()), ("::1", "/?a"));
        let target = Target::parse("tcp://127.0.0.1:1234").unwrap();
        assert_eq!(target.path.as_str(), "/");
        for bad in [
            "127.0.0.1:80",
            "ftp://x/",
            "ws://",
            "ws:///x",
            "ws://a:0/",
            "ws://a:99999/",
            "ws://a:b/",
            "ws://[::1/",
            "ws://u@a/",
            "ws://a/ b",
            "tcp://127.0.0.1",
        ] {
            assert!(
                matches!(Target::parse(bad), Err(TargetError::Malformed(_))),
                "{bad}"
            );
        }
    }

    #[test]
    fn numbers_in_a_body() {
        let body = BodyTemplate::new(b"\xff{i}, {i} and {i".to_vec());
        assert!(!body.is_plain());
        assert_eq!(body.fill(12), b"\xff12, 12 and {i");
        assert!(BodyTemplate::new(b"{ i }".to_vec()).is_plain());
    }
}
