//! Complete HTTP responses, and refusals of requests.
//!
//! This module writes the framing and the headers of the route. The callers determine everything
//! else.

use std::sync::Arc;

use veche_hub::ConnectionId;
use veche_proto::http::{
    self, Head, HttpError, HttpVersion, Method, ResponseBody, ResponseHead, ResponseWriter, Status,
};

use crate::context::app::AppResponse;
use crate::context::log_note::NoteLevel;
use crate::context::route::RouteHeaders;
use crate::context::worker_context::Context;

/// The properties of a request that its response depends on.
#[derive(Clone)]
pub(crate) struct ReplyContext {
    pub(crate) version: HttpVersion,
    pub(crate) keep_alive: bool,
    pub(crate) head_only: bool,
    /// The headers that the route adds.
    pub(crate) headers: Option<Arc<RouteHeaders>>,
}

impl ReplyContext {
    pub(crate) fn to(head: &Head<'_>, headers: Option<Arc<RouteHeaders>>) -> Self {
        Self {
            version: head.version,
            keep_alive: head.keep_alive,
            head_only: head.method == Method::Head,
            headers,
        }
    }

    /// Returns the headers that the route adds to a response with this status.
    pub(crate) fn added(&self, status: Status) -> impl Iterator<Item = (&str, &str)> {
        let headers = self.headers.as_deref();
        headers
            .into_iter()
            .flat_map(move |headers| headers.of(status))
    }

    /// Returns whether the route adds a header with this name to a response with this status.
    pub(crate) fn adds(&self, status: Status, name: &str) -> bool {
        self.added(status)
            .any(|(added, _)| added.eq_ignore_ascii_case(name))
    }

    /// Writes a complete response with a body of one media type.
    pub(crate) fn write(
        &self,
        id: ConnectionId,
        status: Status,
        content_type: &str,
        body: &[u8],
        shared: &mut Context,
    ) {
        self.write_with(id, status, &[("Content-Type", content_type)], body, shared);
    }

    pub(crate) fn write_with(
        &self,
        id: ConnectionId,
        status: Status,
        headers: &[(&str, &str)],
        body: &[u8],
        shared: &mut Context,
    ) {
        let head = ResponseHead {
            status,
            version: self.version,
            keep_alive: self.keep_alive && !shared.is_draining(),
            body: ResponseBody::Sized(body.len() as u64),
        };
        shared.response_started(id, status.0);
        let mut all = Vec::new();
        let headers = if self.headers.is_some() {
            all.extend_from_slice(headers);
            all.extend(self.added(status).filter(|(added, _)| !has(headers, added)));
            &all
        } else {
            headers
        };
        let out = shared.requests.outboxes.buffer(id);
        if head.write(out, shared.date.text(), headers).is_err() {
            // Only a bug of the server can make a header invalid. The response is then sent without
            // `headers`, so that it is complete.
            let _ = head.write(out, shared.date.text(), &[]);
        }
        if !self.head_only {
            out.extend_from_slice(body);
        }
    }
}

fn has<N: AsRef<str>, V>(headers: &[(N, V)], name: &str) -> bool {
    headers
        .iter()
        .any(|(other, _)| other.as_ref().eq_ignore_ascii_case(name))
}

/// Writes an application's response. An invalid response is replaced by a 500 and logged.
pub(crate) fn write_response(
    reply: &ReplyContext,
    id: ConnectionId,
    response: &AppResponse,
    body: &[u8],
    shared: &mut Context,
) {
    let AppResponse {
        status, headers, ..
    } = response;
    let head = ResponseHead {
        status: *status,
        version: reply.version,
        keep_alive: reply.keep_alive && !shared.is_draining(),
        body: ResponseBody::Sized(body.len() as u64),
    };
    if !write_app_head(reply, id, head, *status, headers, |_| {}, shared) {
        return;
    }
    if !reply.head_only && status.has_body() {
        shared.requests.outboxes.buffer(id).extend_from_slice(body);
    }
    shared.response_started(id, status.0);
}

/// Writes the head of an application's response: the application's headers, the route's headers
/// that the application does not set, and the headers that `own` adds. If a header is invalid,
/// writes a 500 instead and returns false.
pub(crate) fn write_app_head(
    reply: &ReplyContext,
    id: ConnectionId,
    head: ResponseHead,
    status: Status,
    headers: &[(String, String)],
    own: impl FnOnce(&mut ResponseWriter<'_>),
    shared: &mut Context,
) -> bool {
    let out = shared.requests.outboxes.buffer(id);
    let before = out.len();
    let mut writer = head.start(out, shared.date.text());
    let mut fault = match status.0 {
        200..=599 => None,
        other => Some(format!("{other} is not a valid response status")),
    };
    for (name, value) in headers {
        if let Err(invalid) = writer.header(name, value) {
            fault.get_or_insert_with(|| format!("header {name:?}: {invalid}"));
        }
    }
    for (name, value) in reply.added(status) {
        if !has(headers, name) {
            // Headers of a route are valid, so this can't fail.
            let _ = writer.header(name, value);
        }
    }
    own(&mut writer);
    writer.finish();
    let Some(fault) = fault else { return true };
    out.truncate(before);
    shared.log(
        id,
        NoteLevel::Warn,
        format!("the application's response can't be written: {fault}"),
    );
    let what = b"the application failed\n";
    let kind = "text/plain; charset=utf-8";
    reply.write(id, Status::INTERNAL_SERVER_ERROR, kind, what, shared);
    false
}

/// A refusal of a valid request.
pub(crate) struct Refusal {
    pub(crate) status: Status,
    headers: Vec<(&'static str, String)>,
    content_type: &'static str,
    body: String,
    /// Whether the connection ends after the response.
    pub(crate) ends: bool,
}

impl Refusal {
    /// Creates a refusal whose body is the reason, as one line of text.
    pub(crate) fn new(status: Status, why: &str) -> Self {
        Self {
            status,
            headers: Vec::new(),
            content_type: "text/plain; charset=utf-8",
            body: format!("{why}\n"),
            ends: false,
        }
    }

    /// Creates a refusal whose body is JSON.
    pub(crate) fn json(status: Status, body: String) -> Self {
        Self {
            status,
            headers: Vec::new(),
            content_type: "application/json",
            body,
            ends: false,
        }
    }

    pub(crate) fn why(&self) -> &str {
        self.body.trim_end()
    }

    pub(crate) fn write(&self, reply: &ReplyContext, id: ConnectionId, shared: &mut Context) {
        let mut headers = vec![("Content-Type", self.content_type)];
        headers.extend(
            self.headers
                .iter()
                .map(|(name, value)| (*name, value.as_str())),
        );
        reply.write_with(id, self.status, &headers, self.body.as_bytes(), shared);
    }

    /// Makes the connection end after the response.
    pub(crate) fn ending(mut self) -> Self {
        self.ends = true;
        self
    }

    pub(crate) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

/// Answers a malformed request and ends the connection, since it is unknown where the next request begins.
pub(crate) fn refuse_request(id: ConnectionId, error: &HttpError, shared: &mut Context) {
    shared.log_as(
        error.reason,
        id,
        NoteLevel::Info,
        format!("request refused with {}: {}", error.status.0, error.reason),
    );
    shared.stats.response(error.status.0);
    shared
        .requests
        .outboxes
        .access_log
        .unreadable_request(id, error.status.0);
    shared.stats.protocol_errors.add(1);
    http::write_error(
        shared.requests.outboxes.buffer(id),
        error,
        shared.date.text(),
    );
}
