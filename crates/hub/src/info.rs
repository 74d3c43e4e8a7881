//! Who stands behind a connection, as others see it, and what is said of a publication beside its data.

use std::sync::Arc;

use crate::Payload;

/// A connected client, as others see it: in presence, when it joins and leaves, and beside what it publishes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientInfo {
    /// The user; empty if anonymous.
    pub user: Box<str>,
    /// The connection: unique among those of the node.
    pub client: Box<str>,
    /// What is known of the connection.
    pub conn_info: Option<Payload>,
    /// What is known of its subscription to this channel.
    pub chan_info: Option<Payload>,
}

impl ClientInfo {
    /// What it takes, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let parts = [&self.conn_info, &self.chan_info];
        let parts = parts.into_iter().flatten();
        let parts: usize = parts.map(|part| part.bytes.len()).sum();
        size_of::<Self>() + self.user.len() + self.client.len() + parts
    }
}

/// What is said of a publication beside its data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Info {
    /// Who published it, where a client did.
    pub client: Option<Arc<ClientInfo>>,
    /// Names and values that were published with it.
    pub tags: Box<[(Box<str>, Box<str>)]>,
    /// The channel that it was published to, for those who hear it [among others](crate::Wildcards).
    pub channel: Option<Arc<str>>,
}

impl Info {
    /// What it takes, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let client = self.client.as_ref().map_or(0, |client| client.bytes());
        let tags = self.tags.iter();
        let tags: usize = tags
            .map(|(name, value)| 2 * size_of::<Box<str>>() + name.len() + value.len())
            .sum();
        size_of::<Self>() + client + tags
    }
}
