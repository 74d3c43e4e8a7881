//! Wildcard channels: a subscriber of `news:*` receives all publications of the namespace `news`.
//!
//! All channels of such a namespace have the same home as its wildcard channel, so the home delivers to wildcard
//! subscribers in the same step and in the same order as to the channel's own subscribers. A wildcard channel has no
//! history: the position of a publication is that in the channel to which it was published.
//!
//! The wildcards are the same for all hubs and never change during a hub's lifetime, because homes depend on them.

use std::sync::Arc;

use crate::payload::OrderedPublication;
use crate::{Audience, Engine, FeedEvent, Hub, Outlet, PublicationInfo};

impl<E: Engine> Hub<E> {
    /// At the channel's home: returns the entry of the wildcard channel that covers a channel; `None` if there is no
    /// such entry or if the channel is restricted to certain users.
    pub(crate) fn wildcard_entry(&self, channel: &str) -> Option<u32> {
        let wildcard = self.namespaces.wildcards().channel_for(channel)?;
        if wildcard == channel || !Audience::of(channel, &self.namespaces).is_everyone() {
            return None;
        }
        self.find(wildcard)
    }

    /// At the channel's home: delivers an ordered publication of the entry `index` to the wildcard subscribers. Returns
    /// their number.
    pub(crate) fn feed_wildcard_subscribers(
        &mut self,
        index: u32,
        ordered: &mut OrderedPublication<'_>,
        outlet: &mut impl Outlet,
    ) -> u32 {
        let name = &self.channels[index].name;
        let Some(wildcard) = self.wildcard_entry(name) else {
            return 0;
        };
        let member_info = ordered.info.as_deref();
        let info = PublicationInfo {
            client: member_info.and_then(|info| info.client.clone()),
            tags: member_info
                .map(|info| info.tags.clone())
                .unwrap_or_default(),
            channel: Some(Arc::clone(name)),
        };
        let passed_on = OrderedPublication {
            payload: ordered.payload.share(),
            position: None,
            at_ms: ordered.at_ms,
            event: FeedEvent::Published,
            info: Some(Arc::new(info)),
            // Wildcard subscribers get no delta, because the publication that they received last may belong to another
            // channel.
            previous: None,
        };
        self.send_to_workers(wildcard, passed_on, outlet)
    }
}
