//! The HTTP client of an ACME order, on top of the crate's HTTP calls.

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
    Call, CallReply, CertificateTrust, HttpCall, HttpReply, HttpRequest, ReplyBody, masked,
};

use super::OrderError;
use crate::perform::{ClientCache, perform};

/// The timeout of one request.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The maximum length of a response in bytes. The longest responses are certificate chains.
const BODY_BYTES_MAX: u64 = 1 << 20;

/// The longest delay that an authority may request, in seconds.
const RETRY_AFTER_S_MAX: u64 = 24 * 60 * 60;

/// The maximum number of connections to an authority; orders need few.
const CONNECTIONS_MAX: u32 = 4;

/// The HTTP client of one order.
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
                // The `User-Agent` header starts with Veche's name, followed by the library's (RFC 8555 section 6.1).
                true => [AGENT.as_bytes(), value.as_bytes()].concat(),
                false => value.as_bytes().to_vec(),
            };
            (name.as_str().to_owned(), value)
        };
        let url = head.uri.to_string();
        let shown = masked(&url);
        if !is_https(&url) {
            return Err(unreachable_error(format!("{shown:?} is not an https URL")));
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
            Ok(CallReply::Http(reply)) => reply,
            Ok(_) => {
                return Err(unreachable_error(format!(
                    "{shown}: the response is not HTTP"
                )));
            }
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
                "{shown}: the response was streamed instead of returned as a whole"
            )));
        };
        if reply.status == StatusCode::TOO_MANY_REQUESTS {
            // A proxy in front of an authority may also return status 429, possibly without a problem document.
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

/// The prefix of the `User-Agent` header, before the library's own name.
const AGENT: &str = concat!("veche/", env!("CARGO_PKG_VERSION"), " ");

/// Checks the parts of a directory that the library does not validate.
fn check_directory(url: &str, body: &[u8]) -> Result<(), Error> {
    let directory: serde_json::Value = serde_json::from_slice(body)?;
    for name in ["newNonce", "newAccount", "newOrder"] {
        if !directory[name].as_str().is_some_and(is_https) {
            let words = format!("{url}: the value of {name} in this directory is not an https URL");
            return Err(unreachable_error(words));
        }
    }
    Ok(())
}

/// Returns whether a URL may be requested (RFC 8555 section 6.1).
pub(super) fn is_https(url: &str) -> bool {
    let uri = url.parse::<Uri>();
    uri.is_ok_and(|uri| uri.scheme() == Some(&Scheme::HTTPS))
}

/// Returns the delay in the `Retry-After` header in seconds; `None` if there is none, or if the header is a date. The
/// delay is limited, because the library adds it to the clock without checking for an overflow.
fn retry_after_s(reply: &HttpReply) -> Option<u64> {
    let mut headers = reply.headers.iter();
    let (_, value) = headers.find(|(name, _)| name.eq_ignore_ascii_case(RETRY_AFTER.as_str()))?;
    let seconds = str::from_utf8(value).ok()?.trim().parse::<u64>().ok()?;
    Some(seconds.min(RETRY_AFTER_S_MAX))
}

/// Creates the error for a request that got no response, or got a response that reports a server problem.
fn unreachable_error(words: String) -> Error {
    Error::Other(Box::new(OrderError::Unreachable(words)))
}
