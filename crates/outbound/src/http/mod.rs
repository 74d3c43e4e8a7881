//! The HTTP client: performs a request, follows redirects, and returns the response.
//!
//! HTTP/1.1 is implemented by hyper; connections and their limits are in [`pool`], retries in
//! [`exchange`]. docs/decisions/08-http-client.md explains this design.

mod body;
mod connect;
mod exchange;
mod gzip;
mod pool;
mod progress;
mod redirect;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use tokio::time::timeout;
use url::Url;
use veche_calls::{
    CallError, CallErrorKind, Handle, HttpCall, HttpReply, HttpRequest, ReplyBody as Delivered,
};
use veche_calls::{CallOutcome, CallReply, CertificateTrust, masked};
use veche_tls::TrustStores;

use crate::metrics::ClientMetrics;
use body::{BodyStream, IncomingBody};
use exchange::Hop;
use pool::{ConnectionTarget, HttpPool};
use progress::{RequestPhase, RequestProgress};

/// The state shared by all requests.
#[derive(Debug)]
pub(crate) struct HttpClient {
    pool: Arc<HttpPool>,
    trusts: Arc<TrustStores>,
    figures: Arc<ClientMetrics>,
}

impl HttpClient {
    pub(crate) fn new(figures: Arc<ClientMetrics>) -> Self {
        Self {
            pool: Arc::default(),
            trusts: Arc::default(),
            figures,
        }
    }

    pub(crate) fn trusts(&self) -> &Arc<TrustStores> {
        &self.trusts
    }

    /// Performs one call within its time limit.
    pub(crate) async fn perform(self: &Arc<Self>, call: HttpCall) -> CallOutcome {
        match call {
            HttpCall::Fetch(fetch) => {
                let progress = RequestProgress::default();
                let following = self.follow(&fetch, &progress);
                timeout(fetch.timeout, following).await.unwrap_or_else(|_| {
                    let (time, doing) = (shown(fetch.timeout), progress.shown());
                    let words = format!("timeout after {time} {doing}");
                    Err(fault(progress.timeout_kind(), words))
                })
            }
            HttpCall::Read(read) => match read.stream.of::<BodyStream>() {
                Some(stream) => stream.read().await,
                None => Err(fault(
                    CallErrorKind::Invalid,
                    "the call does not name the body of an HTTP response",
                )),
            },
        }
    }

    /// Sends the request and follows redirects.
    async fn follow(
        self: &Arc<Self>,
        fetch: &HttpRequest,
        progress: &RequestProgress,
    ) -> CallOutcome {
        let mut hop = first(fetch)?;
        let inflates = !hop.headers.contains_key(ACCEPT_ENCODING);
        let mut redirects = 0;
        loop {
            let place = place(fetch, &hop.url)?;
            let exchange = self.exchange(&hop, &place, fetch.connect_timeout, progress);
            let (response, exchange) = exchange.await?;
            progress.set(RequestPhase::Body, &place);
            let (mut head, incoming) = response.into_parts();
            let is_gzip = inflates
                && hop.method != Method::HEAD
                && head.headers.get(CONTENT_ENCODING).is_some_and(is_gzip);
            let body = IncomingBody::new(incoming, exchange, is_gzip, fetch.body_bytes_max);
            let next = match fetch.redirects_max {
                0 => None,
                _ => redirect::next(&hop, head.status, &head.headers)?,
            };
            if let Some(next) = next {
                redirects += 1;
                if redirects > fetch.redirects_max {
                    let most = fetch.redirects_max;
                    let last = masked(next.url.as_str());
                    let words = format!("more than {most} redirects, the last one to {last}");
                    return Err(fault(CallErrorKind::Broken, words));
                }
                body.discard().await;
                hop = next;
                continue;
            }
            if is_gzip {
                // These headers describe the compressed body, not the decompressed one that scripts get.
                head.headers.remove(CONTENT_ENCODING);
                head.headers.remove(CONTENT_LENGTH);
            }
            let body = match fetch.is_stream {
                true => {
                    let stream = BodyStream::new(body, fetch.timeout, place.shown());
                    Delivered::Stream(Handle::new(stream))
                }
                false => Delivered::Whole(body.whole().await?),
            };
            let headers = head.headers.iter();
            let headers =
                headers.map(|(name, value)| (name.to_string(), value.as_bytes().to_vec()));
            return Ok(CallReply::Http(Box::new(HttpReply {
                status: head.status.as_u16(),
                headers: headers.collect(),
                url: hop.url.into(),
                body,
            })));
        }
    }
}

fn is_gzip(value: &HeaderValue) -> bool {
    let value = value.as_bytes().trim_ascii();
    value.eq_ignore_ascii_case(b"gzip") || value.eq_ignore_ascii_case(b"x-gzip")
}

/// Returns the request with which a call begins, before any redirect.
fn first(fetch: &HttpRequest) -> Result<Hop, CallError> {
    let invalid = |what: &str| fault(CallErrorKind::Invalid, what);
    let method = Method::from_bytes(fetch.method.as_bytes());
    let mut headers = HeaderMap::new();
    for (name, value) in &fetch.headers {
        let name = HeaderName::from_bytes(name.as_bytes());
        let name = name.map_err(|_| invalid("invalid header name"))?;
        let value = HeaderValue::from_bytes(value);
        headers.append(name, value.map_err(|_| invalid("invalid header value"))?);
    }
    let mut url = Url::parse(&fetch.url).map_err(|error| {
        fault(
            CallErrorKind::Invalid,
            format!("{:?}: {error}", masked(&fetch.url)),
        )
    })?;
    url.set_fragment(None);
    Ok(Hop {
        method: method.map_err(|_| invalid("invalid method"))?,
        url,
        headers,
        body: Bytes::copy_from_slice(&fetch.body),
    })
}

/// Returns the connection target of a URL.
fn place(fetch: &HttpRequest, url: &Url) -> Result<ConnectionTarget, CallError> {
    let invalid = |why: &str| {
        fault(
            CallErrorKind::Invalid,
            format!("{:?}: {why}", masked(url.as_str())),
        )
    };
    let is_tls = match url.scheme() {
        "http" => false,
        "https" => true,
        _ => return Err(invalid("the URL begins with neither http:// nor https://")),
    };
    if !url.username().is_empty() || url.password().is_some() {
        return Err(invalid(
            "a URL must not contain a name and password: send the header authorization instead",
        ));
    }
    let host = url
        .host_str()
        .ok_or_else(|| invalid("the URL has no host"))?;
    let port = url.port_or_known_default();
    Ok(ConnectionTarget {
        is_tls,
        host: host.trim_matches(['[', ']']).to_owned(),
        port: port.ok_or_else(|| invalid("the URL has no port"))?,
        trust: match is_tls {
            true => fetch.trust.clone(),
            false => CertificateTrust::System,
        },
        connections_max: fetch.connections_max,
    })
}

fn fault(kind: CallErrorKind, words: impl std::fmt::Display) -> CallError {
    CallError::new(kind, format!("http: {words}"))
}

/// Formats a duration in seconds for error texts.
fn shown(time: Duration) -> String {
    format!("{} s", time.as_secs_f64())
}
