//! What a back end has done to a session: it is closed or kept for longer here; the rest is the session's.

use std::sync::Arc;

use veche_hub::{ConnectionId, Deed, Instruction};
use veche_types::codes::CloseCode;

use super::Socket;
use crate::context::session::Session;
use crate::context::shared::Shared;

impl<S: Session> Socket<S> {
    /// Carries out what a back end wants, if it means this session.
    pub(crate) fn instructed(
        &mut self,
        id: ConnectionId,
        instruction: &Arc<Instruction>,
        shared: &mut Shared,
    ) {
        let is_meant = instruction.means_all() || self.session.is_meant(instruction, id, shared);
        if !is_meant || self.is_closing() {
            return;
        }
        match &instruction.deed {
            Deed::Disconnect { code, reason } => {
                return self.close(id, *code, reason, shared);
            }
            Deed::Refresh {
                is_expired: true, ..
            } => {
                let (code, reason) = CloseCode::Expired.parts();
                return self.close(id, code, reason, shared);
            }
            Deed::Refresh { expires_at_s, .. } => self.prolong(*expires_at_s),
            Deed::Subscribe(_) | Deed::Unsubscribe { .. } => {}
        }
        self.with_session(id, shared, |session, cx| {
            session.instructed(instruction, cx)
        });
    }

    /// Tells the session that publications of a channel were lost and can't be recovered.
    pub(crate) fn lost(&mut self, id: ConnectionId, channel: &str, shared: &mut Shared) {
        if !self.is_closing() {
            self.with_session(id, shared, |session, cx| session.lost(channel, cx));
        }
    }
}
