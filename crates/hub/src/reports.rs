//! What the engine reports: how it goes on at the home, and what waits there for room.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::engine::{EngineReport, FeedItem, QueryContext, RequestContext};
use crate::payload::OrderedPublication;
use crate::publish::{Blocked, Origin, wants_previous};
use crate::{
    Engine, FeedEvent, Hub, HubReply, Namespaces, Outlet, Payload, Position, Publication,
    PublishOptions, PublishOutcome,
};

/// Reports that were polled and wait for room, in order.
pub(crate) type PendingReports = VecDeque<EngineReport>;

impl<E: Engine> Hub<E> {
    /// Carries out what the engine has to report, as far as there is room. The owner of an engine calls it once something
    /// has arrived for that. True: sessions have to be handed their answers, and then it is to be called again.
    pub fn take_reports(&mut self, outlet: &mut impl Outlet) -> bool {
        self.retry_stalled(outlet)
    }

    /// Returns the engine.
    pub fn engine(&mut self) -> &mut E {
        &mut self.engine
    }

    /// Whether the engine has reports, or some wait for room.
    pub(crate) fn reports(&self) -> usize {
        self.pending_reports.len() + self.engine.ready_reports() + self.feed_queues.len()
    }

    /// One pass over all reports, oldest first. Returns whether the pass may go on: not if sessions have to hear first what
    /// they have joined.
    pub(crate) fn retry_reports(&mut self, outlet: &mut impl Outlet) -> bool {
        while let Some(report) = self.engine.poll() {
            self.pending_reports.push_back(report);
        }
        let mut kept = 0;
        for _ in 0..self.pending_reports.len() {
            let Some(report) = self.pending_reports.pop_front() else {
                break;
            };
            // As with those that are stalled: within a pass room only shrinks, so nothing overtakes in its channel.
            if let Some(channel) = report.channel()
                && let Some(blocked) = self.blocked_by_room(channel, outlet)
            {
                self.reserve(channel, blocked);
                self.pending_reports.push_back(report);
                kept += 1;
                continue;
            }
            self.handle_report(report, outlet);
            self.join_leave_queue.mark_unblocked();
            if std::mem::take(&mut self.has_new_subscribers) {
                self.pending_reports.rotate_right(kept);
                return false;
            }
        }
        self.advance_feed_queues(outlet);
        true
    }

    /// Home: how much of this channel waits in the engine.
    pub(crate) fn pending_of(&self, index: u32) -> u32 {
        if !self.engine.is_deferring() {
            return 0;
        }
        let slot = self.channels[index].home.stream();
        slot.map_or(0, |slot| self.engine.pending_count(slot))
    }

    /// Home: whether the engine keeps a publication from being ordered. `is_passing`: it is not kept.
    #[inline]
    pub(crate) fn blocked_by_engine(&self, index: u32, is_passing: bool) -> Option<Blocked> {
        if !self.engine.is_deferring() {
            return None;
        }
        self.blocked_by_deferring(index, is_passing)
    }

    #[inline(never)]
    fn blocked_by_deferring(&self, index: u32, is_passing: bool) -> Option<Blocked> {
        let pending = self.pending_of(index);
        let is_full = self.engine.is_full();
        if pending == 0 && !is_full {
            return None;
        }
        let has_history = has_history(&self.namespaces, &self.channels[index].name);
        if !has_history {
            // It does so no more: its stream ends with the first publication behind those that wait.
            return (pending > 0).then_some(Blocked::Engine);
        }
        let waits = pending > 0 || !is_passing;
        (is_full && waits).then_some(Blocked::Engine)
    }

    /// Home: whether publications of this channel may have to wait in the engine.
    #[inline(never)]
    pub(crate) fn may_wait(&self, index: u32) -> bool {
        has_history(&self.namespaces, &self.channels[index].name) || self.pending_of(index) > 0
    }

