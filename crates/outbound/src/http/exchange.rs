//! One request and the head of its response, over an idle connection or a new one.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONTENT_LENGTH, HOST, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use tokio::time::timeout;
use url::Url;
use veche_calls::{CallError, CallErrorKind};

use super::connect::{error_text, io_kind};
use super::pool::{ConnectionPermit, ConnectionTarget, HttpConnection};
use super::progress::{RequestPhase, RequestProgress};
use super::{HttpClient, fault, shown};

/// The `User-Agent` of requests that set none.
const AGENT: &str = concat!("veche/", env!("CARGO_PKG_VERSION"));

/// A request to one target.
#[derive(Clone, Debug)]
pub(super) struct Hop {
    pub(super) method: Method,
    pub(super) url: Url,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// A connection whose response is being read.
#[derive(Debug)]
pub(super) struct HttpExchange {
    permit: ConnectionPermit,
    link: HttpConnection,
}

impl HttpExchange {
    /// Returns the connection to the pool. Called once the response was read to its end.
    pub(super) fn finish(self) {
        self.permit.return_connection(self.link);
    }
}

impl Hop {
    fn request(&self) -> Result<Request<Full<Bytes>>, CallError> {
        let invalid =
            |error: &dyn std::fmt::Display| fault(CallErrorKind::Invalid, error.to_string());
        let target = &self.url[url::Position::BeforePath..url::Position::AfterQuery];
        let request = Request::builder().method(&self.method).uri(target);
        let body = Full::new(self.body.clone());
        let mut request = request.body(body).map_err(|error| invalid(&error))?;
        let headers = request.headers_mut();
        *headers = self.headers.clone();
        if !headers.contains_key(HOST) {
            let host = &self.url[url::Position::BeforeHost..url::Position::AfterPort];
            let host = HeaderValue::from_str(host).map_err(|error| invalid(&error))?;
            headers.insert(HOST, host);
        }
        let has_body = matches!(self.method, Method::POST | Method::PUT | Method::PATCH);
        if has_body || !self.body.is_empty() {
            headers.insert(CONTENT_LENGTH, self.body.len().into());
        }
        if !headers.contains_key(USER_AGENT) {
            headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        }
        if !headers.contains_key(ACCEPT_ENCODING) {
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        }
        Ok(request)
    }

    /// Returns whether the request's method is idempotent, so that the request may be repeated (RFC 9110, section 9.2.2).
    fn is_idempotent(&self) -> bool {
        self.method.is_idempotent()
    }
}

impl HttpClient {
    /// Sends a request and waits for the head of the response.
    pub(super) async fn exchange(
        self: &Arc<Self>,
        hop: &Hop,
        place: &ConnectionTarget,
        connect_timeout: Duration,
        progress: &RequestProgress,
    ) -> Result<(Response<Incoming>, HttpExchange), CallError> {
        progress.set(RequestPhase::Waiting, place);
        let permit = self.pool.acquire(place, &self.figures).await;
        let mut may_reuse = true;
        loop {
            let kept = if may_reuse { permit.take() } else { None };
            let is_reused = kept.is_some();
            let mut link = match kept {
                Some(link) => link,
                None => {
                    progress.set(RequestPhase::Connecting, place);
                    let connecting = self.connect(place);
                    timeout(connect_timeout, connecting)
                        .await
                        .unwrap_or_else(|_| {
                            let time = shown(connect_timeout);
                            let words =
                                format!("timeout after {time} connecting to {}", place.shown());
                            Err(fault(progress.timeout_kind(), words))
                        })
                        .map_err(|fault| progress.connect_error(fault))?
                }
            };
            progress.set(RequestPhase::Answer, place);
            let has_sent = progress.begin_sending();
            let mut failed = match link.sender.try_send_request(hop.request()?).await {
                Ok(response) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                    let words = "the server switches to another protocol, which is not supported";
                    return Err(fault(CallErrorKind::Broken, words));
                }
                Ok(response) => return Ok((response, HttpExchange { permit, link })),
                Err(failed) => failed,
            };
            // A server may close an idle connection at any time. A request that was not sent is repeated; one that was
            // sent is repeated once if it is idempotent, over a new connection.
            if is_reused && failed.take_message().is_some() {
                progress.was_not_sent(has_sent);
                continue;
            }
            let error = failed.into_error();
            if is_reused && hop.is_idempotent() && is_gone(&error) {
                may_reuse = false;
                continue;
            }
            return Err(no_answer(&error, place));
        }
    }
}

/// Returns whether the connection was closed before any byte of the response had arrived.
fn is_gone(error: &hyper::Error) -> bool {
    let kind = io_kind(error);
    let is_reset = matches!(
        kind,
        Some(ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
    );
    error.is_incomplete_message() || error.is_canceled() || error.is_closed() || is_reset
}

fn no_answer(error: &hyper::Error, place: &ConnectionTarget) -> CallError {
    let place = place.shown();
    match is_gone(error) {
        true => {
            let words = format!("{place} closed the connection without a response");
            fault(CallErrorKind::ConnectionLost, words)
        }
        false => {
            let words = format!("malformed response from {place}: {}", error_text(error));
            fault(CallErrorKind::Broken, words)
        }
    }
}
