//! The back end's HTTP API: calls by path, their authorisation, execution and responses.
//!
//! `execution` executes the commands. Responses are `{"result":{…}}` or `{"error":{"code","message"}}`, both with
//! status 200. An error has an HTTP error status if the caller sends `X-Centrifugo-Error-Mode: transport`.

mod answers;
mod batch;
mod direct;

use std::net::IpAddr;

pub(crate) use answers::ApiAnswerBody;
use batch::ApiBatch;
pub use direct::{DirectCall, DirectCallStatus};
use veche_hub::{ChannelQuery, ConnectionId, HubReply, Ticket};
use veche_proto::http::{Framing, Head, Method as Verb, Status};
use veche_types::codes::ErrorCode;
use veche_types::nearest;

use crate::backend::admin::{self, AdminView};
use crate::backend::command::{self, BadCommand, PublishCommand, PublishTarget};
use crate::backend::{AnswerShape, Backend, CommandProgress, Rejection, status_of};
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

/// A method of the API, which the path of the call names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ApiMethod {
    Push,
    Publish,
    Broadcast,
    Disconnect,
    Subscribe,
    Unsubscribe,
    Refresh,
    UserStatus,
    BlockUser,
    UnblockUser,
    RevokeToken,
    InvalidateUserTokens,
    History,
    HistoryRemove,
    Presence,
    PresenceStats,
    Channels,
    Connections,
    Info,
    Batch,
    /// Centrifugo's legacy commands, sent to `/api` itself; each command names its method.
    Lines,
    /// A view of the admin page.
    Look(AdminView),
    /// An unknown method, with the name of a similar one, if any.
    Unknown(Option<&'static str>),
}

const NAMES: [(&str, ApiMethod); 20] = [
    ("push", ApiMethod::Push),
    ("publish", ApiMethod::Publish),
    ("broadcast", ApiMethod::Broadcast),
    ("disconnect", ApiMethod::Disconnect),
    ("subscribe", ApiMethod::Subscribe),
    ("unsubscribe", ApiMethod::Unsubscribe),
    ("refresh", ApiMethod::Refresh),
    ("user_status", ApiMethod::UserStatus),
    ("block_user", ApiMethod::BlockUser),
    ("unblock_user", ApiMethod::UnblockUser),
    ("revoke_token", ApiMethod::RevokeToken),
    ("invalidate_user_tokens", ApiMethod::InvalidateUserTokens),
    ("history", ApiMethod::History),
    ("history_remove", ApiMethod::HistoryRemove),
    ("presence", ApiMethod::Presence),
    ("presence_stats", ApiMethod::PresenceStats),
    ("channels", ApiMethod::Channels),
    ("connections", ApiMethod::Connections),
    ("info", ApiMethod::Info),
    ("batch", ApiMethod::Batch),
];

impl ApiMethod {
    fn of(name: &str) -> Self {
        if name.is_empty() {
            return Self::Lines;
        }
        let found = NAMES.iter().find(|(known, _)| *known == name);
        let meant = || nearest(name, NAMES.map(|(known, _)| known));
        found.map_or_else(|| Self::Unknown(meant()), |(_, method)| *method)
    }

