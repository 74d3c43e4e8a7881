//! The parameters from which PHP builds `$_SERVER`, as web servers set them.

use std::net::{IpAddr, SocketAddr};

use crate::params::{ParamTooLong, Params};

/// A request for a script.
#[derive(Clone, Copy, Debug)]
pub struct Cgi<'a> {
    /// Path of the script as the FastCGI server sees it. It comes from the configuration, never from a client.
    pub script: &'a str,
    /// Length of the body in bytes.
    pub body_bytes: usize,
    /// Type of the body.
    pub content_type: &'a str,
    /// Path of the client's request.
    pub path: &'a str,
    /// Query of the client's request without `?`, still encoded.
    pub query: &'a str,
    /// Address of the client, if known.
    pub remote: Option<IpAddr>,
    /// Address that the client has connected to, if known.
    pub local: Option<SocketAddr>,
    /// Whether the client's connection uses TLS.
    pub is_tls: bool,
}

/// Headers of a client that never become `HTTP_…` parameters: those with parameters of their own, and `Proxy`, since PHP's HTTP
/// clients would use `HTTP_PROXY` as their proxy.
const LEFT_OUT: [&str; 3] = ["content-length", "content-type", "proxy"];

impl Cgi<'_> {
    /// Returns the parameters, with the client's headers as `HTTP_…`.
    ///
    /// # Errors
    /// A parameter is longer than a record.
    pub fn params<'h>(
        &self,
        headers: impl IntoIterator<Item = (&'h str, &'h str)>,
    ) -> Result<Params, ParamTooLong> {
        let mut params = Params::default();
        let mut push = |name: &str, value: &str| params.push(name, value.as_bytes());
        push("SCRIPT_FILENAME", self.script)?;
        push("SCRIPT_NAME", self.path)?;
        let uri = match self.query {
            "" => self.path.to_owned(),
            query => format!("{}?{query}", self.path),
        };
        push("REQUEST_URI", &uri)?;
        push("DOCUMENT_URI", self.path)?;
        push("QUERY_STRING", self.query)?;
        let root = self.script.rsplit_once('/').map_or("", |(root, _)| root);
        push("DOCUMENT_ROOT", root)?;
        push("REQUEST_METHOD", "POST")?;
        push("CONTENT_TYPE", self.content_type)?;
        push("CONTENT_LENGTH", &self.body_bytes.to_string())?;
        push("SERVER_PROTOCOL", "HTTP/1.1")?;
        push("GATEWAY_INTERFACE", "CGI/1.1")?;
        push("SERVER_SOFTWARE", "veche")?;
        // PHP built with force-cgi-redirect refuses requests without this parameter.
        push("REDIRECT_STATUS", "200")?;
        if let Some(remote) = self.remote {
            push("REMOTE_ADDR", &remote.to_string())?;
        }
        if let Some(local) = self.local {
            push("SERVER_ADDR", &local.ip().to_string())?;
            push("SERVER_PORT", &local.port().to_string())?;
        }
        if self.is_tls {
            push("HTTPS", "on")?;
            push("REQUEST_SCHEME", "https")?;
        } else {
            push("REQUEST_SCHEME", "http")?;
        }
        for (name, value) in merged(headers) {
            if name == "HTTP_HOST" {
                push("SERVER_NAME", host(&value))?;
            }
            push(&name, &value)?;
        }
        Ok(params)
    }
}

/// Returns headers by the names of their parameters. Repeated headers are joined as in RFC 9110, section 5.2; cookies as in RFC
/// 6265.
fn merged<'h>(headers: impl IntoIterator<Item = (&'h str, &'h str)>) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    for (name, value) in headers {
        // A client's `A_B` would get the same parameter name as `A-B`, so it could override a header set by a trusted proxy.
        if name.contains('_') || LEFT_OUT.iter().any(|one| name.eq_ignore_ascii_case(one)) {
            continue;
        }
        let name = format!("HTTP_{}", name.to_ascii_uppercase().replace('-', "_"));
        match found.iter_mut().find(|(one, _)| *one == name) {
            Some((_, before)) => {
                let between = if name == "HTTP_COOKIE" { "; " } else { ", " };
                before.push_str(between);
                before.push_str(value);
            }
            None => found.push((name, value.to_owned())),
        }
    }
    found
}

/// Returns the host of a `Host` header without its port.
fn host(value: &str) -> &str {
    match value.rfind(':') {
        Some(at) if !value[at..].contains(']') => &value[..at],
        _ => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_become_parameters_once() {
        let headers = [
            ("Host", "example.com"),
            ("cookie", "a=1"),
            ("cookie", "b=2"),
            ("accept", "text/html"),
            ("Accept", "*/*"),
            ("proxy", "http://evil.example"),
            ("content-type", "text/html"),
            ("Content-Length", "7"),
            ("x_forwarded_for", "127.0.0.1"),
            ("X-Forwarded-For", "203.0.113.9"),
        ];
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            merged(headers),
            [
                pair("HTTP_HOST", "example.com"),
                pair("HTTP_COOKIE", "a=1; b=2"),
                pair("HTTP_ACCEPT", "text/html, */*"),
                pair("HTTP_X_FORWARDED_FOR", "203.0.113.9"),
            ]
        );
    }

    #[test]
    fn hosts_lose_their_port() {
        for (value, expected) in [
            ("example.com", "example.com"),
            ("example.com:8080", "example.com"),
            ("[::1]", "[::1]"),
            ("[::1]:8080", "[::1]"),
        ] {
            assert_eq!(host(value), expected);
        }
    }
}
