//! Requests to token issuers and back ends, made with the HTTP client that scripts use.

use std::path::Path;
use std::time::Duration;

use veche_calls::{
    Call, CallError, CallErrorKind, CallOutcome, CallReply, CertificateTrust, HttpCall,
    HttpRequest, ReplyBody,
};

/// The default limit of connections to one server.
pub const CONNECTIONS_MAX: u32 = 64;

/// A request with its limits.
pub struct FetchRequest<'g> {
    /// URL of the request, with scheme `http` or `https`.
    pub url: &'g str,
    /// Header names and values, in order.
    pub headers: Vec<(String, Vec<u8>)>,
    /// The body of a POST; `None` makes a GET.
    pub body: Option<Vec<u8>>,
    /// The time limit for the complete response.
    pub timeout: Duration,
    /// The longest response body in bytes.
    pub body_bytes_max: u64,
    /// A PEM file of certificates to trust instead of those of the system.
    pub ca: Option<&'g Path>,
    /// The limit of connections to the server; requests with another limit use separate connections.
    pub connections_max: u32,
}

impl FetchRequest<'_> {
    /// Converts the request to a call. Redirects are not followed, since only the configured server
    /// may answer.
    pub fn into_call(self) -> Call {
        Call::Http(HttpCall::Fetch(Box::new(HttpRequest {
            method: if self.body.is_some() { "POST" } else { "GET" }.to_owned(),
            url: self.url.to_owned(),
            headers: self.headers,
            body: self.body.unwrap_or_default(),
            timeout: self.timeout,
            connect_timeout: self.timeout,
            redirects_max: 0,
            body_bytes_max: self.body_bytes_max,
            connections_max: self.connections_max,
            trust: match self.ca {
                None => CertificateTrust::System,
                Some(file) => CertificateTrust::File(file.to_owned()),
            },
            is_stream: false,
        })))
    }
}

/// A complete response, of any status.
pub struct FetchResponse {
    /// Status code of the response.
    pub status: u16,
    /// Header names and values, in order.
    pub headers: Vec<(String, Vec<u8>)>,
    /// The body. Its length is within the request's limit.
    pub body: Vec<u8>,
}

impl FetchResponse {
    /// Converts the outcome of a request; error texts contain no data of the request.
    pub fn of(outcome: CallOutcome) -> Result<Self, CallError> {
        match outcome {
            Ok(CallReply::Http(reply)) => {
                let ReplyBody::Whole(body) = reply.body else {
                    return Err(broken(
                        "the response was streamed instead of returned as a whole",
                    ));
                };
                Ok(Self {
                    status: reply.status,
                    headers: reply.headers,
                    body,
                })
            }
            Ok(_) => Err(broken("the response is not HTTP")),
            Err(fault) => Err(fault),
        }
    }

    /// Returns whether a header exists, with any value.
    pub fn has(&self, name: &str) -> bool {
        self.headers.iter().any(|(other, _)| other == name)
    }

    /// Returns the value of the first header with this name, if the value is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(other, _)| other == name);
        found.and_then(|(_, value)| std::str::from_utf8(value).ok())
    }
}

fn broken(words: &str) -> CallError {
    CallError::new(CallErrorKind::Broken, words)
}
