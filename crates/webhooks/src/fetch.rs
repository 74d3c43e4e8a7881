//! Requests to issuers and back ends, by the HTTP client that scripts have as well.

use std::path::Path;
use std::time::Duration;

use veche_calls::{
    Call, CallError, CallErrorKind, CallOutcome, CertificateTrust, HttpCall, HttpRequest, Reply,
    ReplyBody,
};

/// Connections to one server at a time, where nothing else is said.
pub const CONNECTIONS_MAX: u32 = 64;

/// A request, and what it may cost.
pub struct FetchRequest<'g> {
    /// Where it goes.
    pub url: &'g str,
    /// Names and values, in order.
    pub headers: Vec<(String, Vec<u8>)>,
    /// Of a POST; without one it is a GET.
    pub body: Option<Vec<u8>>,
    /// How long the whole answer may take.
    pub timeout: Duration,
    /// Limit on the length of the body.
    pub body_bytes_max: u64,
    /// Certificates to trust instead of the usual ones, as PEM.
    pub ca: Option<&'g Path>,
    /// To one server at a time; requests with another limit have connections of their own.
    pub connections_max: u32,
}

impl FetchRequest<'_> {
    /// It follows no redirect: an answer of elsewhere is none.
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

/// A whole answer.
pub struct FetchResponse {
    /// The status code.
    pub status: u16,
    /// Names and values, in order.
    pub headers: Vec<(String, Vec<u8>)>,
    /// The body, whole.
    pub body: Vec<u8>,
}

impl FetchResponse {
    /// What has become of a request; the words of a fault have nothing of what was sent.
    pub fn of(outcome: CallOutcome) -> Result<Self, CallError> {
        match outcome {
            Ok(Reply::Http(reply)) => {
                let ReplyBody::Whole(body) = reply.body else {
                    return Err(broken("the answer came in parts"));
                };
                Ok(Self {
                    status: reply.status,
                    headers: reply.headers,
                    body,
                })
            }
            Ok(_) => Err(broken("no answer of HTTP")),
            Err(fault) => Err(fault),
        }
    }

    /// Whether there is such a header, with whatever in it.
    pub fn has(&self, name: &str) -> bool {
        self.headers.iter().any(|(other, _)| other == name)
    }

    /// Returns the first header of that name, if it is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(other, _)| other == name);
        found.and_then(|(_, value)| std::str::from_utf8(value).ok())
    }
}

fn broken(words: &str) -> CallError {
    CallError::new(CallErrorKind::Broken, words)
}
