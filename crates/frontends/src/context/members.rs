//! Presence of connections whose protocol has no client ids: connections on push routes, and
//! connections of applications.

use std::sync::Arc;

use veche_hub::{ChannelName, ClientInfo, ConnectionId};

use crate::context::worker_context::Context;

impl Context {
    /// Returns a session as the member of a channel; an anonymous client has an empty user. Returns `None` if the
    /// channel has no presence, which is always so for a personal channel.
    #[must_use]
    pub fn member(&self, id: ConnectionId, channel: ChannelName<'_>) -> Option<Arc<ClientInfo>> {
        let is_own = channel.user().is_some();
        if is_own || !self.config.namespaces.of(channel.as_str()).has_members() {
            return None;
        }
        Some(Arc::new(ClientInfo {
            user: self.hub.user_of(id).unwrap_or_default().into(),
            client: self.connection_id(id),
            conn_info: None,
            chan_info: None,
        }))
    }

    /// Returns an id for a connection whose protocol has none; it is unique across all nodes.
    pub(crate) fn connection_id(&self, id: ConnectionId) -> Box<str> {
        let worker = self.hub.worker().0;
        let (index, generation) = (id.index, id.generation);
        match self.requests.nodes {
            Some(_) => {
                let node = self.process.node();
                format!("{node}.{worker}.{index}.{generation}").into()
            }
            None => format!("{worker}.{index}.{generation}").into(),
        }
    }
}
