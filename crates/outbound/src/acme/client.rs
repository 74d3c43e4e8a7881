//! The HTTP of an order: its requests as calls that everybody makes.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use veche_calls::{Body, Call, Fetch, Http, Reply, Trust};

use crate::perform::{Clients, perform};

/// For one request.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Longest answer: a chain of certificates, in bytes.
const BODY_BYTES_MAX: u64 = 1 << 20;

/// Orders are not many.
const CONNECTIONS_MAX: u32 = 4;

/// See the module's text.
#[derive(Clone)]
pub(super) struct Client {
    pub(super) clients: Arc<Clients>,
    pub(super) trust: Trust,
}

/// There was no answer, or one that says that the server is in trouble.
#[derive(Debug)]
pub(super) struct Unreached(pub(super) String);

impl fmt::Display for Unreached {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for Unreached {}

impl HttpClient for Client {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let client = self.clone();
        Box::pin(async move { client.ask(request).await })
    }
}

impl Client {
    async fn ask(self, request: Request<BodyWrapper<Bytes>>) -> Result<BytesResponse, Error> {
        let (head, body) = request.into_parts();
        let body = match body.collect().await {
            Ok(body) => body.to_bytes().to_vec(),
            Err(never) => match never {},
        };
        let header = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
            let value = match name == http::header::USER_AGENT {
                // Who asks comes first (RFC 8555 section 6.1).
                true => [AGENT.as_bytes(), value.as_bytes()].concat(),
                false => value.as_bytes().to_vec(),
            };
            (name.as_str().to_owned(), value)
        };
        let url = head.uri.to_string();
        let fetch = Fetch {
            method: head.method.as_str().to_owned(),
            url: url.clone(),
            headers: head.headers.iter().map(header).collect(),
            body,
            timeout: TIMEOUT,
            connect_timeout: TIMEOUT,
            redirects_max: 0,
            body_bytes_max: BODY_BYTES_MAX,
            connections_max: CONNECTIONS_MAX,
            trust: self.trust.clone(),
            is_stream: false,
        };
        let call = Call::Http(Http::Fetch(Box::new(fetch)));
        let reply = match perform(&self.clients, call).await {
            Ok(Reply::Http(reply)) => reply,
            Ok(_) => return Err(unreached(format!("{url}: no answer of HTTP"))),
            Err(fault) => return Err(unreached(format!("{url}: {}", fault.words))),
        };
        if reply.status >= 500 {
            return Err(unreached(format!("{url} answered with {}", reply.status)));
        }
        let Body::Whole(body) = reply.body else {
            return Err(unreached(format!("{url}: the answer came in parts")));
        };
        let mut response = http::Response::builder().status(reply.status);
        for (name, value) in &reply.headers {
            response = response.header(name, value.as_slice());
        }
        Ok(response.body(Full::new(Bytes::from(body)))?.into())
    }
}

/// Before the library's own name.
const AGENT: &str = concat!("veche/", env!("CARGO_PKG_VERSION"), " ");

fn unreached(words: String) -> Error {
    Error::Other(Box::new(Unreached(words)))
}
