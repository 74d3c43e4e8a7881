//! Options of a subscription, and the client data that other clients see.

use std::sync::Arc;

use crate::{Payload, Since};

/// Options of a subscription.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubscribeOptions {
    /// The positions up to which the session has received publications, in this channel and possibly in others. The
    /// first position with the epoch of this channel's stream is used, and the result contains the publications after
    /// it.
    pub since: Option<Arc<[Since]>>,
    /// The client data with which the session appears in presence.
    pub client: Option<Arc<ClientInfo>>,
    /// Whether the session itself filters recovered publications. If so, the result contains all
    /// stored publications, even if the recovery mode is "latest".
    pub recover_all: bool,
}

/// A connected client as other clients see it: in presence, in joins and leaves, and as the publisher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientInfo {
    /// The user name; empty if anonymous.
    pub user: Box<str>,
    /// The connection's id, unique on the node.
    pub client: Box<str>,
    /// Public data of the connection.
    pub conn_info: Option<Payload>,
    /// Public data of the subscription to this channel.
    pub chan_info: Option<Payload>,
}

impl ClientInfo {
    /// Returns the memory footprint in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let parts = [&self.conn_info, &self.chan_info];
        let parts = parts.into_iter().flatten();
        let parts: usize = parts.map(|part| part.bytes.len()).sum();
        size_of::<Self>() + self.user.len() + self.client.len() + parts
    }
}
