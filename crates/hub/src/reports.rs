//! Handling of the engine's reports at the home, including those that wait for room.

use std::collections::VecDeque;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use crate::engine::{Asker, Item, Receipt, Report};
use crate::mail::Origin;
use crate::payload::Ordered;
use crate::publish::{Blocked, wants_previous};
use crate::{
    Answer, Engine, Event, Hub, Namespaces, Outlet, Payload, Position, Publication, PublishOptions,
    Published,
};

/// Polled reports that wait for room, in order.
pub(crate) type Arrived = VecDeque<Report>;

impl<E: Engine> Hub<E> {
    /// Handles the engine's reports as far as there is room. The owner of an engine calls it when something has
    /// arrived. If it returns `true`, sessions have to process their replies before it is called again.
    pub fn take_reports(&mut self, outlet: &mut impl Outlet) -> bool {
        self.retry_stalled(outlet)
    }

    /// Returns the engine.
    pub fn engine(&mut self) -> &mut E {
        &mut self.engine
    }

    /// Returns the number of reports that are ready or wait for room.
    pub(crate) fn reports(&self) -> usize {
        self.arrived.len() + self.engine.ready() + self.lines.len()
    }

    /// Makes one pass over all reports, oldest first. Returns whether it may continue: not if sessions must process
    /// their subscriptions first.
    pub(crate) fn retry_reports(&mut self, outlet: &mut impl Outlet) -> bool {
        while let Some(report) = self.engine.poll() {
            self.arrived.push_back(report);
        }
        let mut kept = 0;
        for _ in 0..self.arrived.len() {
            let Some(report) = self.arrived.pop_front() else {
                break;
            };
            // As with stalled publications, room only shrinks during a pass, so no report overtakes another one of its
            // channel.
            if let Some(channel) = report.channel()
                && let Some(blocked) = self.blocked_by_room(channel, outlet)
            {
                self.reserve(channel, blocked);
                self.arrived.push_back(report);
                kept += 1;
                continue;
            }
            self.act_on(report, outlet);
            self.announcements.look_again();
            if std::mem::take(&mut self.has_admitted) {
                self.arrived.rotate_right(kept);
                return false;
            }
        }
        self.advance_lines(outlet);
        true
    }

    /// Home: returns how many requests of this channel wait in the engine.
    pub(crate) fn pending_of(&self, index: u32) -> u32 {
        if !self.engine.is_deferring() {
            return 0;
        }
        self.pending_in_slot(index) + self.unslotted.get(&index).copied().unwrap_or_default()
    }

    fn pending_in_slot(&self, index: u32) -> u32 {
        let slot = self.channels[index].home.stream();
        slot.map_or(0, |slot| self.engine.waiting(slot))
    }

    /// Home: a receipt of a channel is with the engine.
    pub(crate) fn wait_in_engine(&mut self, index: u32, has_slot: bool) {
        self.channels[index].waiting += 1;
        if !has_slot {
            *self.unslotted.entry(index).or_default() += 1;
        }
    }

    /// Home: returns whether the engine prevents a publication from being ordered. `is_passing`: it is not stored.
    #[inline]
    pub(crate) fn blocked_by_engine(&self, index: u32, is_passing: bool) -> Option<Blocked> {
        if !self.engine.is_deferring() {
            return None;
        }
        self.blocked_by_deferring(index, is_passing)
    }

    #[inline(never)]
    fn blocked_by_deferring(&self, index: u32, is_passing: bool) -> Option<Blocked> {
        let pending = self.pending_in_slot(index);
        let is_full = self.engine.is_full();
        if pending == 0 && !is_full {
            return None;
        }
        let reaches_others = self.engine.reaches_others();
        let has_history = remembers(&self.namespaces, &self.channels[index].name);
        if !has_history {
            // It does so no more: its stream ends with the first publication behind those that wait.
            return (pending > 0 || reaches_others).then_some(Blocked::Engine);
        }
        let waits = pending > 0 || !is_passing || reaches_others;
        (is_full && waits).then_some(Blocked::Engine)
    }

