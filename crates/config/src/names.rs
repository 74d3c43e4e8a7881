//! The syntax of strings: paths, methods, origins, channel patterns, identities.
//!
//! Each type has a `parse` function, whose error describes the expected form. The front ends do the matching.

use std::fmt;
use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net};
use url::Url;
use veche_calls::{SecretUrl, masked};
use veche_frontends::access::ClientAddress;
use veche_frontends::identity::token::{Anonymous, TokenSource};
use veche_hub::{Audience, Namespaces};
use veche_pam::PamService;

/// A route's path: exact (`/app`), with parameters (`/room/:id`), or a prefix (`/app/*`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoutePath {
    text: String,
    segments: Vec<Segment>,
    prefix: bool,
}

/// A segment of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    /// A literal segment, which the path of a request must contain at the same position.
    Literal(String),
    /// `:name`: matches any single segment, and passes it to the handler under this name.
    Parameter(String),
}

/// Maximum number of segments of a path.
pub(crate) const SEGMENTS_MAX: usize = 32;

impl RoutePath {
    /// Parses a path; the error describes the problem.
    pub fn parse(text: &str) -> Result<Self, String> {
        let Some(rest) = text.strip_prefix('/') else {
            return Err("a path must start with \"/\"".to_owned());
        };
        let mut segments: Vec<Segment> = Vec::new();
        let mut prefix = false;
        let mut pieces = rest.split('/').peekable();
        while let Some(piece) = pieces.next() {
            let is_last = pieces.peek().is_none();
            match piece {
                "*" if is_last => prefix = true,
                // A path that ends in a slash has an empty last segment, since `/a/` and `/a` are different paths.
                "" if is_last => segments.push(Segment::Literal(String::new())),
                "" => return Err("the path has two slashes in a row".to_owned()),
                _ if piece.contains('*') => {
                    return Err(
                        "\"*\" may only be the whole last segment, as in \"/app/*\"".to_owned()
                    );
                }
                _ => segments.push(Segment::parse(piece, &segments)?),
            }
        }
        if segments.len() > SEGMENTS_MAX {
            return Err(format!("a path may have at most {SEGMENTS_MAX} segments"));
        }
        Ok(Self {
            text: text.to_owned(),
            segments,
            prefix,
        })
    }

    /// Returns the path as written in the configuration.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the segments, without the `*` of a prefix.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Returns whether the path ends in `/*` and matches everything below.
    #[cfg(test)]
    pub fn is_prefix(&self) -> bool {
        self.prefix
    }

    /// Returns whether both paths match the same requests, regardless of parameter names.
    pub fn same_as(&self, other: &Self) -> bool {
        self.prefix == other.prefix
            && self.segments.len() == other.segments.len()
            && self
                .segments
                .iter()
                .zip(&other.segments)
                .all(|pair| match pair {
                    (Segment::Parameter(_), Segment::Parameter(_)) => true,
                    (a, b) => a == b,
                })
    }
}

impl Segment {
    fn parse(piece: &str, before: &[Self]) -> Result<Self, String> {
        let Some(name) = piece.strip_prefix(':') else {
            let allowed =
                |c: char| !c.is_control() && !matches!(c, '?' | '#' | '"' | '<' | '>' | '\\' | '%');
            return match piece.chars().find(|&c| !allowed(c)) {
                _ if matches!(piece, "." | "..") => Err(format!(
                    "the segment {piece:?} would never match: clients resolve it before they send a request"
                )),
                Some('%') => Err("paths are compared decoded: write the character instead of \"%\" and its digits".to_owned()),
                Some(c) => Err(format!("{c:?} can't be in a path")),
                None => Ok(Self::Literal(piece.to_owned())),
            };
        };
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            return Err(format!(
                "a parameter must consist of \":\" and letters, digits or \"_\", not {piece:?}"
            ));
        }
        if before
            .iter()
            .any(|segment| matches!(segment, Self::Parameter(other) if other == name))
        {
            return Err(format!("two parameters have the name {piece:?}"));
        }
        Ok(Self::Parameter(name.to_owned()))
    }
}

/// The methods that a route can be bound to.
pub(crate) const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"];

/// A set of methods, each from [`METHODS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct MethodSet(u8);

