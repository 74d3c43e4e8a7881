//! Reports the end of a session to watchers.

use veche_hub::ConnectionId;
use veche_types::codes::CloseCode;

use super::{Session, Socket};
use crate::context::note::Decision;
use crate::context::shared::Shared;

impl Socket {
    /// The session ends with that code, by a Close of ours or of the peer's. To be called while the hub still knows it.
    pub(super) fn parted(&self, id: ConnectionId, code: u16, reason: &str, shared: &Shared) {
        let (user, client) = match &self.session {
            Session::Centrifuge(session) => session.names(),
            _ => (shared.hub.user_of(id).unwrap_or_default(), ""),
        };
        shared.decided(&Decision {
            what: "disconnect",
            user,
            client,
            code: code.into(),
            reason,
            ..Decision::default()
        });
    }

    /// The same where the transport is gone; without effect after a Close.
    pub(super) fn vanished(&self, id: ConnectionId, shared: &Shared) {
        if !self.is_closing() && shared.ports.outboxes.takes_publications(id) {
            self.parted(
                id,
                CloseCode::Abnormal.code(),
                "the connection was cut",
                shared,
            );
        }
    }
}
