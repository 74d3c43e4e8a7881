//! Reports the decisions on a client's commands to the decision log.

use std::borrow::Cow;

use veche_centrifuge::ClientRequest;

use super::frame::ReplyFrame;
use super::{Centrifuge, CommandStatus, PendingTicket, SessionContext};
use crate::context::log_note::AuthDecision;

/// Returns the name and channel of a command whose outcome is reported; `None` for other commands.
fn asked<'r>(request: &'r ClientRequest<'_>) -> Option<(&'static str, &'r str)> {
    Some(match request {
        ClientRequest::Connect(_) => ("connect", ""),
        ClientRequest::Subscribe(request) => ("subscribe", &request.channel),
        ClientRequest::Unsubscribe(request) => ("unsubscribe", &request.channel),
        ClientRequest::Publish(request) => ("publish", &request.channel),
        ClientRequest::Refresh(_) => ("refresh", ""),
        ClientRequest::SubRefresh(request) => ("sub_refresh", &request.channel),
        _ => return None,
    })
}

impl Centrifuge {
    /// Returns the client's user and id.
    pub(crate) fn user_and_client(&self) -> (&str, &str) {
        (&self.info.user, &self.info.client)
    }

    /// Reports the outcome of a command, unless it is still pending.
    pub(super) fn log_outcome(
        &self,
        request: &ClientRequest<'_>,
        done: &CommandStatus,
        frame: &mut ReplyFrame,
        cx: &SessionContext<'_>,
    ) {
        let refusal = frame.take_refusal();
        if let Some((what, channel)) = asked(request) {
            self.log_done(what, channel, done, refusal, cx);
        }
    }

    /// Reports the outcome of a command whose reply was deferred.
    pub(super) fn log_deferred_outcome(
        &self,
        waiting: &WatchedCommand,
        done: &CommandStatus,
        frame: &mut ReplyFrame,
        cx: &SessionContext<'_>,
    ) {
        let (what, channel) = match waiting {
            WatchedCommand::Connect => ("connect", ""),
            WatchedCommand::Subscribe(channel) => ("subscribe", &**channel),
            WatchedCommand::Other => return,
        };
        self.log_done(what, channel, done, frame.take_refusal(), cx);
    }

    fn log_done(
        &self,
        what: &'static str,
        channel: &str,
        done: &CommandStatus,
        refusal: Option<(u32, Box<str>)>,
        cx: &SessionContext<'_>,
    ) {
        let (code, reason): (u32, Cow<'_, str>) = match (done, refusal) {
            (CommandStatus::Close(code), _) => (code.code().into(), code.text().into()),
            (CommandStatus::End(code, reason), _) => ((*code).into(), reason.clone()),
            (_, Some((code, words))) => (code, words.into_string().into()),
            (CommandStatus::Yes | CommandStatus::Waits(PendingTicket::Publish { .. }), None) => {
                (0, "".into())
            }
            // The command is still pending.
            _ => return,
        };
        let (user, client) = self.user_and_client();
        cx.shared.log_decision(&AuthDecision {
            what,
            user,
            client,
            channel,
            code,
            reason: &reason,
        });
    }
}

/// A pending command. When it is completed, its outcome is reported, except for [`Other`](Self::Other) commands.
pub(super) enum WatchedCommand {
    Connect,
    Subscribe(Box<str>),
    Other,
}

impl WatchedCommand {
    pub(super) fn of(waiting: &PendingTicket) -> Self {
        match waiting {
            PendingTicket::Connect(_) => Self::Connect,
            PendingTicket::Subscribe(asked) => Self::Subscribe(asked.channel().into()),
            _ => Self::Other,
        }
    }
}
