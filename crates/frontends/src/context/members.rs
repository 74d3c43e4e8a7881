//! As whom connections are seen in channels where their protocol has no word for it: those of push routes and of
//! applications.

use std::sync::Arc;

use veche_hub::{ChannelName, ClientInfo, ConnectionId, WorkerId};

use crate::context::worker_context::Context;

impl Context {
    /// As whom a session is seen in a channel, where that knows who is there. Who is anonymous has no name; in a user's own
    /// channel there is nobody to be seen.
    #[must_use]
    pub fn member(&self, id: ConnectionId, channel: ChannelName<'_>) -> Option<Arc<ClientInfo>> {
        let is_own = channel.user().is_some();
        if is_own || !self.config.namespaces.of(channel.as_str()).has_members() {
            return None;
        }
        Some(Arc::new(ClientInfo {
            user: self.hub.user_of(id).unwrap_or_default().into(),
            client: connection_id(self.hub.worker(), id),
            conn_info: None,
            chan_info: None,
        }))
    }
}

/// What a connection is called that has no id by its protocol: no other one of this server process has it.
pub(crate) fn connection_id(worker: WorkerId, id: ConnectionId) -> Box<str> {
    format!("{}.{}.{}", worker.0, id.index, id.generation).into()
}
