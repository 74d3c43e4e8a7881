//! Wildcard channels: a subscriber of `news:*` receives all publications of the namespace `news`.
//!
//! All channels of such a namespace share the home of its wildcard channel, so the home delivers to wildcard
//! subscribers in the same step and in the same order. Nothing else differs. A wildcard channel has no history of its
//! own: a publication has its position in the channel that it was published to.
//!
//! Because homes depend on them, wildcards are the same for all hubs and never change during their lifetime.

use std::sync::Arc;

use crate::namespace::namespace_of;
use crate::payload::Ordered;
use crate::{Audience, Engine, Event, Hub, Info, Outlet};

/// The namespaces with a wildcard channel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wildcards(Arc<[Wildcard]>);

#[derive(Debug, PartialEq, Eq)]
struct Wildcard {
    namespace: Box<str>,
    channel: Box<str>,
}

impl Wildcards {
    /// Returns the wildcards of these namespaces. Personal channels have none.
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

    /// Returns whether a namespace has a wildcard channel.
    pub fn has(&self, namespace: &str) -> bool {
        self.0.iter().any(|one| *one.namespace == *namespace)
    }

    /// Returns the wildcard channel of a channel's namespace, which may be the channel itself.
    pub fn of(&self, channel: &str) -> Option<&str> {
        // A name that may match a pattern belongs to no such namespace, whether a pattern exists or not.
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
        self.namespaces.wildcards().of(channel)
    }

    /// Home: returns the entry of the wildcard channel, unless this is restricted to certain users.
    pub(crate) fn overheard(&self, channel: &str) -> Option<u32> {
        let wildcard = self.wildcard_of(channel)?;
        if wildcard == channel || !Audience::of(channel, &self.namespaces).is_everyone() {
            return None;
        }
        self.find(wildcard)
    }

    /// Home: delivers an ordered publication of entry `index` to the wildcard subscribers. Returns their number.
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
            // It belongs to another channel: a wildcard subscriber has no single preceding publication.
            previous: None,
        };
        self.hand_out(wildcard, passed_on, outlet)
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
            assert_eq!(wildcards.of(channel), expected, "{channel}");
        }
        assert!(wildcards.has("") && !wildcards.has("chat"));
        assert_eq!(Wildcards::default().of("news:1"), None);
    }
}