impl MethodSet {
    /// Returns the set of the valid methods among `names`.
    pub fn of(names: &[&str]) -> Self {
        let bit = |name: &&str| {
            METHODS
                .iter()
                .position(|method| method == name)
                .map_or(0, |at| 1 << at)
        };
        Self(names.iter().map(bit).fold(0, |set, bit: u8| set | bit))
    }

    /// Returns whether the set contains `name`, in capitals as on the wire.
    pub fn contains(self, name: &str) -> bool {
        !self.and(Self::of(&[name])).is_empty()
    }

    /// Returns the names in the order of [`METHODS`].
    pub fn iter(self) -> impl Iterator<Item = &'static str> {
        METHODS.into_iter().filter(move |name| self.contains(name))
    }

    /// Returns the methods that both sets contain.
    pub fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// A rule for the `Origin` header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OriginRule {
    /// `"*"`: every origin is allowed.
    Any,
    /// `"same-host"`: the origin's host and port are the request's `Host`.
    SameHost,
    /// `"https://x.example:8443"`: exactly this origin, in lower case.
    Exact(String),
    /// `"https://*.example"`: every host that ends in `suffix` (which starts with a dot), with this scheme and port.
    Subdomains {
        /// The scheme, usually `http` or `https`.
        scheme: String,
        /// The suffix of the host, including its dot.
        suffix: String,
        /// The port; `None`: the scheme's default.
        port: Option<u16>,
    },
}

impl OriginRule {
    /// Parses a rule; the error describes the problem.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "*" => return Ok(Self::Any),
            "same-host" => return Ok(Self::SameHost),
            _ => {}
        }
        let text = text.to_ascii_lowercase();
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err("an origin must start with its scheme, as in \"https://\"".to_owned());
        };
        if scheme.is_empty()
            || !scheme
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
        {
            return Err(format!("{scheme:?} is not a scheme"));
        }
        if rest.contains('/') {
            return Err(
                "an origin must end after host and port, without a path or slash".to_owned(),
            );
        }
        let (host, port) = split_port(rest)?;
        if let Some(parent) = host.strip_prefix("*.") {
            check_host(parent)?;
            return Ok(Self::Subdomains {
                scheme: scheme.to_owned(),
                suffix: format!(".{parent}"),
                port,
            });
        }
        check_host(host)?;
        Ok(Self::Exact(text))
    }
}

fn split_port(rest: &str) -> Result<(&str, Option<u16>), String> {
    let colon = match rest.rfind(']') {
        Some(bracket) => rest[bracket..].find(':').map(|at| bracket + at),
        None => rest.find(':'),
    };
    let Some(colon) = colon else {
        return Ok((rest, None));
    };
    match rest[colon + 1..].parse::<u16>() {
        Ok(port) if port > 0 => Ok((&rest[..colon], Some(port))),
        _ => Err(format!("{:?} is not a port", &rest[colon + 1..])),
    }
}

fn check_host(host: &str) -> Result<(), String> {
    let inside = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    let fine = match inside {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            !host.is_empty()
                && host
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_'))
        }
    };
    if fine {
        Ok(())
    } else {
        Err(format!(
            "{host:?} is not a host name (\"*\" is allowed only in front of a dot)"
        ))
    }
}

/// Parses a network: an address, optionally with a prefix length.
pub(crate) fn parse_network(text: &str) -> Result<IpNet, String> {
    let network = text
        .parse::<IpNet>()
        .or_else(|_| text.parse::<IpAddr>().map(IpNet::from))
        .map_err(|_| "expected an address such as \"192.0.2.7\", or a network with a prefix length, such as \"10.0.0.0/8\" or \"2001:db8::/32\"".to_owned())?;
    // IPv4-mapped IPv6 addresses are matched as IPv4.
    let network = match network {
        IpNet::V6(v6) if v6.prefix_len() >= 96 => match v6.addr().to_ipv4_mapped() {
            Some(v4) => Ipv4Net::new(v4, v6.prefix_len() - 96).map_or(network, IpNet::V4),
            None => network,
        },
        _ => network,
    };
    if network.trunc() != network {
        return Err(format!(
            "expected the address of the network itself, {:?}",
            network.trunc().to_string()
        ));
    }
    Ok(network)
}