    /// Home: a publication repeats another. `None`: its answer comes behind what waits of its channel.
    pub(crate) fn repeat(
        &mut self,
        index: u32,
        first: PublishOutcome,
        terms: Option<&Arc<PublishOptions>>,
        origin: Origin,
    ) -> Option<PublishOutcome> {
        let slot = self.channels[index].home.stream();
        let Some(slot) = slot.filter(|_| self.pending_of(index) > 0) else {
            return Some(first);
        };
        let receipt = RequestContext {
            channel: index,
            origin,
            options: terms.cloned(),
            repeated: Some(first),
        };
        self.engine.fence(slot, receipt);
        self.channels[index].waiting += 1;
        None
    }

    /// Records the result of a publication for those that repeat it.
    pub(crate) fn record_key(
        &mut self,
        index: u32,
        terms: Option<&PublishOptions>,
        published: PublishOutcome,
    ) {
        if let Some(key) = terms.and_then(|terms| terms.idempotency_key.as_deref()) {
            let name = &self.channels[index].name;
            self.idempotency
                .insert(name, key, published, self.now.mono_ms);
        }
    }

    fn handle_report(&mut self, report: EngineReport, outlet: &mut impl Outlet) {
        let (receipt, answer) = match report {
            EngineReport::Item(item, Some(receipt)) if !self.is_next(&receipt, &item) => {
                // Its subscribers get it in line.
                let published = self.complete_own_publication(&receipt, item.publication.position);
                self.receive_item(item, outlet);
                (receipt, HubReply::Published(published))
            }
            EngineReport::Item(item, Some(receipt)) => {
                let published = self.feed_own_publication(&receipt, *item, outlet);
                (receipt, HubReply::Published(published))
            }
            EngineReport::Skipped(receipt, position) => {
                let slot = self.open_stream(receipt.channel);
                let published = PublishOutcome {
                    receivers: Some(0),
                    position: Some(position.unwrap_or_else(|| self.engine.position(slot))),
                    is_skipped: true,
                };
                self.record_key(receipt.channel, receipt.options.as_deref(), published);
                (receipt, HubReply::Published(published))
            }
            EngineReport::Fence(receipt) => {
                let name = &self.channels[receipt.channel].name;
                let key = { receipt.options.as_deref() }
                    .and_then(|terms| terms.idempotency_key.as_deref());
                let found = self
                    .idempotency
                    .find(name, key.unwrap_or_default(), self.now.mono_ms);
                let published = found.or(receipt.repeated).unwrap_or_default();
                (receipt, HubReply::Published(published))
            }
            EngineReport::Published(receipt, position) => {
                let published = self.complete_own_publication(&receipt, position);
                (receipt, HubReply::Published(published))
            }
            EngineReport::Failed(receipt) => {
                self.forget_key(&receipt);
                (receipt, HubReply::Failed)
            }
            EngineReport::Removed(receipt, removed) => {
                if removed.is_ok() {
                    let slot = self.open_stream(receipt.channel);
                    self.engine.before_removal_reply(slot);
                }
                (receipt, HubReply::HistoryRemoved(removed))
            }
            EngineReport::History(receipt, page) => {
                (receipt, HubReply::History(page.map(Box::new)))
            }
            EngineReport::Item(item, None) => return self.receive_item(item, outlet),
            EngineReport::Following(channel, is_following) => {
                return self.handle_following(&channel, is_following, outlet);
            }
            EngineReport::Segment(channel, read, chain) => {
                return self.receive_segment(&channel, read, chain, outlet);
            }
            EngineReport::Member(notice, is_told) => {
                if is_told && notice.is_announced {
                    self.announce_member(&notice.channel, notice.event, &notice.client);
                }
                return;
            }
            EngineReport::LeaseExpired(channel, client) => {
                return self.announce_member(&channel, FeedEvent::Left, &client);
            }
            EngineReport::Presence(QueryContext(origin), found) => {
                return self.reply(origin, HubReply::Presence(found), outlet);
            }
            EngineReport::PresenceStats(QueryContext(origin), found) => {
                return self.reply(origin, HubReply::PresenceStats(found), outlet);
            }
            EngineReport::Lost(channel) => {
                if let Some(index) = self.find(&channel) {
                    self.skip_gap(index, None, outlet);
                }
                return;
            }
        };
        self.complete_request(&receipt);
        self.reply(receipt.origin, answer, outlet);
    }

