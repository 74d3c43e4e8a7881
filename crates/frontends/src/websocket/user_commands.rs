//! Executes commands of back ends for a session. This module closes connections and sets their expiry;
//! the session executes all other commands.

use std::sync::Arc;

use veche_hub::{ConnectionId, UserAction, UserCommand};
use veche_types::codes::CloseCode;

use super::WebSocketStage;
use crate::context::session::Session;
use crate::context::worker_context::Context;

impl<S: Session> WebSocketStage<S> {
    /// Executes a back end's command if it applies to this session.
    pub(crate) fn handle_user_command(
        &mut self,
        id: ConnectionId,
        instruction: &Arc<UserCommand>,
        shared: &mut Context,
    ) {
        let is_meant =
            instruction.applies_to_all() || self.session.matches_command(instruction, id, shared);
        if !is_meant || self.is_closing() {
            return;
        }
        match &instruction.action {
            UserAction::Disconnect { code, reason } => {
                return self.close(id, *code, reason, shared);
            }
            UserAction::Refresh {
                is_expired: true, ..
            } => {
                let (code, reason) = CloseCode::Expired.parts();
                return self.close(id, code, reason, shared);
            }
            UserAction::Refresh { expires_at_s, .. } => self.prolong(*expires_at_s),
            UserAction::Subscribe(_) | UserAction::Unsubscribe { .. } => {}
        }
        self.with_session(id, shared, |session, cx| {
            session.handle_user_command(instruction, cx)
        });
    }

    /// Tells the session that publications of a channel were lost and can't be recovered.
    pub(crate) fn handle_lost_history(
        &mut self,
        id: ConnectionId,
        channel: &str,
        shared: &mut Context,
    ) {
        if !self.is_closing() {
            self.with_session(id, shared, |session, cx| {
                session.handle_lost_history(channel, cx)
            });
        }
    }
}
