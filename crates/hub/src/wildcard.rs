//! Channels that are heard together: who is subscribed to `news:*` hears all of the namespace `news`.
//!
//! All channels of such a namespace have one home, that of its wildcard channel, so what it orders for one of them it
//! hands to those who hear all of them in the same step, and in the same order. Nothing else is different for either.
//! A wildcard channel itself remembers nothing: what it hands on has its place in the channel that it was published to.
//!
//! Since homes depend on them, wildcards are the same for all hubs, and as long as these live.

use std::sync::Arc;

use crate::namespace::namespace_of;
use crate::payload::OrderedPublication;
use crate::{Audience, Engine, FeedEvent, Hub, Outlet, PublicationInfo};

/// The namespaces whose channels are heard together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wildcards(Arc<[Wildcard]>);

#[derive(Debug, PartialEq, Eq)]
struct Wildcard {
    namespace: Box<str>,
    channel: Box<str>,
}

impl Wildcards {
    /// Those of these namespaces. Personal channels have none.
    pub fn new<'n>(namespaces: impl IntoIterator<Item = &'n str>) -> Self {
        let all = namespaces.into_iter().map(|namespace| Wildcard {
            namespace: namespace.into(),
            channel: match namespace {
                "" => "*".into(),
                name => format!("{name}:*").into(),
            },
        });
        Self(all.collect())
    }

    /// Whether a namespace has one.
    pub fn has(&self, namespace: &str) -> bool {
        self.0.iter().any(|one| *one.namespace == *namespace)
    }

    /// The channel by which all of this one's namespace are heard, which may be this one itself.
    pub fn channel_for(&self, channel: &str) -> Option<&str> {
        // What may fit a pattern belongs to no namespace of that kind, whether there is one or not.
        if self.0.is_empty() || channel.starts_with('/') {
            return None;
        }
        let namespace = namespace_of(channel);
        let found = self.0.iter().find(|one| *one.namespace == *namespace);
        found.map(|one| &*one.channel)
    }
}

impl<E: Engine> Hub<E> {
    pub(crate) fn wildcard_of(&self, channel: &str) -> Option<&str> {
        self.namespaces.wildcards().channel_for(channel)
    }

    /// Home: the entry of those who hear this channel among others, which is for everybody then.
    pub(crate) fn wildcard_entry(&self, channel: &str) -> Option<u32> {
        let wildcard = self.wildcard_of(channel)?;
        if wildcard == channel || !Audience::of(channel, &self.namespaces).is_everyone() {
            return None;
        }
        self.find(wildcard)
    }

    /// Home: gives what was ordered in `index` to those who hear it among others. Returns how many they are.
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
        let said = ordered.info.as_deref();
        let info = PublicationInfo {
            client: said.and_then(|info| info.client.clone()),
            tags: said.map(|info| info.tags.clone()).unwrap_or_default(),
            channel: Some(Arc::clone(name)),
        };
        let passed_on = OrderedPublication {
            payload: ordered.payload.share(),
            position: None,
            at_ms: ordered.at_ms,
            event: FeedEvent::Published,
            info: Some(Arc::new(info)),
            // It is another channel's: whoever hears several has no one publication before.
            previous: None,
        };
        self.send_to_workers(wildcard, passed_on, outlet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_has_one_channel_for_all_of_its() {
        let wildcards = Wildcards::new(["news", ""]);
        for (channel, expected) in [
            ("news:1", Some("news:*")),
            ("news:a:b", Some("news:*")),
            ("news:*", Some("news:*")),
            ("lobby", Some("*")),
            ("*", Some("*")),
            ("chat:1", None),
            ("#ann", None),
            ("/users/ann", None),
            ("/news:1", None),
        ] {
            assert_eq!(wildcards.channel_for(channel), expected, "{channel}");
        }
        assert!(wildcards.has("") && !wildcards.has("chat"));
        assert_eq!(Wildcards::default().channel_for("news:1"), None);
    }
}
