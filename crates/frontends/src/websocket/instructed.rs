//! Commands of back ends for a session: closing and expiry are handled here, the others by the session.

use std::sync::Arc;

use veche_hub::{ConnectionId, Deed, Instruction};
use veche_types::codes::CloseCode;

use super::Socket;
use crate::context::session::Session;
use crate::context::shared::Shared;

impl<S: Session> Socket<S> {
    /// Executes a back end's command if it applies to this session.
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

    /// Reports unrecoverable loss of a channel's publications to the session.
    pub(crate) fn lost(&mut self, id: ConnectionId, channel: &str, shared: &mut Shared) {
        if !self.is_closing() {
            self.with_session(id, shared, |session, cx| session.lost(channel, cx));
        }
    }
}