    /// A publication with a key may be handed over again.
    fn forget_key(&mut self, receipt: &RequestContext) {
        let terms = receipt.options.as_deref();
        if let Some(key) = terms.and_then(|terms| terms.idempotency_key.as_deref()) {
            let name = &self.channels[receipt.channel].name;
            self.idempotency.remove(name, key);
        }
    }

    /// A report has been carried out: its channel waits for one less.
    fn complete_request(&mut self, receipt: &RequestContext) {
        let index = receipt.channel;
        let slot = self.open_stream(index);
        self.engine.report_handled(slot);
        self.channels[index].waiting -= 1;
        self.channels.release(index);
        self.evict_over_budget();
    }

    /// Whether an item can be fed at once: nothing before it is missing.
    fn is_next(&self, receipt: &RequestContext, item: &FeedItem) -> bool {
        let slot = self.channels[receipt.channel].home.stream();
        let (Some(position), Some(slot)) = (item.publication.position, slot) else {
            return true;
        };
        let last = self.engine.position(slot);
        let links = last.epoch == position.epoch && last.offset == item.predecessor;
        links && !self.feed_queues.contains_key(&receipt.channel)
    }

    /// Records that a publication of this home is ordered, whose item comes by itself.
    fn complete_own_publication(
        &mut self,
        receipt: &RequestContext,
        position: Option<Position>,
    ) -> PublishOutcome {
        let published = PublishOutcome {
            receivers: None,
            position,
            is_skipped: false,
        };
        self.record_key(receipt.channel, receipt.options.as_deref(), published);
        published
    }

    /// Feeds a publication that this home has handed over.
    fn feed_own_publication(
        &mut self,
        receipt: &RequestContext,
        item: FeedItem,
        outlet: &mut impl Outlet,
    ) -> PublishOutcome {
        let index = receipt.channel;
        let position = item.publication.position;
        let terms = receipt.options.as_deref();
        let previous = self.before_delivery(index, &item.publication, terms);
        let ordered = OrderedPublication {
            previous,
            ..item.publication.into()
        };
        let published = PublishOutcome {
            receivers: Some(self.feed(index, ordered, outlet)),
            position,
            is_skipped: false,
        };
        self.record_key(index, terms, published);
        published
    }

    /// Tells the engine that an item is about to be handed to subscribers. Returns the payload before it where deltas are
    /// wanted.
    pub(crate) fn before_delivery(
        &mut self,
        index: u32,
        publication: &Publication,
        terms: Option<&PublishOptions>,
    ) -> Option<Payload> {
        let slot = self.open_stream(index);
        let now_ms = self.expiry_clock_ms();
        let namespace = self.namespaces.of(&self.channels[index].name);
        let history = namespace.history.unwrap_or(NO_HISTORY);
        let wants_previous = wants_previous(namespace.delta_mode, terms);
        if !self.joins.is_empty() {
            self.append_to_join_tail(index, slot, publication);
        }
        self.engine
            .before_delivery(slot, publication, &history, wants_previous, now_ms)
    }
}

impl EngineReport {
    /// The channel whose subscribers need room for it.
    fn channel(&self) -> Option<u32> {
        match self {
            Self::Item(_, receipt) => receipt.as_ref().map(|receipt| receipt.channel),
            Self::Skipped(receipt, _)
            | Self::Published(receipt, _)
            | Self::Failed(receipt)
            | Self::Fence(receipt)
            | Self::Removed(receipt, _)
            | Self::History(receipt, _) => Some(receipt.channel),
            Self::Following(..)
            | Self::Segment(..)
            | Self::Member(..)
            | Self::LeaseExpired(..)
            | Self::Presence(..)
            | Self::PresenceStats(..)
            | Self::Lost(_) => None,
        }
    }
}

/// Of a channel that does not remember any more.
const NO_HISTORY: crate::HistoryOptions = crate::HistoryOptions {
    size: 1,
    ttl_ms: 0,
    position_ttl_ms: 0,
    recovery: crate::RecoveryMode::Missed,
    budget: crate::Budget::COMMON,
};

pub(crate) fn has_history(namespaces: &Namespaces, channel: &str) -> bool {
    namespaces.of(channel).history.is_some()
}
