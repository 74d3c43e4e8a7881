//! The methods of the API: their names and execution.

use veche_hub::{ConnectionId, Question};
use veche_types::codes::ErrorCode;
use veche_types::nearest;

use crate::backend::admin::{self, Look};
use crate::backend::command::{self, BadCommand, Command, Target};
use crate::backend::{Backend, Progress, Shape, Unwilling};
use crate::context::shared::Shared;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
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
    /// Centrifugo's legacy commands, each with its method's name, on `/api` itself.
    Lines,
    /// A view of the admin page.
    Look(Look),
    /// An unknown method, with a similar name.
    Unknown(Option<&'static str>),
}

const NAMES: [(&str, Method); 20] = [
    ("push", Method::Push),
    ("publish", Method::Publish),
    ("broadcast", Method::Broadcast),
    ("disconnect", Method::Disconnect),
    ("subscribe", Method::Subscribe),
    ("unsubscribe", Method::Unsubscribe),
    ("refresh", Method::Refresh),
    ("user_status", Method::UserStatus),
    ("block_user", Method::BlockUser),
    ("unblock_user", Method::UnblockUser),
    ("revoke_token", Method::RevokeToken),
    ("invalidate_user_tokens", Method::InvalidateUserTokens),
    ("history", Method::History),
    ("history_remove", Method::HistoryRemove),
    ("presence", Method::Presence),
    ("presence_stats", Method::PresenceStats),
    ("channels", Method::Channels),
    ("connections", Method::Connections),
    ("info", Method::Info),
    ("batch", Method::Batch),
];

impl Method {
    pub(super) fn of(name: &str) -> Self {
        if name.is_empty() {
            return Self::Lines;
        }
        let found = NAMES.iter().find(|(known, _)| *known == name);
        let meant = || nearest(name, NAMES.map(|(known, _)| known));
        found.map_or_else(|| Self::Unknown(meant()), |(_, method)| *method)
    }

    /// Returns its name; "error" for an unknown one.
    pub(super) fn name(self) -> &'static str {
        let found = NAMES.iter().find(|(_, method)| *method == self);
        found.map_or("error", |(name, _)| name)
    }

    /// Returns whether it requires an object.
    pub(super) fn takes_body(self) -> bool {
        !matches!(
            self,
            Self::Info | Self::Channels | Self::Look(_) | Self::Unknown(_)
        )
    }

    /// Returns whether it only publishes.
    pub(super) fn publishes(self) -> bool {
        matches!(self, Self::Push | Self::Publish | Self::Broadcast)
    }

    /// Executes the method; not for several commands in one.
    pub(super) fn carry_out(
        self,
        body: &[u8],
        backend: &mut Backend,
        id: ConnectionId,
        shared: &mut Shared,
    ) -> Result<Progress, Unwilling> {
        if !shared.site.accepts_unknown_fields {
            return self.dispatch(body, backend, id, shared);
        }
        // Nothing is executed before everything is parsed.
        let attempt = |body: &[u8]| self.dispatch(body, backend, id, shared);
        let unknown_field = |error: &Unwilling| match error {
            Unwilling::Bad(mistake) => mistake.unknown_field(),
            Unwilling::Busy(_) => None,
        };
        command::despite_unknown_fields(body, attempt, unknown_field)
    }

    fn dispatch(
        self,
        body: &[u8],
        backend: &mut Backend,
        id: ConnectionId,
        shared: &mut Shared,
    ) -> Result<Progress, Unwilling> {
        match self {
            Self::Push | Self::Publish => self.publish(body, Shape::Sum, backend, id, shared),
            Self::Broadcast => self.publish(body, Shape::Each, backend, id, shared),
            Self::Disconnect => backend.instruct(command::parse_disconnect(body)?, id, shared),
            Self::Subscribe => {
                let wanted = command::parse_subscribe(body, &shared.site.namespaces)?;
                backend.instruct(wanted, id, shared)
            }
            Self::Unsubscribe => {
                let wanted = command::parse_unsubscribe(body, &shared.site.namespaces)?;
                backend.instruct(wanted, id, shared)
            }
            Self::Refresh => backend.instruct(command::parse_refresh(body)?, id, shared),
            Self::BlockUser => backend.block(&command::parse_block(body)?, id, shared),
            Self::UnblockUser => backend.block(&command::parse_unblock(body)?, id, shared),
            Self::RevokeToken => backend.block(&command::parse_revoke(body)?, id, shared),
            Self::InvalidateUserTokens => {
                let block = command::parse_invalidate(body, shared.now.wall_ms / 1000)?;
                backend.block(&block, id, shared)
            }
            Self::History => backend.ask(command::parse_history(body)?, id, shared),
            Self::HistoryRemove => {
                let inquiry = command::parse_inquiry(body, Question::RemoveHistory)?;
                backend.ask(inquiry, id, shared)
            }
            Self::Presence => {
                let inquiry = command::parse_inquiry(body, Question::Presence)?;
                backend.ask(inquiry, id, shared)
            }
            Self::PresenceStats => {
                let inquiry = command::parse_inquiry(body, Question::PresenceStats)?;
                backend.ask(inquiry, id, shared)
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
                Ok(backend.tell(format!("{{\"nodes\":{nodes}}}")))
            }
            Self::Look(look) => {
                let shown = shared.process.look(admin::narrowed(look, body)?);
                Ok(backend.tell(shown))
            }
            Self::Batch | Self::Lines | Self::Unknown(None) => {
                backend.refuse_with(ErrorCode::MethodNotFound, "method not found");
                Ok(Progress::Done)
            }
            Self::Unknown(Some(meant)) => {
                let why = format!("method not found; did you mean {meant:?}?");
                backend.refuse_with(ErrorCode::MethodNotFound, &why);
                Ok(Progress::Done)
            }
        }
    }

    fn publish(
        self,
        body: &[u8],
        shape: Shape,
        backend: &mut Backend,
        id: ConnectionId,
        shared: &mut Shared,
    ) -> Result<Progress, Unwilling> {
        let mut scratch = std::mem::take(&mut shared.scratch.payload);
        let parsed = command::parse(body, &mut scratch);
        shared.scratch.payload = scratch;
        let command = parsed?;
        self.check(&command)?;
        backend.publish(&command, shape, true, id, shared)
    }

    /// Checks that the object has what the method needs.
    fn check(self, command: &Command<'_>) -> Result<(), BadCommand> {
        let wanted = match (self, &command.target) {
            (Self::Push, Target::User(_) | Target::Users(_))
            | (Self::Publish, Target::Channel(_))
            | (Self::Broadcast, Target::Channels(_)) => return Ok(()),
            (Self::Push, _) => "\"user\" or \"users\"",
            (Self::Publish, _) => "\"channel\"",
            _ => "\"channels\"",
        };
        Err(BadCommand::new(format!("this call takes {wanted}")))
    }
}
