//! Channels that are heard together: who is subscribed to `news:*` hears all of the namespace `news`.
//!
//! All channels of such a namespace have one home, that of its wildcard channel, so what it orders for one of them it
//! hands to those who hear all of them in the same step, and in the same order. Nothing else is different for either.
//! A wildcard channel itself remembers nothing: what it hands on has its place in the channel that it was published to.
//!
//! Since homes depend on them, wildcards are the same for all hubs, and as long as these live.

use std::sync::Arc;

use crate::payload::Ordered;
use crate::{Audience, Engine, Event, Hub, Info, Outlet};

impl<E: Engine> Hub<E> {
    pub(crate) fn wildcard_of(&self, channel: &str) -> Option<&str> {
        self.namespaces.wildcards().of(channel)
    }

    /// Home: the entry of those who hear this channel among others, which is for everybody then.
    pub(crate) fn overheard(&self, channel: &str) -> Option<u32> {
        let wildcard = self.wildcard_of(channel)?;
        if wildcard == channel || !Audience::of(channel, &self.namespaces).is_everyone() {
            return None;
        }
        self.find(wildcard)
    }

    /// Home: gives what was ordered in `index` to those who hear it among others. Returns how many they are.
    pub(crate) fn feed_overheard(
        &mut self,
        index: u32,
        ordered: &mut Ordered<'_>,
        outlet: &mut impl Outlet,
    ) -> u32 {
        let name = &self.channels[index].name;
        let Some(wildcard) = self.overheard(name) else {
            return 0;
        };
        let said = ordered.info.as_deref();
        let info = Info {
            client: said.and_then(|info| info.client.clone()),
            tags: said.map(|info| info.tags.clone()).unwrap_or_default(),
            channel: Some(Arc::clone(name)),
        };
        let passed_on = Ordered {
            payload: ordered.payload.share(),
            position: None,
            at_ms: ordered.at_ms,
            event: Event::Published,
            info: Some(Arc::new(info)),
            // It is another channel's: whoever hears several has no one publication before.
            previous: None,
        };
        self.hand_out(wildcard, passed_on, outlet)
    }
}
