//! A client's view of a wildcard channel: all publications of its namespace, in the order of each channel.

use std::collections::{BTreeMap, BTreeSet};

use crate::channels::{self, CHANNELS};
use crate::failure::{PromiseResult, promise};
use crate::ledger::{Ledger, Source};

/// A publication by its channel and number.
type Delivered = (usize, u64);

#[derive(Default)]
pub(crate) struct WildcardView {
    /// By channel: the number of the first publication that was published after the subscription.
    from: BTreeMap<usize, u64>,
    order: Vec<Delivered>,
    all: BTreeSet<Delivered>,
    latest_by_source: BTreeMap<(usize, Source), u64>,
}

impl WildcardView {
    /// Handles the arrival of the subscribe reply.
    pub(crate) fn begin(&mut self, ledger: &Ledger) {
        self.from = channels::wildcard_channels()
            .map(|channel| (channel, ledger.next_number(channel)))
            .collect();
    }

    pub(crate) fn note_received(
        &mut self,
        (channel, number): Delivered,
        named: Option<&str>,
        incarnation: u32,
        ledger: &mut Ledger,
    ) -> PromiseResult {
        let name = CHANNELS[channel].name;
        promise!(
            named == Some(name) && channels::wildcard_channels().any(|one| one == channel),
            "publications of a namespace name their channel",
            "{number} of {name}, said to be of {named:?}"
        );
        let source = ledger.note_delivery(channel, number)?;
        promise!(
            self.all.insert((channel, number)),
            "nothing is delivered twice",
            "{number} of {name}"
        );
        let before = self.latest_by_source.insert((channel, source), number);
        promise!(
            before.is_none_or(|before| before < number),
            "publications of one publisher keep their order",
            "{number} behind {before:?} in {name}"
        );
        if let Some(before) = self.order.last() {
            ledger.note_wildcard_order(incarnation, *before, (channel, number))?;
        }
        self.order.push((channel, number));
        Ok(())
    }

    /// Checks, when no message is in flight, that the client has received all publications it must.
    pub(crate) fn check(&self, client: usize, ledger: &Ledger) -> PromiseResult {
        for (channel, from) in &self.from {
            let mut taken = ledger.all_taken(*channel, *from);
            let missing = taken.find(|number| !self.all.contains(&(*channel, *number)));
            promise!(
                missing.is_none(),
                "subscribers receive everything",
                "client {client}, which subscribes to all channels, did not receive {missing:?} of {}",
                CHANNELS[*channel].name
            );
            self.check_places(*channel, ledger)?;
        }
        Ok(())
    }

    /// Checks that the received publications of a channel have consecutive offsets, as for subscribers of the channel
    /// itself.
    fn check_places(&self, channel: usize, ledger: &Ledger) -> PromiseResult {
        let mut before = None;
        for (_, number) in self.order.iter().filter(|(one, _)| *one == channel) {
            let Some((epoch, offset)) = ledger.place(channel, *number) else {
                before = None;
                continue;
            };
            promise!(
                before.is_none_or(|(of, last)| of != epoch || last + 1 == offset),
                "a namespace keeps the order of its channels",
                "{number} of {} at {offset} behind {before:?}",
                CHANNELS[channel].name
            );
            before = Some((epoch, offset));
        }
        Ok(())
    }
}
