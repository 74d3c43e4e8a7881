//! A client's view of one channel, from its subscribe reply to its end.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::Failure;
use crate::channels::{CHANNELS, Kind};
use crate::coverage::CoverageEvent;
use crate::data::{number_in, number_in_text};
use crate::failure::{PromiseResult, promise};
use crate::fossil;
use crate::ledger::{Ledger, RawPosition, Source};
use crate::wildcard_view::WildcardView;

/// The state of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SubscriptionState {
    /// The subscribe command was sent.
    Asked,
    Live,
    /// The unsubscribe command was sent.
    Leaving,
}

pub(crate) struct ExpectedSubscription {
    channel: usize,
    pub(crate) state: SubscriptionState,
    /// The position up to which the client has received everything, if the channel has history.
    pub(crate) place: RawPosition,
    /// Publications with this number or a later one were published after the client had subscribed.
    pub(crate) from_number: u64,
    pub(crate) numbers: BTreeSet<u64>,
    latest_by_source: BTreeMap<Source, u64>,
    /// By client id: whether the last event received about that client was a join.
    pub(crate) members: BTreeMap<String, bool>,
    /// The view of a wildcard channel.
    pub(crate) wildcard_view: WildcardView,
    /// Whether deltas were negotiated for the subscription.
    pub(crate) has_deltas: bool,
    /// The data of the last publication, to which the next delta applies; used only with deltas.
    latest: Option<String>,
}

impl ExpectedSubscription {
    pub(crate) fn new(channel: usize) -> Self {
        Self {
            channel,
            state: SubscriptionState::Asked,
            place: (0, 0),
            from_number: 0,
            numbers: BTreeSet::new(),
            latest_by_source: BTreeMap::new(),
            members: BTreeMap::new(),
            wildcard_view: WildcardView::default(),
            has_deltas: false,
            latest: None,
        }
    }

    /// Handles the arrival of the subscribe reply with the client's position `place`.
    pub(crate) fn begin(&mut self, place: RawPosition, ledger: &Ledger) {
        self.state = SubscriptionState::Live;
        self.place = place;
        self.from_number = ledger.next_number(self.channel);
        self.wildcard_view.begin(ledger);
    }

    /// Returns the channel and the number of a publication, which may be a delta.
    pub(crate) fn read(
        &mut self,
        publication: &Value,
        ledger: &mut Ledger,
    ) -> Result<(usize, u64), Failure> {
        if !self.has_deltas {
            return number_of(publication);
        }
        let data = publication["data"].as_str();
        promise!(data.is_some(), "deltas are text", "{publication}");
        let mut text = data.unwrap_or_default().to_owned();
        if publication["delta"].as_bool() == Some(true) {
            let latest = self.latest.take();
            promise!(
                latest.is_some(),
                "a client with a delta has its base",
                "{publication}"
            );
            let made = fossil::apply(latest.unwrap_or_default().as_bytes(), text.as_bytes())?;
            text = String::from_utf8_lossy(&made).into_owned();
            ledger.seen.note(CoverageEvent::Changed);
        }
        let found = number_in_text(&text);
        self.latest = Some(text);
        found
    }

    /// Handles a publication of a wildcard channel.
    pub(crate) fn wildcard_published(
        &mut self,
        channel: usize,
        number: u64,
        named: Option<&str>,
        incarnation: u32,
        ledger: &mut Ledger,
    ) -> PromiseResult {
        promise!(
            self.state != SubscriptionState::Asked,
            "a reply precedes its consequences",
            "{number} of {channel}"
        );
        let received = (channel, number);
        self.wildcard_view
            .note_received(received, named, incarnation, ledger)
    }

    /// Handles a live publication.
    pub(crate) fn published(
        &mut self,
        number: u64,
        offset: u64,
        incarnation: u32,
        ledger: &mut Ledger,
    ) -> PromiseResult {
        let name = CHANNELS[self.channel].name;
        promise!(
            self.state != SubscriptionState::Asked,
            "a reply precedes its consequences",
            "{number} in {name}"
        );
        let (epoch, before) = self.place;
        if CHANNELS[self.channel].kind.has_history() {
            promise!(
                offset == before + 1,
                "publications have no gap",
                "{name}: {offset} behind {before}, epoch {epoch:x}"
            );
            self.place = (epoch, offset);
            ledger.note_publication_position(self.channel, number, self.place, incarnation)?;
        } else {
            promise!(
                offset == 0,
                "unstored publications have no offset",
                "{name}: {offset}"
            );
        }
        self.take(number, ledger)
    }

    /// Handles a live or recovered publication.
    pub(crate) fn take(&mut self, number: u64, ledger: &Ledger) -> PromiseResult {
        let name = CHANNELS[self.channel].name;
        let source = ledger.note_delivery(self.channel, number)?;
        promise!(
            self.numbers.insert(number),
            "nothing is delivered twice",
            "{number} in {name}"
        );
        let before = self.latest_by_source.insert(source, number);
        promise!(
            before.is_none_or(|before| before < number),
            "publications of one publisher keep their order",
            "{number} behind {before:?} in {name}"
        );
        Ok(())
    }

    /// Handles a join or leave.
    pub(crate) fn moved(&mut self, client: &str, is_in: bool) -> PromiseResult {
        let name = CHANNELS[self.channel].name;
        promise!(
            self.state != SubscriptionState::Asked,
            "a reply precedes its consequences",
            "{client} in {name}"
        );
        let before = self.members.insert(client.to_owned(), is_in);
        // With a leave delay, connections come and go without being announced.
        promise!(
            CHANNELS[self.channel].kind != Kind::Chat || before != Some(is_in),
            "joins and leaves alternate",
            "{client} in {name}: {is_in} again"
        );
        Ok(())
    }
}

/// Returns the channel and the number in a publication's complete data.
pub(crate) fn number_of(publication: &Value) -> Result<(usize, u64), Failure> {
    promise!(
        publication["delta"].as_bool() != Some(true),
        "a client with a delta has its base",
        "{publication}"
    );
    match publication["data"].as_str() {
        Some(text) => number_in_text(text),
        None => number_in(&publication["data"]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setup::Setup;

    #[test]
    fn a_channel_is_received_without_gap_and_in_order() {
        for (received, broken) in [
            (&[(0, 4), (2, 5), (1, 6)][..], ""),
            (&[(0, 4), (1, 6)], "publications have no gap"),
            (&[(0, 4), (1, 4)], "publications have no gap"),
            (&[(0, 4), (0, 5)], "one publication has one place"),
            (
                &[(2, 4), (0, 5)],
                "publications of one publisher keep their order",
            ),
            (&[(9, 4)], "only published data is received"),
        ] {
            let mut ledger = Ledger::new(&Setup::new(1), 0);
            for source in [0, 1, 0] {
                ledger.publish(0, source);
            }
            let mut subscription = ExpectedSubscription::new(0);
            subscription.begin((7, 3), &ledger);
            let found = received.iter().find_map(|&(number, offset)| {
                subscription.published(number, offset, 0, &mut ledger).err()
            });
            let found = found.map_or_else(String::new, |failure| failure.name);
            assert_eq!(found, broken, "{received:?}");
        }
    }
}
