//! GET requests to issuers and back ends, by the HTTP client that scripts have as well.

use std::path::Path;
use std::time::Duration;

use veche_calls::{Body, Call, Fault, FaultKind, Fetch, Http, Outcome, Reply, Trust};

/// Connections to one server at a time.
const CONNECTIONS_MAX: u32 = 64;

/// A request, and what it may cost.
pub(super) struct Get<'g> {
    pub(super) url: &'g str,
    pub(super) headers: Vec<(String, Vec<u8>)>,
    pub(super) timeout: Duration,
    pub(super) body_bytes_max: u64,
    pub(super) ca: Option<&'g Path>,
}

impl Get<'_> {
    /// It follows no redirect: an answer of elsewhere is none.
    pub(super) fn into_call(self) -> Call {
        Call::Http(Http::Fetch(Box::new(Fetch {
            method: "GET".to_owned(),
            url: self.url.to_owned(),
            headers: self.headers,
            body: Vec::new(),
            timeout: self.timeout,
            connect_timeout: self.timeout,
            redirects_max: 0,
            body_bytes_max: self.body_bytes_max,
            connections_max: CONNECTIONS_MAX,
            trust: match self.ca {
                None => Trust::System,
                Some(file) => Trust::File(file.to_owned()),
            },
            is_stream: false,
        })))
    }
}

/// A whole answer.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, Vec<u8>)>,
    pub(super) body: Vec<u8>,
}

impl Answer {
    /// What has become of a request; the words of a fault have nothing of what was sent.
    pub(super) fn of(outcome: Outcome) -> Result<Self, Fault> {
        match outcome {
            Ok(Reply::Http(reply)) => {
                let Body::Whole(body) = reply.body else {
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

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(other, _)| other == name);
        found.and_then(|(_, value)| std::str::from_utf8(value).ok())
    }
}

fn broken(words: &str) -> Fault {
    Fault::new(FaultKind::Broken, words)
}
