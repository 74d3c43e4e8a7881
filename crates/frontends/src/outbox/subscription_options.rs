//! Options of clients' subscriptions that differ from the default.

use std::collections::HashMap;
use std::sync::Arc;

use veche_hub::{ConnectionId, Delivery, FeedEvent, PublicationInfo};

use super::Outboxes;

/// A filter that selects publications by their tags, in the filter language of a client protocol.
pub(crate) trait PublicationFilter: std::fmt::Debug + Send + Sync {
    fn selects(&self, info: Option<&PublicationInfo>) -> bool;
}

/// The options of one subscription.
#[derive(Clone, Debug, Default)]
pub(crate) struct SubscriptionOptions {
    /// Whether the client receives join and leave events.
    pub(crate) joins: bool,
    pub(crate) deltas: DeltaState,
    /// The filter that publications to the client have to match, if any.
    pub(crate) filter: Option<Arc<dyn PublicationFilter>>,
}

/// Whether a client receives deltas in a channel, and whether the next publication can be a delta.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum DeltaState {
    #[default]
    Off,
    /// The client receives deltas, but its next publication has to be whole.
    Begun,
    /// The client's last publication is the latest of the channel, so the next publication can be a
    /// delta.
    Going,
}

/// The form in which a publication is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PushForm {
    Plain,
    /// The whole publication, for a client that supports deltas.
    Whole,
    Patch,
}

impl SubscriptionOptions {
    fn is_default(&self) -> bool {
        !self.joins && self.deltas == DeltaState::Off && self.filter.is_none()
    }

    /// Records that the client misses a publication, so that the next one has to be whole.
    pub(super) fn missed(&mut self) {
        if self.deltas == DeltaState::Going {
            self.deltas = DeltaState::Begun;
        }
    }

    /// Returns the form in which a publication or a join or leave event is sent; `None` if it is not sent.
    pub(super) fn form(&mut self, delivery: &Delivery<'_>) -> Option<PushForm> {
        if delivery.event != FeedEvent::Published {
            return self.joins.then_some(PushForm::Plain);
        }
        if let Some(filter) = &self.filter
            && !filter.selects(delivery.info)
        {
            return None;
        }
        if self.deltas == DeltaState::Off {
            return Some(PushForm::Plain);
        }
        // A publication without a position is not stored, so the next publication's delta would be
        // based on an earlier one, which the client no longer has. The next publication therefore
        // has to be whole.
        let next = match delivery.position {
            Some(_) => DeltaState::Going,
            None => DeltaState::Begun,
        };
        let had = std::mem::replace(&mut self.deltas, next);
        let has_previous = had == DeltaState::Going && next == DeltaState::Going;
        Some(match has_previous && delivery.previous.is_some() {
            true => PushForm::Patch,
            false => PushForm::Whole,
        })
    }
}

/// The subscription options that differ from the default, by session index. Usually empty.
#[derive(Default)]
pub(super) struct SubscriptionOptionsMap(HashMap<u32, Vec<(Box<str>, SubscriptionOptions)>>);

impl SubscriptionOptionsMap {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Sets the options of a subscription.
    fn set(&mut self, index: u32, channel: &str, options: SubscriptionOptions) {
        self.forget(index, channel);
        if !options.is_default() {
            let list = self.0.entry(index).or_default();
            list.push((channel.into(), options));
        }
    }

    /// Restores the default options of a subscription.
    fn forget(&mut self, index: u32, channel: &str) {
        let Some(list) = self.0.get_mut(&index) else {
            return;
        };
        list.retain(|(one, _)| **one != *channel);
        if list.is_empty() {
            self.0.remove(&index);
        }
    }

    /// Removes the options of all subscriptions of a client.
    pub(super) fn forget_all(&mut self, index: u32) {
        if !self.0.is_empty() {
            self.0.remove(&index);
        }
    }

    pub(super) fn find(&mut self, index: u32, channel: &str) -> Option<&mut SubscriptionOptions> {
        if self.0.is_empty() {
            return None;
        }
        let mut list = self.0.get_mut(&index)?.iter_mut();
        let found = list.find(|(one, _)| **one == *channel);
        found.map(|(_, options)| options)
    }
}

impl Outboxes {
    /// Sets how the client receives the publications of a channel. Has to be called before the first publication.
    pub(crate) fn set_subscription_options(
        &mut self,
        id: ConnectionId,
        channel: &str,
        options: SubscriptionOptions,
    ) {
        self.push_state
            .subscriptions
            .set(id.index, channel, options);
    }

    /// Removes the options of an ended subscription.
    pub(crate) fn clear_subscription_options(&mut self, id: ConnectionId, channel: &str) {
        self.push_state.subscriptions.forget(id.index, channel);
    }
}

#[cfg(test)]
mod tests {
    use veche_hub::{Encodings, Epoch, PayloadKind, PayloadRef, Position};

    use super::*;

    /// Returns the form of a publication. `offset`: 0 if the publication has no position. `has_previous`: whether the
    /// previous publication is known.
    fn form(options: &mut SubscriptionOptions, offset: u64, has_previous: bool) -> PushForm {
        let payload = PayloadRef {
            kind: PayloadKind::Json,
            bytes: b"1",
        };
        let mut delivery = Delivery {
            channel: "c",
            payload,
            position: (offset > 0).then_some(Position {
                epoch: Epoch::UNKNOWN,
                offset,
            }),
            at_ms: 0,
            event: FeedEvent::Published,
            info: None,
            previous: has_previous.then_some(payload),
            encodings: &mut Encodings::default(),
            receivers: 1,
            drop_when_slow: false,
        };
        let form = options.form(&delivery).expect("it is delivered");
        // Join and leave events are sent if the client requests them, and do not change the state of the deltas.
        delivery.event = FeedEvent::Joined;
        assert_eq!(
            options.form(&delivery),
            options.joins.then_some(PushForm::Plain)
        );
        form
    }

    #[test]
    fn a_delta_needs_the_one_before() {
        let mut options = SubscriptionOptions {
            joins: true,
            ..SubscriptionOptions::default()
        };
        assert_eq!(form(&mut options, 1, true), PushForm::Plain);
        let mut options = SubscriptionOptions {
            deltas: DeltaState::Begun,
            ..SubscriptionOptions::default()
        };
        for (offset, has_previous, expected) in [
            (1, true, PushForm::Whole),
            (2, true, PushForm::Patch),
            (3, false, PushForm::Whole),
            (4, true, PushForm::Patch),
            (0, true, PushForm::Whole),
            (0, true, PushForm::Whole),
            (5, true, PushForm::Whole),
            (6, true, PushForm::Patch),
        ] {
            assert_eq!(
                form(&mut options, offset, has_previous),
                expected,
                "{offset}"
            );
        }
        options.missed();
        assert_eq!(form(&mut options, 8, true), PushForm::Whole);
        assert_eq!(form(&mut options, 9, true), PushForm::Patch);
    }

    #[test]
    fn options_belong_to_one_channel_and_can_be_forgotten() {
        let mut all = SubscriptionOptionsMap::default();
        let options = SubscriptionOptions {
            joins: true,
            ..SubscriptionOptions::default()
        };
        all.set(1, "a", options.clone());
        all.set(1, "b", options.clone());
        assert!(all.find(1, "a").is_some() && all.find(1, "c").is_none());
        assert!(all.find(2, "a").is_none());
        all.set(1, "b", SubscriptionOptions::default());
        all.forget(1, "a");
        assert!(all.0.is_empty(), "default options are not stored");
        all.set(1, "a", options);
        all.forget_all(1);
        assert!(all.0.is_empty());
    }
}
