//! Which connections there are: asked by a back end of one worker, and told by all of them.

use std::sync::Arc;

use veche_hub::{ConnectionId, Ticket, WorkerId};

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
