//! Describes a worker's connections for back ends.

use std::sync::Arc;

use veche_hub::{ConnectionId, ConnectionInfo, ConnectionList, HubReply};

use super::Connection;
use crate::context::session_info::ListConnections;
use crate::context::worker_context::Context;

/// Returns the connections of this worker that match the request. `find` looks up a connection by id.
pub fn list_connections<'c>(
    list_request: &ListConnections,
    shared: &Context,
    find: impl Fn(ConnectionId) -> Option<&'c Connection>,
) -> HubReply {
    let mut all = ConnectionList::default();
    for id in shared.hub.sessions_of(&list_request.channel) {
        let Some(connection) = find(id) else { continue };
        let is_meant = |name: &str| connection.info().name == name;
        if list_request.name.as_deref().is_none_or(is_meant)
            && !all.push(connection.describe(id, shared))
        {
            break;
        }
    }
    HubReply::Connections(all)
}

impl Connection {
    /// Returns the connection's description for back ends.
    fn describe(&self, id: ConnectionId, shared: &Context) -> ConnectionInfo {
        let channels: Box<[Arc<str>]> = shared.hub.channels_of(id).cloned().collect();
        let about = self.info();
        let own = channels
            .iter()
            .find_map(|channel| channel.strip_prefix('#'));
        let client = match about.client {
            "" => shared.connection_id(id),
            client => client.into(),
        };
        ConnectionInfo {
            client,
            user: own.unwrap_or_default().into(),
            handler: about.handler.into(),
            transport: about.transport.into(),
            protocol: about.protocol.into(),
            route: about.route.into(),
            address: self.peer,
            name: about.name.into(),
            version: about.version.into(),
            channels,
        }
    }
}
