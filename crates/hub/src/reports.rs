//! Handles the engine's reports at the home of a channel.

use std::collections::VecDeque;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use crate::engine::{EngineReport, FeedItem, QueryContext, RequestContext};
use crate::message::Origin;
use crate::payload::OrderedPublication;
use crate::publish::{Blocked, wants_previous};
use crate::{
    Engine, FeedEvent, Hub, HubReply, Namespaces, Outlet, Payload, Position, Publication,
    PublishOptions, PublishOutcome,
};

/// The engine's reports that were polled and wait until subscribers have room, in order.
pub(crate) type PendingReports = VecDeque<EngineReport>;

impl<E: Engine> Hub<E> {
    /// Handles the engine's reports, except those for channels whose subscribers have no room for publications. The
    /// owner of an engine calls this when events have arrived. If it returns `true`, sessions must process their
    /// replies before the next call.
    pub fn take_reports(&mut self, outlet: &mut impl Outlet) -> bool {
        self.retry_stalled(outlet)
    }

    /// Returns the engine, so that its owner can exchange orders and events with it.
    pub fn engine(&mut self) -> &mut E {
        &mut self.engine
    }

    /// Returns the number of the engine's unhandled reports, including those that wait until subscribers have room,
    /// plus the number of feed queues.
    pub(crate) fn reports(&self) -> usize {
        self.pending_reports.len() + self.engine.ready_reports() + self.feed_queues.len()
    }

    /// Makes one pass over all reports, oldest first. Returns `false` if another pass is needed; sessions must process
    /// their replies to subscriptions before that pass.
    pub(crate) fn retry_reports(&mut self, outlet: &mut impl Outlet) -> bool {
        while let Some(report) = self.engine.poll() {
            self.pending_reports.push_back(report);
        }
        let mut kept = 0;
        for _ in 0..self.pending_reports.len() {
            let Some(report) = self.pending_reports.pop_front() else {
                break;
            };
            // During a pass the room for events of a channel only decreases. Once a report of the channel has to wait, its
            // later reports have to wait as well, so the order is preserved.
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
        self.engine.reports_passed();
        // Handling a report may have requested a result that the engine has already, so that another pass is needed.
        self.engine.ready_reports() == 0
    }

    /// At the channel's home: returns the number of requests of this channel that wait in the engine.
    pub(crate) fn pending_of(&self, index: u32) -> u32 {
        if !self.engine.is_deferring() {
            return 0;
        }
        self.pending_in_slot(index) + self.unslotted.get(&index).copied().unwrap_or_default()
    }

    fn pending_in_slot(&self, index: u32) -> u32 {
        let slot = self.channels[index].home.stream();
        slot.map_or(0, |slot| self.engine.pending_count(slot))
    }

    /// At the channel's home: counts a channel's request that waits in the engine.
    pub(crate) fn wait_in_engine(&mut self, index: u32, has_slot: bool) {
        self.channels[index].waiting += 1;
        if !has_slot {
            *self.unslotted.entry(index).or_default() += 1;
        }
    }

    /// At the channel's home: returns [`Blocked::Engine`] if the engine can't order a publication now. `is_passing` is
    /// set if the publication is not stored.
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
        let has_history = has_history(&self.namespaces, &self.channels[index].name);
        if !has_history {
            // The channel no longer has history. Its stream must end before this publication, and a stream can't end
            // while its requests wait.
            return (pending > 0 || reaches_others).then_some(Blocked::Engine);
        }
        let waits = pending > 0 || !is_passing || reaches_others;
        (is_full && waits).then_some(Blocked::Engine)
    }

    /// At the channel's home: returns whether publications of this channel may have to wait in the engine.
    #[inline(never)]
    pub(crate) fn may_wait(&self, index: u32) -> bool {
        has_history(&self.namespaces, &self.channels[index].name)
            || self.engine.reaches_others()
            || self.pending_of(index) > 0
    }

