//! The HTTP of an order: its requests as calls that everybody makes.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::uri::Scheme;
use http::{Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full};
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient, Problem};
use veche_calls::{
    Call, CertificateTrust, HttpCall, HttpReply, HttpRequest, Reply, ReplyBody, masked,
};

use super::OrderError;
use crate::perform::{ClientCache, perform};

/// For one request.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Longest answer: a chain of certificates, in bytes.
const BODY_BYTES_MAX: u64 = 1 << 20;

/// The longest wait that an authority may ask for, in seconds.
const RETRY_AFTER_S_MAX: u64 = 24 * 60 * 60;

/// Orders are not many.
const CONNECTIONS_MAX: u32 = 4;

/// See the module's text.
#[derive(Clone)]
pub(super) struct AcmeClient {
    pub(super) clients: Arc<ClientCache>,
    pub(super) trust: CertificateTrust,
}

impl HttpClient for AcmeClient {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let client = self.clone();
        Box::pin(async move { client.send(request).await })
    }
}

impl AcmeClient {
    async fn send(self, request: Request<BodyWrapper<Bytes>>) -> Result<BytesResponse, Error> {
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
        let shown = masked(&url);
        if !is_https(&url) {
            return Err(unreachable_error(format!("{shown:?} is no URL of https")));
        }
        let fetch = HttpRequest {
            method: head.method.as_str().to_owned(),
            url,
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
        let call = Call::Http(HttpCall::Fetch(Box::new(fetch)));
        let reply = match perform(&self.clients, call).await {
            Ok(Reply::Http(reply)) => reply,
            Ok(_) => return Err(unreachable_error(format!("{shown}: no answer of HTTP"))),
            Err(fault) => return Err(unreachable_error(format!("{shown}: {}", fault.words))),
        };
        if reply.status >= 500 {
            return Err(unreachable_error(format!(
                "{shown} answered with {}",
                reply.status
            )));
        }
        let after_s = retry_after_s(&reply);
        let ReplyBody::Whole(body) = reply.body else {
            return Err(unreachable_error(format!(
                "{shown}: the answer came in parts"
            )));
        };
        if reply.status == StatusCode::TOO_MANY_REQUESTS {
            // What stands in front of an authority says so as well, and not always in its words.
            let why = match serde_json::from_slice::<Problem>(&body) {
                Ok(problem) => super::order::problem_text(&problem),
                Err(_) => format!("{shown} answered with {}", reply.status),
            };
            let after_s = after_s.unwrap_or(0);
            return Err(Error::Other(Box::new(OrderError::Limited { why, after_s })));
        }
        if head.method == Method::GET {
            check_directory(&shown, &body)?;
        }
        let mut response = http::Response::builder().status(reply.status);
        for (name, value) in &reply.headers {
            if !name.eq_ignore_ascii_case(RETRY_AFTER.as_str()) {
                response = response.header(name, value.as_slice());
            }
        }
        if let Some(after_s) = after_s {
            response = response.header(RETRY_AFTER, after_s);
        }
        Ok(response.body(Full::new(Bytes::from(body)))?.into())
    }
}

/// Before the library's own name.
const AGENT: &str = concat!("veche/", env!("CARGO_PKG_VERSION"), " ");

/// What the library takes from a directory without a look.
fn check_directory(url: &str, body: &[u8]) -> Result<(), Error> {
    let directory: serde_json::Value = serde_json::from_slice(body)?;
    for name in ["newNonce", "newAccount", "newOrder"] {
        if !directory[name].as_str().is_some_and(is_https) {
            let words = format!("{url}: its {name} is no URL of https");
            return Err(unreachable_error(words));
        }
    }
    Ok(())
}

/// Whether it is a URL that one may ask (RFC 8555 section 6.1).
pub(super) fn is_https(url: &str) -> bool {
    let uri = url.parse::<Uri>();
    uri.is_ok_and(|uri| uri.scheme() == Some(&Scheme::HTTPS))
}

/// How long the authority wants to be left alone: the library adds it to the clock, whatever it is. Dates are not used.
fn retry_after_s(reply: &HttpReply) -> Option<u64> {
    let mut headers = reply.headers.iter();
    let (_, value) = headers.find(|(name, _)| name.eq_ignore_ascii_case(RETRY_AFTER.as_str()))?;
    let seconds = str::from_utf8(value).ok()?.trim().parse::<u64>().ok()?;
    Some(seconds.min(RETRY_AFTER_S_MAX))
}

/// There was no answer, or one that says that the server is in trouble.
fn unreachable_error(words: String) -> Error {
    Error::Other(Box::new(OrderError::Unreachable(words)))
}