/// Parses a host name of a listener, `*.` and a name, or `*`; returns it in lower case.
pub(crate) fn parse_host(text: &str) -> Result<String, String> {
    if text != "*" {
        check_host(text.strip_prefix("*.").unwrap_or(text))?;
    }
    Ok(text.to_ascii_lowercase())
}

/// Parses how trusted proxies convey the client's address.
pub(crate) fn parse_client_address(text: &str) -> Result<ClientAddress, String> {
    match text {
        "x-forwarded-for" => Ok(ClientAddress::XForwardedFor),
        "forwarded" => Ok(ClientAddress::Forwarded),
        _ => match IdentitySource::parse(text) {
            Ok(IdentitySource::Header(name)) => Ok(ClientAddress::Header(name)),
            _ => Err("expected \"x-forwarded-for\", \"forwarded\" or \"header:NAME\"".to_owned()),
        },
    }
}

/// Channels that clients of a route may subscribe to: a single one (`news`), or all with a prefix (`room:*`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChannelPattern {
    /// Exactly the channel of this name.
    Exact(String),
    /// The prefix without the `*`; may be empty.
    Prefix(String),
}

/// The longest name of a channel in bytes.
pub(crate) const CHANNEL_BYTES_MAX: usize = 255;

impl ChannelPattern {
    /// Parses a pattern; the error describes the problem.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() || text.len() > CHANNEL_BYTES_MAX {
            return Err(format!(
                "a channel's name must have 1 to {CHANNEL_BYTES_MAX} bytes"
            ));
        }
        if text.starts_with('#') {
            return Err("channels that start with \"#\" are personal channels of users".to_owned());
        }
        if let Some(c) = text.chars().find(|c| c.is_whitespace() || c.is_control()) {
            return Err(format!("{c:?} can't be in a channel's name"));
        }
        match text.strip_suffix('*') {
            Some(start) if start.contains('*') => {
                Err("\"*\" is allowed only at the end".to_owned())
            }
            Some(start) if Audience::of(start, &Namespaces::new()).is_private() => {
                Err("private channels (\"$\") can only be allowed by their full name".to_owned())
            }
            Some(start) => Ok(Self::Prefix(start.to_owned())),
            None if text.contains('*') => Err("\"*\" is allowed only at the end".to_owned()),
            None => Ok(Self::Exact(text.to_owned())),
        }
    }
}

/// The source of a connection's user name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdentitySource {
    /// No user: the connection is anonymous.
    None,
    /// The value of a parameter in the request's query.
    Query(String),
    /// A cookie of the request.
    Cookie(String),
    /// A header of the request.
    Header(String),
    /// A field of the client's certificate, which the listener must have verified.
    Certificate(CertificateField),
    /// A token, verified as configured in `[jwt]`. Clients without a token may be allowed as anonymous.
    Token(Anonymous),
    /// The answer of the back end at this URL, requested as configured in `[identity_hook]`.
    Hook(SecretUrl),
    /// A name and a password, verified by this PAM service as configured in `[pam]`.
    Pam(PamService),
}

/// The part of a certificate that is the user's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateField {
    /// The first of the fields below that the certificate has, in the order of this list.
    Any,
    /// The subject's common name.
    CommonName,
    /// A subject alternative name that is an e-mail address.
    Email,
    /// A subject alternative name that is a host name.
    Name,
    /// A subject alternative name that is a URI.
    Uri,
}