    /// Home: returns whether publications of this channel may have to wait in the engine.
    #[inline(never)]
    pub(crate) fn may_wait(&self, index: u32) -> bool {
        remembers(&self.namespaces, &self.channels[index].name)
            || self.engine.reaches_others()
            || self.pending_of(index) > 0
    }

    /// Home: replies to a repeated publication. `None`: the reply comes after what waits for its channel.
    pub(crate) fn repeat(
        &mut self,
        index: u32,
        first: Published,
        terms: Option<&Arc<PublishOptions>>,
        origin: Origin,
    ) -> Option<Published> {
        if self.pending_of(index) == 0 {
            return Some(first);
        }
        let slot = self.stream_of(index);
        let receipt = Receipt {
            channel: index,
            origin,
            terms: terms.cloned(),
            first: Some(first),
            has_slot: true,
        };
        self.engine.fence(slot, receipt);
        self.channels[index].waiting += 1;
        None
    }

    /// Records the result of a publication for repetitions.
    pub(crate) fn keep_key(
        &mut self,
        index: u32,
        terms: Option<&PublishOptions>,
        published: Published,
    ) {
        if let Some(key) = terms.and_then(|terms| terms.idempotency_key.as_deref()) {
            let name = &self.channels[index].name;
            self.recent.keep(name, key, published, self.now.mono_ms);
        }
    }

    fn act_on(&mut self, report: Report, outlet: &mut impl Outlet) {
        let (receipt, answer) = match report {
            Report::Item(item, Some(receipt)) if !self.is_next(&receipt, &item) => {
                // Its subscribers get it through the feed queue.
                let published = self.own_published(&receipt, item.publication.position);
                self.take_item(item, outlet);
                (receipt, Answer::Published(published))
            }
            Report::Item(item, Some(receipt)) => {
                let published = self.feed_own(&receipt, *item, outlet);
                (receipt, Answer::Published(published))
            }
            Report::Skipped(receipt, position) => {
                let position = match position {
                    None if receipt.has_slot => {
                        let slot = self.stream_of(receipt.channel);
                        Some(self.engine.position(slot))
                    }
                    position => position,
                };
                let published = Published {
                    handed: Some(0),
                    nodes: None,
                    position,
                    is_skipped: true,
                };
                self.keep_key(receipt.channel, receipt.terms.as_deref(), published);
                (receipt, Answer::Published(published))
            }
            Report::Fence(receipt) => {
                let name = &self.channels[receipt.channel].name;
                let key =
                    { receipt.terms.as_deref() }.and_then(|terms| terms.idempotency_key.as_deref());
                let found = self
                    .recent
                    .find(name, key.unwrap_or_default(), self.now.mono_ms);
                let published = found.or(receipt.first).unwrap_or_default();
                (receipt, Answer::Published(published))
            }
            Report::Published(receipt, position, nodes) => {
                let mut published = self.own_published(&receipt, position);
                published.nodes = nodes;
                (receipt, Answer::Published(published))
            }
            Report::Failed(receipt) => {
                self.forget_key(&receipt);
                (receipt, Answer::Failed)
            }
            Report::Removed(receipt, removed) => {
                if removed.is_ok() {
                    let slot = self.stream_of(receipt.channel);
                    self.engine.removed(slot);
                }
                (receipt, Answer::HistoryRemoved(removed))
            }
            Report::History(receipt, page) => (receipt, Answer::History(page.map(Box::new))),
            Report::Item(item, None) => return self.take_item(item, outlet),
            Report::Following(channel, is_following) => {
                return self.take_following(&channel, is_following, outlet);
            }
            Report::Chain(channel, read, chain) => {
                return self.take_chain(&channel, read, chain, outlet);
            }
            Report::Member(notice, is_told) => {
                if is_told && notice.is_news {
                    self.member_news(&notice.channel, notice.event, &notice.client);
                }
                return;
            }
            Report::Departed(channel, client) => {
                // All homes of the node hear of it.
                if self.home(self.channels.hash(&channel), &channel) == self.me {
                    self.member_news(&channel, Event::Left, &client);
                }
                return;
            }
            Report::Presence(Asker(origin), found) => {
                return self.reply(origin, Answer::Presence(found), outlet);
            }
            Report::PresenceStats(Asker(origin), found) => {
                return self.reply(origin, Answer::PresenceStats(found), outlet);
            }
            Report::Lost(channel) => {
                if let Some(index) = self.find(&channel) {
                    // What is in line is of the position that is void.
                    self.lines.remove(&index);
                    self.lose(index, None, outlet);
                }
                return;
            }
        };
        self.settle_receipt(&receipt);
        self.reply(receipt.origin, answer, outlet);
    }

