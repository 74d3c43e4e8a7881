//! Lookups of the sessions of a channel and of the channels of a session.

use std::sync::Arc;

use crate::subscription::NONE;
use crate::{ConnectionId, Engine, Hub};

impl<E: Engine> Hub<E> {
    /// Iterates over the sessions of this worker that are subscribed to a channel, in unspecified order.
    pub fn sessions_of(&self, channel: &str) -> impl Iterator<Item = ConnectionId> + use<'_, E> {
        let channel = self.find(channel).map(|index| &self.channels[index]);
        let slots = channel.map_or(&[][..], |channel| channel.subscribers.as_slice());
        let slots = slots.iter().filter(|slot| **slot != NONE);
        slots.map(|slot| self.subscriptions.session(*slot))
    }

    /// Iterates over the channels to which a session of this worker is subscribed or is subscribing, latest
    /// subscription first.
    pub fn channels_of(&self, session: ConnectionId) -> impl Iterator<Item = &Arc<str>> {
        let channels = self.subscriptions.channels_of(session);
        channels.map(|index| &self.channels[index].name)
    }
}