impl CertificateField {
    const WORDS: [(Self, &'static str); 4] = [
        (Self::CommonName, "cn"),
        (Self::Email, "email"),
        (Self::Name, "dns"),
        (Self::Uri, "uri"),
    ];
}

impl IdentitySource {
    /// Parses an identity; the error describes the problem.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "none" => return Ok(Self::None),
            "mtls" => return Ok(Self::Certificate(CertificateField::Any)),
            "jwt" => return Ok(Self::Token(Anonymous::None)),
            _ => {}
        }
        let make = match text.split_once(':') {
            Some(("mtls", word)) => {
                let found = CertificateField::WORDS
                    .into_iter()
                    .find(|(_, other)| *other == word);
                return match found {
                    Some((field, _)) => Ok(Self::Certificate(field)),
                    None => Err(
                        "expected \"mtls:cn\", \"mtls:email\", \"mtls:dns\" or \"mtls:uri\""
                            .to_owned(),
                    ),
                };
            }
            Some(("http" | "https", url)) if url.starts_with("//") => {
                return Err(format!(
                    "expected \"http:\" before the URL of an identity hook: {:?}",
                    format!("http:{text}")
                ));
            }
            Some(("http", url)) => return parse_url(url).map(Self::Hook),
            Some(("pam", service)) => return PamService::parse(service).map(Self::Pam),
            Some(("query", name)) => (name, Self::Query as fn(String) -> Self),
            Some(("cookie", name)) => (name, Self::Cookie as fn(String) -> Self),
            Some(("header", name)) => (name, Self::Header as fn(String) -> Self),
            _ => {
                return Err(
                    "expected \"jwt\", \"http:URL\", \"pam:SERVICE\", \"query:NAME\", \"cookie:NAME\", \"header:NAME\", \"mtls\" or \"none\""
                        .to_owned(),
                );
            }
        };
        let (name, make) = make;
        if !is_token(name) {
            return Err(format!(
                "{name:?} is not the name of a parameter, cookie or header"
            ));
        }
        Ok(make(name.to_owned()))
    }
}

/// Returns whether a name is a `token` (RFC 9110, section 5.6.2). Names of headers and cookies must be tokens. Other
/// names of query parameters are possible, but not supported.
fn is_token(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    !name.is_empty() && name.chars().all(fits)
}

/// Parses the place of the token in a request, such as `bearer` or `cookie:NAME`.
pub(crate) fn parse_place(text: &str) -> Result<TokenSource, String> {
    match text {
        "bearer" => return Ok(TokenSource::Bearer),
        "protocol" => return Ok(TokenSource::Protocol),
        _ => {}
    }
    match IdentitySource::parse(text) {
        Ok(IdentitySource::Query(name)) => Ok(TokenSource::Query(name)),
        Ok(IdentitySource::Cookie(name)) => Ok(TokenSource::Cookie(name)),
        Ok(IdentitySource::Header(name)) => Ok(TokenSource::Header(name)),
        _ => Err(
            "expected \"bearer\", \"protocol\", \"query:NAME\", \"cookie:NAME\" or \"header:NAME\""
                .to_owned(),
        ),
    }
}

/// Headers that are not passed to the back end: they concern the connection, or the server sets
/// them.
const NOT_PASSED_ON: [&str; 11] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "x-forwarded-for",
    "x-real-ip",
];

/// Parses the name of a header that is passed to the back end; returns it in lower case.
pub(crate) fn parse_header_name(text: &str) -> Result<String, String> {
    let name = text.to_ascii_lowercase();
    if !is_token(&name) {
        return Err("not a header name".to_owned());
    }
    if NOT_PASSED_ON.contains(&name.as_str()) || name.starts_with("x-original-") {
        return Err("this header can't be passed on".to_owned());
    }
    Ok(name)
}

impl fmt::Display for IdentitySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Query(name) => write!(f, "query:{name}"),
            Self::Cookie(name) => write!(f, "cookie:{name}"),
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Token(_) => f.write_str("jwt"),
            Self::Hook(url) => write!(f, "http:{url}"),
            Self::Pam(service) => write!(f, "pam:{service}"),
            Self::Certificate(field) => {
                let word = CertificateField::WORDS
                    .iter()
                    .find(|(other, _)| other == field);
                write!(f, "mtls")?;
                word.map_or(Ok(()), |(_, word)| write!(f, ":{word}"))
            }
        }
    }
}

/// Parses a URL that the HTTP client supports.
pub(crate) fn parse_url(text: &str) -> Result<SecretUrl, String> {
    let shown = masked(text);
    let url = Url::parse(text).map_err(|why| format!("{shown:?} is not a URL: {why}"))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err(format!(
            "a URL must begin with http:// or https://, found {shown:?}"
        ));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("a URL must not contain a name and password".to_owned());
    }
    Ok(SecretUrl::new(url.into()))
}
