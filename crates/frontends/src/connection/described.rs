//! Describes the connections of a worker to back ends.

use std::sync::Arc;

use veche_hub::{Answer, Connected, ConnectionId, Connections};

use super::Connection;
use crate::context::census::Census;
use crate::context::shared::Shared;

/// Returns the matching connections of this worker. `find` looks up connections by id.
pub fn list_connections<'c>(
    census: &Census,
    shared: &Shared,
    find: impl Fn(ConnectionId) -> Option<&'c Connection>,
) -> Answer {
    let mut all = Connections::default();
    for id in shared.hub.sessions_of(&census.channel) {
        let Some(connection) = find(id) else { continue };
        let is_meant = |name: &str| connection.about().name == name;
        if census.name.as_deref().is_none_or(is_meant)
            && !all.push(connection.described(id, shared))
        {
            break;
        }
    }
    Answer::Connections(all)
}

impl Connection {
    /// Returns the description for back ends.
    fn described(&self, id: ConnectionId, shared: &Shared) -> Connected {
        let channels: Box<[Arc<str>]> = shared.hub.channels_of(id).cloned().collect();
        let about = self.about();
        let own = channels
            .iter()
            .find_map(|channel| channel.strip_prefix('#'));
        let client = match about.client {
            "" => shared.connection_id(id),
            client => client.into(),
        };
        Connected {
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
