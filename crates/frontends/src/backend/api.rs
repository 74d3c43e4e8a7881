//! The back end's HTTP API: calls by path, their authorisation and responses.
//!
//! Publishing is implemented in [`backend`](crate::backend). Responses are `{"result":{…}}` or
//! `{"error":{"code","message"}}` with status 200, since the transport succeeded. A caller may request statuses for
//! errors by a header.

mod answers;
mod batch;
mod direct;
mod method;

use std::net::IpAddr;

pub(crate) use answers::Answers;
use batch::Batch;
pub use direct::{Direct, DirectCall};
use method::Method;
use veche_hub::{Answer, ConnectionId, Ticket};
use veche_proto::http::{Framing, Head, Method as Verb, Status};
use veche_types::codes::ErrorCode;

use crate::backend::admin::{self, Look};
use crate::backend::command::BadCommand;
use crate::backend::{Backend, Progress, Unwilling, status_of};
use crate::context::guessing::Lock;
use crate::context::publishing::Publisher;
use crate::context::shared::Shared;
use crate::context::step::Block;
use crate::http::api_error::error_body;
use crate::http::call::{ApiCall, CallEnd};
use crate::http::reply::Refusal;
use crate::http::{api_error, guessing};

/// An API call, from its head to its response.
pub(crate) struct Call {
    method: Method,
    backend: Backend,
    batch: Option<Batch>,
    /// Errors have statuses.
    has_status: bool,
}

/// The header that requests statuses for errors, and its value.
const ERROR_MODE: (&str, &[u8]) = ("x-centrifugo-error-mode", b"transport");

impl ApiCall for Call {
    type Answers = Answers;

    fn begin(
        head: &Head<'_>,
        below: &str,
        client: IpAddr,
        id: ConnectionId,
        shared: &mut Shared,
    ) -> Result<Self, Refusal> {
        let Some(publisher) = shared.site.publisher(head) else {
            return Err(guessing::refuse(head, Lock::Api, client, id, shared));
        };
        let name = below.trim_matches('/');
        if name == "socket" {
            let why = "this path speaks WebSocket";
            return Err(Refusal::new(Status::UPGRADE_REQUIRED, why));
        }
        Self::of(head, Method::of(name), publisher)
    }

    /// The admin page has methods in addition to those of the API.
    fn begin_admin(
        head: &Head<'_>,
        name: &str,
        is_tls: bool,
        client: IpAddr,
        id: ConnectionId,
        shared: &mut Shared,
    ) -> Result<Self, Refusal> {
        admin::admit(head, is_tls, client, id, shared)?;
        let method = Look::of(name).map_or_else(|| Method::of(name), Method::Look);
        Self::of(head, method, Publisher::default())
    }

    fn run(&mut self, body: &[u8], id: ConnectionId, shared: &mut Shared) -> CallEnd<Answers> {
        match self.begin_to(body, id, shared) {
            Err(Unwilling::Busy(busy)) => {
                shared.stats.push_turned_away(busy);
                CallEnd::Refused(api_error::busy(busy))
            }
            Err(Unwilling::Bad(BadCommand { why, code, .. })) => {
                shared.stats.pushes_refused.add(1);
                self.answered_with(Answers::whole(error_body(code, &why)))
            }
            Ok(Some(block)) => CallEnd::Waits(block),
            Ok(None) => self.end(),
        }
    }

    fn resume(&mut self, id: ConnectionId, shared: &mut Shared) -> CallEnd<Answers> {
        if !self.backend.resume(id, shared) {
            return CallEnd::Waits(Block::Credit);
        }
        if let Some(batch) = &mut self.batch
            && let Some(block) = batch.advance(&mut self.backend, id, shared)
        {
            return CallEnd::Waits(block);
        }
        self.end()
    }

    fn answered(&mut self, ticket: Ticket, answer: Answer) {
        self.backend.answered(ticket, answer);
    }
}

impl Call {
    fn of(head: &Head<'_>, method: Method, publisher: Publisher) -> Result<Self, Refusal> {
        let has_body =
            head.framing != Framing::None || head.header_bytes("content-length").is_some();
        if head.method == Verb::Post && !has_body && method.takes_body() {
            let why = "this call takes a JSON object, with its Content-Length";
            return Err(api_error::of_api(
                Status::LENGTH_REQUIRED,
                ErrorCode::BadRequest,
                why,
            ));
        }
        match (method, &head.method) {
            (Method::Info, Verb::Get | Verb::Head) | (_, Verb::Post) => {}
            _ => {
                let allow = if method == Method::Info {
                    "GET, HEAD, POST"
                } else {
                    "POST"
                };
                let why = format!("this call takes {allow}");
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

    /// Begins the call; returns what it has to wait for.
    fn begin_to(
        &mut self,
        body: &[u8],
        id: ConnectionId,
        shared: &mut Shared,
    ) -> Result<Option<Block>, Unwilling> {
        if let Method::Batch | Method::Lines = self.method {
            let are_lines = self.method == Method::Lines;
            let batch = self.batch.insert(Batch::parse(body, are_lines)?);
            return Ok(batch.advance(&mut self.backend, id, shared));
        }
        let progress = self.method.carry_out(body, &mut self.backend, id, shared)?;
        Ok((progress == Progress::Unfinished).then_some(Block::Credit))
    }

    fn end(&mut self) -> CallEnd<Answers> {
        let answer = match &mut self.batch {
            Some(batch) => batch.answers(&mut self.backend),
            None => self.backend.take_answers().map(Answers::one),
        };
        match answer {
            Some(answer) => self.answered_with(answer),
            None => CallEnd::Waits(Block::Answer),
        }
    }

    /// A call with several commands has an answer for each, and therefore no error status.
    fn answered_with(&self, answers: Answers) -> CallEnd<Answers> {
        let error = match &self.batch {
            None if self.has_status => answers.error(),
            _ => None,
        };
        match error {
            Some((code, error)) => CallEnd::Refused(Refusal::json(status_of(code), error)),
            None => CallEnd::Answered(answers),
        }
    }
}