    /// Returns the method's name; "error" for an unknown method.
    fn name(self) -> &'static str {
        let found = NAMES.iter().find(|(_, method)| *method == self);
        found.map_or("error", |(name, _)| name)
    }

    /// Returns whether the method requires a JSON object as its body.
    fn takes_body(self) -> bool {
        !matches!(
            self,
            Self::Info | Self::Channels | Self::Look(_) | Self::Unknown(_)
        )
    }

    /// Returns whether the method publishes and does nothing else.
    fn publishes(self) -> bool {
        matches!(self, Self::Push | Self::Publish | Self::Broadcast)
    }

    /// Executes a method other than [`ApiMethod::Batch`] and [`ApiMethod::Lines`], which contain several commands.
    fn execute(
        self,
        body: &[u8],
        backend: &mut Backend,
        id: ConnectionId,
        shared: &mut Context,
    ) -> Result<CommandProgress, Rejection> {
        if !shared.config.accepts_unknown_fields {
            return self.dispatch(body, backend, id, shared);
        }
        // Unknown fields are removed and the call is repeated: this is safe because nothing is executed before the
        // whole body is parsed.
        let attempt = |body: &[u8]| self.dispatch(body, backend, id, shared);
        let unknown_field = |error: &Rejection| match error {
            Rejection::Bad(mistake) => mistake.unknown_field(),
            Rejection::Busy(_) => None,
        };
        command::retry_without_unknown_fields(body, attempt, unknown_field)
    }

    fn dispatch(
        self,
        body: &[u8],
        backend: &mut Backend,
        id: ConnectionId,
        shared: &mut Context,
    ) -> Result<CommandProgress, Rejection> {
        match self {
            Self::Push | Self::Publish => self.publish(body, AnswerShape::Sum, backend, id, shared),
            Self::Broadcast => self.publish(body, AnswerShape::Each, backend, id, shared),
            Self::Disconnect => {
                backend.send_user_command(command::parse_disconnect(body)?, id, shared)
            }
            Self::Subscribe => {
                let wanted = command::parse_subscribe(body, &shared.config.namespaces)?;
                backend.send_user_command(wanted, id, shared)
            }
            Self::Unsubscribe => {
                let wanted = command::parse_unsubscribe(body, &shared.config.namespaces)?;
                backend.send_user_command(wanted, id, shared)
            }
            Self::Refresh => backend.send_user_command(command::parse_refresh(body)?, id, shared),
            Self::BlockUser => backend.ban(&command::parse_block_user(body)?, id, shared),
            Self::UnblockUser => backend.ban(&command::parse_unblock_user(body)?, id, shared),
            Self::RevokeToken => backend.ban(&command::parse_revoke_token(body)?, id, shared),
            Self::InvalidateUserTokens => {
                let block = command::parse_invalidate_user_tokens(body, shared.now.wall_ms / 1000)?;
                backend.ban(&block, id, shared)
            }
            Self::History => backend.query_channel(command::parse_history(body)?, id, shared),
            Self::HistoryRemove => {
                let channel_command =
                    command::parse_channel_command(body, ChannelQuery::RemoveHistory)?;
                backend.query_channel(channel_command, id, shared)
            }
            Self::Presence => {
                let channel_command = command::parse_channel_command(body, ChannelQuery::Presence)?;
                backend.query_channel(channel_command, id, shared)
            }
            Self::PresenceStats => {
                let channel_command =
                    command::parse_channel_command(body, ChannelQuery::PresenceStats)?;
                backend.query_channel(channel_command, id, shared)
            }
            Self::UserStatus => backend.user_status(&command::parse_user(body)?, id, shared),
            Self::Connections => {
                backend.connections(&command::parse_connections(body)?, id, shared)
            }
            Self::Channels => {
                let pattern = command::parse_pattern(body)?;
                backend.channels(pattern.as_ref(), id, shared)
            }
            Self::Info => {
                let nodes = shared.process.nodes();
                Ok(backend.answer_with_text(format!("{{\"nodes\":{nodes}}}")))
            }
            Self::Look(look) => {
                let shown = shared
                    .process
                    .admin_view(admin::filter_channels(look, body)?);
                Ok(backend.answer_with_text(shown))
            }
            Self::Batch | Self::Lines | Self::Unknown(None) => {
                backend.refuse_with(ErrorCode::MethodNotFound, "method not found");
                Ok(CommandProgress::Done)
            }
            Self::Unknown(Some(meant)) => {
                let why = format!("method not found; did you mean {meant:?}?");
                backend.refuse_with(ErrorCode::MethodNotFound, &why);
                Ok(CommandProgress::Done)
            }
        }
    }

    fn publish(
        self,
        body: &[u8],
        shape: AnswerShape,
        backend: &mut Backend,
        id: ConnectionId,
        shared: &mut Context,
    ) -> Result<CommandProgress, Rejection> {
        let mut scratch = std::mem::take(&mut shared.scratch.payload);
        let parsed = command::parse(body, &mut scratch);
        shared.scratch.payload = scratch;
        let command = parsed?;
        self.check(&command)?;
        backend.publish(&command, shape, true, id, shared)
    }

    /// Checks that the command has the fields that the method requires.
    fn check(self, command: &PublishCommand<'_>) -> Result<(), BadCommand> {
        let wanted = match (self, &command.target) {
            (Self::Push, PublishTarget::User(_) | PublishTarget::Users(_))
            | (Self::Publish, PublishTarget::Channel(_))
            | (Self::Broadcast, PublishTarget::Channels(_)) => return Ok(()),
            (Self::Push, _) => "\"user\" or \"users\"",
            (Self::Publish, _) => "\"channel\"",
            _ => "\"channels\"",
        };
        Err(BadCommand::new(format!("this call requires {wanted}")))
    }
}