    /// Lets a failed publication with a key be retried.
    fn forget_key(&mut self, receipt: &Receipt) {
        let terms = receipt.terms.as_deref();
        if let Some(key) = terms.and_then(|terms| terms.idempotency_key.as_deref()) {
            let name = &self.channels[receipt.channel].name;
            self.recent.forget_key(name, key);
        }
    }

    /// A report was handled: its channel has one pending request less.
    fn settle_receipt(&mut self, receipt: &Receipt) {
        let index = receipt.channel;
        if receipt.has_slot {
            let slot = self.stream_of(index);
            self.engine.settle(slot);
        } else if let Entry::Occupied(mut count) = self.unslotted.entry(index) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        self.channels[index].waiting -= 1;
        self.channels.release(index);
        self.keep_to_budget();
    }

    /// Returns whether an item can be delivered at once because nothing before it is missing.
    fn is_next(&self, receipt: &Receipt, item: &Item) -> bool {
        let slot = self.channels[receipt.channel].home.stream();
        let (Some(position), Some(slot)) = (item.publication.position, slot) else {
            return true;
        };
        let last = self.engine.position(slot);
        let links = last.epoch == position.epoch && last.offset == item.before;
        links && !self.lines.contains_key(&receipt.channel)
    }

    /// Records that a publication of this home was ordered, whose item arrives separately.
    fn own_published(&mut self, receipt: &Receipt, position: Option<Position>) -> Published {
        let published = Published {
            handed: None,
            nodes: None,
            position,
            is_skipped: false,
        };
        self.keep_key(receipt.channel, receipt.terms.as_deref(), published);
        published
    }

    /// Delivers a publication that this home has submitted.
    fn feed_own(&mut self, receipt: &Receipt, item: Item, outlet: &mut impl Outlet) -> Published {
        let index = receipt.channel;
        let position = item.publication.position;
        let terms = receipt.terms.as_deref();
        let previous = self.fed(index, &item.publication, terms);
        let ordered = Ordered {
            previous,
            ..item.publication.into()
        };
        let published = Published {
            handed: Some(self.feed(index, ordered, outlet)),
            nodes: None,
            position,
            is_skipped: false,
        };
        self.keep_key(index, terms, published);
        published
    }

    /// Tells the engine that an item is about to be delivered. Returns the preceding payload if a delta is wanted.
    pub(crate) fn fed(
        &mut self,
        index: u32,
        publication: &Publication,
        terms: Option<&PublishOptions>,
    ) -> Option<Payload> {
        let slot = self.stream_of(index);
        let now_ms = self.age_ms();
        let namespace = self.namespaces.of(&self.channels[index].name);
        let history = namespace.history.unwrap_or(NO_HISTORY);
        let wants_previous = wants_previous(namespace.differences, terms);
        if !self.joins.is_empty() {
            self.note_for_joins(index, slot, publication);
        }
        self.engine
            .fed(slot, publication, &history, wants_previous, now_ms)
    }
}

/// Options of a channel that no longer has history.
const NO_HISTORY: crate::History = crate::History {
    size: 1,
    ttl_ms: 0,
    position_ttl_ms: 0,
    recovery: crate::Recovery::Missed,
    budget: crate::Budget::COMMON,
};

pub(crate) fn remembers(namespaces: &Namespaces, channel: &str) -> bool {
    namespaces.of(channel).history.is_some()
}
