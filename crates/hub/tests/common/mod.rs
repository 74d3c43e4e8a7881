//! Short constructors of names and sessions.

use veche_hub::{ChannelName, ConnectionId};

pub(crate) fn name(channel: &str) -> ChannelName<'_> {
    ChannelName::new(channel).expect("a valid name")
}

/// The first session with this index.
pub(crate) fn session(index: u32) -> ConnectionId {
    ConnectionId {
        index,
        generation: 0,
    }
}
