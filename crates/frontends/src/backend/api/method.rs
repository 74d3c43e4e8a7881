//! The methods of the API: their names and execution.

use veche_hub::{ChannelQuery, ConnectionId};
use veche_types::codes::ErrorCode;
use veche_types::nearest;

use crate::backend::admin::{self, AdminView};
use crate::backend::command::{self, BadCommand, PublishCommand, PublishTarget};
use crate::backend::{AnswerShape, Backend, CommandProgress, Rejection};
use crate::context::worker_context::Context;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ApiMethod {
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
    pub(super) fn of(name: &str) -> Self {
        if name.is_empty() {
            return Self::Lines;
        }
        let found = NAMES.iter().find(|(known, _)| *known == name);
        let meant = || nearest(name, NAMES.map(|(known, _)| known));
        found.map_or_else(|| Self::Unknown(meant()), |(_, method)| *method)
    }

    /// Returns the method's name; "error" for an unknown method.
    pub(super) fn name(self) -> &'static str {
        let found = NAMES.iter().find(|(_, method)| *method == self);
        found.map_or("error", |(name, _)| name)
    }

    /// Returns whether the method requires a JSON object as its body.
    pub(super) fn takes_body(self) -> bool {
        !matches!(
            self,
            Self::Info | Self::Channels | Self::Look(_) | Self::Unknown(_)
        )
    }

    /// Returns whether the method publishes and does nothing else.
    pub(super) fn publishes(self) -> bool {
        matches!(self, Self::Push | Self::Publish | Self::Broadcast)
    }

    /// Executes the method. Not for the methods that contain several commands.
    pub(super) fn execute(
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