    /// At the channel's home: handles a publication whose idempotency key was used before. Returns the reply, or `None`
    /// if the reply must wait for the pending requests of the channel.
    pub(crate) fn repeat(
        &mut self,
        index: u32,
        first: PublishOutcome,
        terms: Option<&Arc<PublishOptions>>,
        origin: Origin,
    ) -> Option<PublishOutcome> {
        if self.pending_of(index) == 0 {
            return Some(first);
        }
        let slot = self.open_stream(index);
        let request_context = RequestContext {
            channel: index,
            origin,
            options: terms.cloned(),
            repeated: Some(first),
            has_slot: true,
        };
        self.engine.fence(slot, request_context);
        self.channels[index].waiting += 1;
        None
    }

    /// Records the result of a publication under its idempotency key, if it has one.
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
        let (request_context, answer) = match report {
            EngineReport::Item(item, Some(request_context))
                if !self.is_next(&request_context, &item) =>
            {
                // An earlier item is missing, so this item reaches subscribers through the feed
                // queue.
                let published =
                    self.complete_own_publication(&request_context, item.publication.position);
                self.receive_item(item, outlet);
                (request_context, HubReply::Published(published))
            }
            EngineReport::Item(item, Some(request_context)) => {
                let published = self.feed_own_publication(&request_context, *item, outlet);
                (request_context, HubReply::Published(published))
            }
            EngineReport::Skipped(request_context, position) => {
                let position = match position {
                    None if request_context.has_slot => {
                        let slot = self.open_stream(request_context.channel);
                        Some(self.engine.position(slot))
                    }
                    position => position,
                };
                let published = PublishOutcome {
                    receivers: Some(0),
                    nodes: None,
                    position,
                    is_skipped: true,
                };
                self.record_key(
                    request_context.channel,
                    request_context.options.as_deref(),
                    published,
                );
                (request_context, HubReply::Published(published))
            }
            EngineReport::Fence(request_context) => {
                let name = &self.channels[request_context.channel].name;
                let key = { request_context.options.as_deref() }
                    .and_then(|terms| terms.idempotency_key.as_deref());
                let found = self
                    .idempotency
                    .find(name, key.unwrap_or_default(), self.now.mono_ms);
                let published = found.or(request_context.repeated).unwrap_or_default();
                (request_context, HubReply::Published(published))
            }
            EngineReport::Published(request_context, position, nodes) => {
                let mut published = self.complete_own_publication(&request_context, position);
                published.nodes = nodes;
                (request_context, HubReply::Published(published))
            }
            EngineReport::Failed(request_context) => {
                self.forget_key(&request_context);
                (request_context, HubReply::Failed)
            }
            EngineReport::Removed(request_context, removed) => {
                if removed.is_ok() {
                    let slot = self.open_stream(request_context.channel);
                    self.engine.before_removal_reply(slot);
                }
                (request_context, HubReply::HistoryRemoved(removed))
            }
            EngineReport::History(request_context, page) => {
                (request_context, HubReply::History(page.map(Box::new)))
            }
            EngineReport::Item(item, None) => return self.receive_item(item, outlet),
            EngineReport::Following(channel, is_following) => {
                return self.handle_following(&channel, is_following, outlet);
            }
            EngineReport::Segment(channel, read, chain) => {
                return self.receive_segment(&channel, read, chain, outlet);
            }
            EngineReport::Member(notice, notifies_subscribers) => {
                if notifies_subscribers && notice.is_announced {
                    self.announce_member(&notice.channel, notice.event, &notice.client);
                }
                return;
            }
            EngineReport::LeaseExpired(channel, client, is_elsewhere) => {
                let is_by_user = self.namespaces.of(&channel).leave_delay_ms > 0;
                if is_elsewhere && is_by_user && !client.user.is_empty() {
                    return;
                }
                // The engines of all workers report the ended lease, but only the channel's home announces the leave.
                if self.home_of_name(&channel) == self.me {
                    self.announce_member(&channel, FeedEvent::Left, &client);
                }
                return;
            }
            EngineReport::Occupancy(report) => return self.occupancy_decided(&report),
            EngineReport::Presence(QueryContext(origin), found) => {
                return self.reply(origin, HubReply::Presence(found), outlet);
            }
            EngineReport::PresenceStats(QueryContext(origin), found) => {
                return self.reply(origin, HubReply::PresenceStats(found), outlet);
            }
            EngineReport::Lost(channel) => {
                if let Some(index) = self.find(&channel) {
                    // The queued items follow a position that is no longer valid.
                    self.feed_queues.remove(&index);
                    self.skip_gap(index, None, outlet);
                    // Reads the history for subscribers that have waited for this gap to be closed. The entry of the
                    // channel may have been removed above, for example that of a wildcard channel without history.
                    if self.find(&channel) == Some(index) {
                        self.start_join_read(index);
                    }
                }
                return;
            }
        };
        self.complete_request(&request_context);
        self.reply(request_context.origin, answer, outlet);
    }

    /// Removes the key of a failed publication, so that the publisher can retry.
    fn forget_key(&mut self, request_context: &RequestContext) {
        let terms = request_context.options.as_deref();
        if let Some(key) = terms.and_then(|terms| terms.idempotency_key.as_deref()) {
            let name = &self.channels[request_context.channel].name;
            self.idempotency.remove(name, key);
        }
    }

    /// Decrements the number of pending requests of a channel, after a report was handled.
    fn complete_request(&mut self, request_context: &RequestContext) {
        let index = request_context.channel;
        if request_context.has_slot {
            let slot = self.open_stream(index);
            self.engine.report_handled(slot);
        } else if let Entry::Occupied(mut count) = self.unslotted.entry(index) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        self.channels[index].waiting -= 1;
        self.channels.release(index);
        self.evict_over_budget();
    }

    /// Returns whether an item can be delivered at once, because it directly follows the item delivered last.
    fn is_next(&self, request_context: &RequestContext, item: &FeedItem) -> bool {
        let slot = self.channels[request_context.channel].home.stream();
        let (Some(position), Some(slot)) = (item.publication.position, slot) else {
            return true;
        };
        let last = self.engine.position(slot);
        let links = last.epoch == position.epoch && last.offset == item.predecessor;
        links && !self.feed_queues.contains_key(&request_context.channel)
    }

    /// Records and returns the result of a publication that this home has ordered. The publication itself is delivered
    /// by the feed.
    fn complete_own_publication(
        &mut self,
        request_context: &RequestContext,
        position: Option<Position>,
    ) -> PublishOutcome {
        let published = PublishOutcome {
            receivers: None,
            nodes: None,
            position,
            is_skipped: false,
        };
        self.record_key(
            request_context.channel,
            request_context.options.as_deref(),
            published,
        );
        published
    }

    /// Delivers a publication that this home has submitted, and returns its result.
    fn feed_own_publication(
        &mut self,
        request_context: &RequestContext,
        item: FeedItem,
        outlet: &mut impl Outlet,
    ) -> PublishOutcome {
        let index = request_context.channel;
        let position = item.publication.position;
        let terms = request_context.options.as_deref();
        let previous = self.before_delivery(index, &item.publication, terms);
        let ordered = OrderedPublication {
            previous,
            ..item.publication.into()
        };
        let published = PublishOutcome {
            receivers: Some(self.feed(index, ordered, outlet)),
            nodes: None,
            position,
            is_skipped: false,
        };
        self.record_key(index, terms, published);
        published
    }

    /// Tells the engine that an item is about to be delivered. Returns the payload of the preceding publication if it
    /// is needed for a delta.
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

/// The options for a publication whose channel no longer has history when it is delivered.
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
