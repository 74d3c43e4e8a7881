//! HTTP requests to other servers.

use std::path::PathBuf;
use std::time::Duration;

use crate::Handle;

/// A call to the HTTP client.
#[derive(Clone, Debug, PartialEq)]
pub enum HttpCall {
    /// A new request with its limits.
    Fetch(Box<HttpRequest>),
    /// A read of a streamed body.
    Read(ReadBody),
}

/// A request and its limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpRequest {
    /// The method: a token in capitals.
    pub method: String,
    /// The absolute URL, in printable ASCII.
    pub url: String,
    /// Header names and values. Names are tokens in lower case; values have no control characters.
    pub headers: Vec<(String, Vec<u8>)>,
    /// The body; may be empty.
    pub body: Vec<u8>,
    /// The time limit for the complete response; with `is_stream`, for its head and for each read of its body.
    pub timeout: Duration,
    /// The time limit for resolving, connecting and TLS together.
    pub connect_timeout: Duration,
    /// Maximum number of redirects to follow; with 0, redirects are returned as responses.
    pub redirects_max: u32,
    /// Maximum length of the response body after decompression, in bytes.
    pub body_bytes_max: u64,
    /// The limit of connections to one host. Calls with different limits do not share connections.
    pub connections_max: u32,
    /// The certificates to trust for `https`.
    pub trust: CertificateTrust,
    /// Whether the body is read in parts.
    pub is_stream: bool,
}

/// Which certificates are trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum CertificateTrust {
    /// The certificates that the system trusts.
    #[default]
    System,
    /// The certificates in a PEM file.
    File(PathBuf),
    /// All certificates are accepted without verification.
    Insecure,
}

/// A read of a streamed body.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadBody {
    /// The stream from [`ReplyBody::Stream`].
    pub stream: Handle,
}

/// A response to an HTTP request.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpReply {
    /// The status, from 200 to 999.
    pub status: u16,
    /// Header names in lower case, with their values. A repeated header has several entries.
    pub headers: Vec<(String, Vec<u8>)>,
    /// The URL after all redirects.
    pub url: String,
    /// The body. It is decompressed if the server used gzip although the request did not ask for
    /// it.
    pub body: ReplyBody,
}

/// The body of a response.
#[derive(Clone, Debug, PartialEq)]
pub enum ReplyBody {
    /// The complete body, at once.
    Whole(Vec<u8>),
    /// A stream to be [read](HttpCall::Read). Dropping it closes the connection.
    Stream(Handle),
}
