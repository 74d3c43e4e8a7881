//! Wildcard channels: a subscriber of `news:*` receives all publications of the namespace `news`.
//!
//! All channels of such a namespace share the home of its wildcard channel, so the home delivers to wildcard
//! subscribers in the same step and in the same order. Nothing else differs. A wildcard channel has no history of its
//! own: a publication has its position in the channel that it was published to.
//!
//! Because homes depend on them, wildcards are the same for all hubs and never change during their lifetime.

use std::sync::Arc;

use crate::payload::OrderedPublication;
use crate::{Audience, Engine, FeedEvent, Hub, Outlet, PublicationInfo};

impl<E: Engine> Hub<E> {
    pub(crate) fn wildcard_of(&self, channel: &str) -> Option<&str> {
        self.namespaces.wildcards().channel_for(channel)
    }

    /// Home: returns the entry of the wildcard channel, unless this is restricted to certain users.
    pub(crate) fn wildcard_entry(&self, channel: &str) -> Option<u32> {
        let wildcard = self.wildcard_of(channel)?;
        if wildcard == channel || !Audience::of(channel, &self.namespaces).is_everyone() {
            return None;
        }
        self.find(wildcard)
    }

    /// Home: delivers an ordered publication of entry `index` to the wildcard subscribers. Returns their number.
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
            // The payload belongs to another channel: a wildcard subscriber has no single preceding publication.
            previous: None,
        };
        self.send_to_workers(wildcard, passed_on, outlet)
    }
}
