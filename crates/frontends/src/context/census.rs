//! Which connections there are: asked by a back end of one worker, and told by all of them.

use std::sync::Arc;

use veche_hub::{Answer, Connected, ConnectionId, Connections, Ticket, WorkerId};

use crate::connection::Connection;
use crate::context::members::connection_id;
use crate::context::shared::Shared;

/// Who hears a channel, which may be a user's own. Every worker says it of its connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Census {
    /// Which channel.
    pub channel: Arc<str>,
    /// Only clients that call themselves so.
    pub name: Option<Box<str>>,
    /// Whose the answer is.
    pub from: (WorkerId, ConnectionId, Ticket),
}

impl Census {
    /// Those of this worker. `find` knows its connections.
    pub fn take<'c>(
        &self,
        shared: &Shared,
        find: impl Fn(ConnectionId) -> Option<&'c Connection>,
    ) -> Answer {
        let mut all = Connections::default();
        for id in shared.hub.sessions_of(&self.channel) {
            let Some(connection) = find(id) else { continue };
            let is_meant = |name: &str| connection.about().name == name;
            if self.name.as_deref().is_none_or(is_meant)
                && !all.push(connection.described(id, shared))
            {
                break;
            }
        }
        Answer::Connections(all)
    }
}

impl Connection {
    /// What a back end is told of it.
    fn described(&self, id: ConnectionId, shared: &Shared) -> Connected {
        let channels: Box<[Arc<str>]> = shared.hub.channels_of(id).cloned().collect();
        let about = self.about();
        let own = channels
            .iter()
            .find_map(|channel| channel.strip_prefix('#'));
        let client = match about.client {
            "" => connection_id(shared.hub.worker(), id),
            client => client.into(),
        };
        Connected {
            client,
            user: own.unwrap_or_default().into(),
            handler: about.handler,
            transport: about.transport,
            protocol: about.protocol,
            route: about.route.into(),
            address: self.peer,
            name: about.name.into(),
            version: about.version.into(),
            channels,
        }
    }
}

/// What a connection knows of itself.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct About<'a> {
    pub(crate) client: &'a str,
    pub(crate) handler: &'static str,
    pub(crate) transport: &'static str,
    pub(crate) protocol: &'static str,
    pub(crate) route: &'a str,
    pub(crate) name: &'a str,
    pub(crate) version: &'a str,
}

impl About<'_> {
    pub(crate) fn of(handler: &'static str) -> Self {
        Self {
            handler,
            ..Self::default()
        }
    }
}
