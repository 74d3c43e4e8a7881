//! Requests to other servers' HTTP.

use std::path::PathBuf;
use std::time::Duration;

use crate::Handle;

/// One thing asked of the HTTP client.
#[derive(Clone, Debug, PartialEq)]
pub enum HttpCall {
    /// A request.
    Fetch(Box<HttpRequest>),
    /// More of a body.
    Read(ReadBody),
}

/// A request, and what holds for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpRequest {
    /// A token, in capitals.
    pub method: String,
    /// Absolute; graphic characters only.
    pub url: String,
    /// Names are tokens in small letters, values have no control characters.
    pub headers: Vec<(String, Vec<u8>)>,
    /// Empty if there is none.
    pub body: Vec<u8>,
    /// From the call to the whole answer; with `is_stream` to its head, and for each read of its body.
    pub timeout: Duration,
    /// For the name, the connection and TLS together.
    pub connect_timeout: Duration,
    /// How many redirects are followed; 0: they are answers as any other.
    pub redirects_max: u32,
    /// Length of the answer's body, inflated.
    pub body_bytes_max: u64,
    /// Connections to one host at a time; calls with another limit have connections of their own.
    pub connections_max: u32,
    /// Whom to believe behind `https`.
    pub trust: CertificateTrust,
    /// The body is read piece by piece.
    pub is_stream: bool,
}

/// Which certificates are believed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum CertificateTrust {
    /// Those of the system.
    #[default]
    System,
    /// Those that a file in PEM vouches for.
    File(PathBuf),
    /// Any.
    Anybody,
}

/// More of a body.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadBody {
    /// From [`ReplyBody::Stream`].
    pub stream: Handle,
}

/// An answer.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpReply {
    /// 200 to 999.
    pub status: u16,
    /// Names in small letters; one that came twice is there twice.
    pub headers: Vec<(String, Vec<u8>)>,
    /// Where it came from after all redirects.
    pub url: String,
    /// Inflated if it came with gzip and nobody had asked for that.
    pub body: ReplyBody,
}

/// The body of an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum ReplyBody {
    /// All of it.
    Whole(Vec<u8>),
    /// To be [read](HttpCall::ReadBody). The connection is given up with the handle.
    Stream(Handle),
}
