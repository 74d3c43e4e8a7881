//! How a session subscribes, and as what others see it.

use std::sync::Arc;

use crate::{Payload, Since};

/// How a session subscribes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubscribeOptions {
    /// Up to where it knows the channel; one place, or places of several channels of which one may be this one's. What
    /// it has missed comes with the answer.
    pub since: Option<Arc<[Since]>>,
    /// As whom others see it there.
    pub client: Option<Arc<ClientInfo>>,
    /// It chooses among what it has missed: also where those who come back get the latest publication only, it gets all
    /// that are kept.
    pub recover_all: bool,
}

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
    #[must_use]
    pub fn bytes(&self) -> usize {
        let parts = [&self.conn_info, &self.chan_info];
        let parts = parts.into_iter().flatten();
        let parts: usize = parts.map(|part| part.bytes.len()).sum();
        size_of::<Self>() + self.user.len() + self.client.len() + parts
    }
}
