//! The back end's HTTP API: calls by path, their authorisation and responses.
//!
//! Publishing is implemented in [`backend`](crate::backend). Responses are `{"result":{…}}` or
//! `{"error":{"code","message"}}`, both with status 200. With the header `X-Centrifugo-Error-Mode`
//! a caller requests HTTP error statuses for errors.

mod answers;
mod batch;
mod direct;
mod method;

use std::net::IpAddr;

pub(crate) use answers::ApiAnswerBody;
use batch::ApiBatch;
pub use direct::{DirectCall, DirectCallStatus};
use method::ApiMethod;
use veche_hub::{ConnectionId, HubReply, Ticket};
use veche_proto::http::{Framing, Head, Method as Verb, Status};
use veche_types::codes::ErrorCode;

use crate::backend::admin::{self, AdminView};
use crate::backend::command::BadCommand;
use crate::backend::{Backend, CommandProgress, Rejection, status_of};
use crate::context::credential_kind::CredentialKind;
use crate::context::publish_limiter::PublisherKey;
use crate::context::step::WaitReason;
use crate::context::worker_context::Context;
use crate::http::api_error::error_body;
use crate::http::call::{ApiCall, CallStatus};
use crate::http::reply::Refusal;
use crate::http::{api_error, wrong_key};

/// An API call, from its head to its response.
pub(crate) struct BackendCall {
    method: ApiMethod,
    backend: Backend,
    batch: Option<ApiBatch>,
    /// Whether the response to a failed command has an error status; if false, its status is 200.
    has_status: bool,
}

/// The name and the value of the header that requests HTTP error statuses for failed commands.
const ERROR_MODE: (&str, &[u8]) = ("x-centrifugo-error-mode", b"transport");

impl ApiCall for BackendCall {
    type Answers = ApiAnswerBody;

    fn begin(
        head: &Head<'_>,
        below: &str,
        client: IpAddr,
        id: ConnectionId,
        shared: &mut Context,
    ) -> Result<Self, Refusal> {
        let Some(publisher) = shared.config.publisher(head) else {
            return Err(wrong_key::refuse_wrong_key(
                head,
                CredentialKind::Api,
                client,
                id,
                shared,
            ));
        };
        let name = below.trim_matches('/');
        if name == "socket" {
            let why = "this path requires a WebSocket";
            return Err(Refusal::new(Status::UPGRADE_REQUIRED, why));
        }
        Self::of(head, ApiMethod::of(name), publisher)
    }

    /// Begins a call of the admin page, which has methods in addition to those of the API.
    fn begin_admin(
        head: &Head<'_>,
        name: &str,
        is_tls: bool,
        client: IpAddr,
        id: ConnectionId,
        shared: &mut Context,
    ) -> Result<Self, Refusal> {
        admin::admit(head, is_tls, client, id, shared)?;
        let method = AdminView::of(name).map_or_else(|| ApiMethod::of(name), ApiMethod::Look);
        Self::of(head, method, PublisherKey::default())
    }

    fn run(
        &mut self,
        body: &[u8],
        id: ConnectionId,
        shared: &mut Context,
    ) -> CallStatus<ApiAnswerBody> {
        match self.begin_to(body, id, shared) {
            Err(Rejection::Busy(busy)) => {
                shared.stats.reject_push_connection(busy);
                CallStatus::Refused(api_error::busy(busy))
            }
            Err(Rejection::Bad(BadCommand {
                reason: why, code, ..
            })) => {
                shared.stats.pushes_refused.add(1);
                self.answered_with(ApiAnswerBody::whole(error_body(code, &why)))
            }
            Ok(Some(block)) => CallStatus::Pending(block),
            Ok(None) => self.end(),
        }
    }

    fn resume(&mut self, id: ConnectionId, shared: &mut Context) -> CallStatus<ApiAnswerBody> {
        if !self.backend.resume(id, shared) {
            return CallStatus::Pending(WaitReason::Credit);
        }
        if let Some(batch) = &mut self.batch
            && let Some(block) = batch.advance(&mut self.backend, id, shared)
        {
            return CallStatus::Pending(block);
        }
        self.end()
    }

    fn answered(&mut self, ticket: Ticket, answer: HubReply) {
        self.backend.answered(ticket, answer);
    }
}

impl BackendCall {
    fn of(head: &Head<'_>, method: ApiMethod, publisher: PublisherKey) -> Result<Self, Refusal> {
        let has_body =
            head.framing != Framing::None || head.header_bytes("content-length").is_some();
        if head.method == Verb::Post && !has_body && method.takes_body() {
            let why = "this call requires a JSON object with Content-Length";
            return Err(api_error::of_api(
                Status::LENGTH_REQUIRED,
                ErrorCode::BadRequest,
                why,
            ));
        }
        match (method, &head.method) {
            (ApiMethod::Info, Verb::Get | Verb::Head) | (_, Verb::Post) => {}
            _ => {
                let allow = if method == ApiMethod::Info {
                    "GET, HEAD, POST"
                } else {
                    "POST"
                };
                let why = format!("this call requires {allow}");
                return Err(api_error::of_api(
                    Status::METHOD_NOT_ALLOWED,
                    ErrorCode::BadRequest,
                    &why,
                )
                .with("Allow", allow));
            }
        }
        Ok(Self {
            method,
            backend: Backend::of(publisher),
            batch: None,
            has_status: head.header_bytes(ERROR_MODE.0) == Some(ERROR_MODE.1),
        })
    }

    /// Begins the call; returns what its next step has to wait for, or `None` if all commands were started.
    fn begin_to(
        &mut self,
        body: &[u8],
        id: ConnectionId,
        shared: &mut Context,
    ) -> Result<Option<WaitReason>, Rejection> {
        if let ApiMethod::Batch | ApiMethod::Lines = self.method {
            let are_lines = self.method == ApiMethod::Lines;
            let batch = self.batch.insert(ApiBatch::parse(body, are_lines)?);
            return Ok(batch.advance(&mut self.backend, id, shared));
        }
        let progress = self.method.execute(body, &mut self.backend, id, shared)?;
        Ok((progress == CommandProgress::Unfinished).then_some(WaitReason::Credit))
    }

    fn end(&mut self) -> CallStatus<ApiAnswerBody> {
        let answer = match &mut self.batch {
            Some(batch) => batch.answers(&mut self.backend),
            None => self.backend.take_answers().map(ApiAnswerBody::one),
        };
        match answer {
            Some(answer) => self.answered_with(answer),
            None => CallStatus::Pending(WaitReason::Answer),
        }
    }

    /// Returns the status of an answered call. A call with several commands has one answer per command, and therefore
    /// no error status.
    fn answered_with(&self, answers: ApiAnswerBody) -> CallStatus<ApiAnswerBody> {
        let error = match &self.batch {
            None if self.has_status => answers.error(),
            _ => None,
        };
        match error {
            Some((code, error)) => CallStatus::Refused(Refusal::json(status_of(code), error)),
            None => CallStatus::Answered(answers),
        }
    }
}
