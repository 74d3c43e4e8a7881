//! The implementation of [`Engine`], which the hub calls.

use std::sync::Arc;

use veche_nodes::engine::channel::{self as wire, Direction};

use super::entries::{ChannelEntry, FeedState, FirstRead};
use super::{RemoteEngine, Task, data};
use crate::engine::{
    Catalog, Engine, EngineGauges, EngineReply, EngineReport, LocalMembers, MaintenanceScope,
    MemberChange, NewPublication, OrderResult, QueryContext, RequestContext, StoredChannel,
};
use crate::history_segment::{HistoryRead, ReadStart};
use crate::{
    ClientInfo, HistoryError, HistoryOptions, HistoryPage, HistoryQuery, Namespaces, Payload,
    Position, PresenceError, PresenceStats, Publication, SubscribeOptions, SubscribeOutcome,
};

/// Maximum number of waiting publications; [`WAITING_BYTES_MAX`] limits their bytes. When a limit is reached,
/// publishers have to wait.
const WAITING_MAX: usize = 1 << 16;
const WAITING_BYTES_MAX: usize = 64 << 20;

impl Engine for RemoteEngine {
    fn open(&mut self, channel: u32, name: &Arc<str>, _now_ms: u64) -> u32 {
        let place = self.entries.find_or_insert(name);
        if let Some(entry) = self.entries.get_mut(place) {
            entry.channel = Some(channel);
            if entry.feed == FeedState::Live && !entry.has_position() {
                self.check(place, false);
            }
        }
        place
    }

    fn close(&mut self, slot: u32, _name: &Arc<str>) {
        if let Some(entry) = self.entries.get_mut(slot) {
            entry.channel = None;
        }
        self.entries.release(slot);
    }

    fn publish(&mut self, offer: &mut NewPublication<'_, '_>) -> OrderResult {
        let id = data::first_id(&mut self.rng);
        let info = offer.info.map(|info| &**info);
        let payload = offer.payload.borrow();
        let data = data::encode(id, payload, offer.at_ms, offer.event, info);
        let keep = match (offer.slot, offer.history) {
            (Some(_), Some(history)) => Some(self.keep(history)),
            _ => None,
        };
        if let Some(slot) = offer.slot {
            self.begin_request(slot);
        }
        self.waiting_bytes += data.len();
        let publish = wire::Publish {
            ticket: 0,
            channel: Arc::clone(offer.name),
            topic: self.topic(offer.name).map(Arc::from),
            data,
            keep,
            key: offer.idempotency_key().map(Into::into),
            version: offer.version().cloned(),
            repeats_since: None,
        };
        self.order(Task::Publish {
            request_context: offer.context(),
            slot: offer.slot,
            publish: Box::new(publish),
            sent_at: None,
        });
        OrderResult::Deferred
    }

    fn is_deferring(&self) -> bool {
        true
    }

    fn reaches_others(&self) -> bool {
        true
    }

    fn is_full(&self) -> bool {
        self.waiting.len() >= WAITING_MAX || self.waiting_bytes >= WAITING_BYTES_MAX
    }

    fn pending_count(&self, slot: u32) -> u32 {
        self.entries.get(slot).map_or(0, |entry| entry.waiting)
    }

    fn fence(&mut self, slot: u32, request_context: RequestContext) {
        if let Some(entry) = self.entries.get_mut(slot) {
            entry.waiting += 1;
        }
        self.order(Task::Fence(request_context));
        self.pass_fences();
    }

    fn follow(
        &mut self,
        name: &Arc<str>,
        slot: Option<u32>,
        first_read: ReadStart,
    ) -> EngineReply<()> {
        let place = self.entries.find_or_insert(name);
        debug_assert!(slot.is_none_or(|slot| slot == place));
        let (ticks, topic) = (self.ticks, self.topic(name).map(Arc::<str>::from));
        let Some(entry) = self.entries.get_mut(place) else {
            return EngineReply::Deferred;
        };
        entry.is_followed = true;
        entry.feed = FeedState::Begun(ticks);
        entry.held = None;
        entry.first_read = match first_read {
            ReadStart::TopOnly => None,
            start => Some(Box::new(FirstRead {
                start,
                segment: None,
            })),
        };
        self.begun.push_back((ticks, Arc::clone(name)));
        match topic {
            None => self.orders.push(wire::Order::Follow(Arc::clone(name))),
            Some(topic) => {
                let known = self.topics.entry(Arc::clone(&topic)).or_default();
                known.followers += 1;
                if known.is_live {
                    return match self.place(place) {
                        true => EngineReply::Ready(()),
                        false => EngineReply::Deferred,
                    };
                }
                if known.followers == 1 {
                    self.orders.push(wire::Order::Follow(topic));
                }
            }
        }
        EngineReply::Deferred
    }

    fn unfollow(&mut self, name: &Arc<str>, _slot: Option<u32>) {
        self.stop_following(name);
        let is_other = |report: &EngineReport| !matches!(report, EngineReport::Following(one, _) if one == name);
        self.reports.retain(is_other);
    }

    fn join(
        &mut self,
        kept: StoredChannel<'_>,
        subscribe_options: &SubscribeOptions,
    ) -> EngineReply<SubscribeOutcome> {
        let entry = self.entries.get(kept.slot);
        let is_placed =
            |entry: &&ChannelEntry| entry.feed == FeedState::Live && entry.has_position();
        match entry.filter(is_placed) {
            Some(entry) if subscribe_options.since.is_none() => {
                EngineReply::Ready(SubscribeOutcome {
                    position: entry.position(),
                    recovered: None,
                })
            }
            _ => EngineReply::Deferred,
        }
    }

    fn is_empty(&self, slot: u32) -> bool {
        let entry = self.entries.get(slot);
        entry.is_some_and(|entry| entry.has_position() && entry.known.0 == 0)
    }

    fn read(
        &mut self,
        kept: StoredChannel<'_>,
        query: &HistoryQuery,
        answer_max: usize,
        request_context: RequestContext,
    ) -> EngineReply<Result<HistoryPage, HistoryError>> {
        if query.limit != usize::MAX && query.limit > answer_max {
            return EngineReply::Ready(Err(HistoryError::TooMany(answer_max)));
        }
        self.begin_request(kept.slot);
        let read = wire::Read {
            ticket: 0,
            channel: Arc::clone(kept.name),
            keep: self.keep(kept.history),
            since: query.since.map(|since| since.offset),
            // One publication more than the maximum is requested, so that an excess is noticed.
            limit: query.limit.min(answer_max.saturating_add(1)),
            direction: match query.is_reverse {
                true => Direction::Reverse,
                false => Direction::Forward,
            },
        };
        self.order(Task::History {
            request_context,
            query: *query,
            answer_max,
            read: Box::new(read),
            expired_ms: kept.now_ms.saturating_sub(kept.history.ttl_ms),
        });
        EngineReply::Deferred
    }

    fn read_since(&mut self, slot: u32, read: HistoryRead) {
        let Some(entry) = self.entries.get_mut(slot) else {
            return;
        };
        let channel = Arc::clone(&entry.name);
        if !read.closes_gap
            && let Some(segment) = entry.take_first_read(read.start)
        {
            return self
                .reports
                .push_back(EngineReport::Segment(channel, read, Some(segment)));
        }
        let Some(history) = self.namespaces.of(&channel).history else {
            return self
                .reports
                .push_back(EngineReport::Segment(channel, read, None));
        };
        self.verify(slot);
        let order = self.segment_read(&channel, &history, read.start);
        self.order(Task::Chain {
            read,
            order,
            expired_ms: self.now_ms.saturating_sub(history.ttl_ms),
        });
    }

    fn resume(&mut self, slot: u32, position: Position) {
        if let Some(entry) = self.entries.get_mut(slot)
            && entry.epoch == position.epoch
        {
            entry.last = position.offset;
        }
    }

    fn remove(
        &mut self,
        kept: StoredChannel<'_>,
        request_context: RequestContext,
    ) -> EngineReply<Result<(), HistoryError>> {
        self.begin_request(kept.slot);
        let channel = Arc::clone(kept.name);
        self.order(Task::Remove {
            request_context,
            channel,
        });
        EngineReply::Deferred
    }

    fn before_delivery(
        &mut self,
        slot: u32,
        publication: &Publication,
        _history: &HistoryOptions,
        wants_previous: bool,
        _now_ms: u64,
    ) -> Option<Payload> {
        let entry = self.entries.get_mut(slot)?;
        let position = publication.position?;
        if entry.epoch == position.epoch {
            entry.last = position.offset;
        }
        if !wants_previous {
            return None;
        }
        let payload = Box::new(publication.payload.clone());
        entry.previous.replace(payload).map(|previous| *previous)
    }

    fn ready_reports(&self) -> usize {
        self.reports.len()
    }

    fn poll(&mut self) -> Option<EngineReport> {
        self.reports.pop_front()
    }

    /// Drops the results of first reads that no subscriber has taken.
    fn reports_passed(&mut self) {
        for place in self.first_reads.drain(..) {
            if let Some(entry) = self.entries.get_mut(place) {
                entry.first_read = None;
            }
        }
    }

    fn report_handled(&mut self, slot: u32) {
        if let Some(entry) = self.entries.get_mut(slot) {
            entry.waiting = entry.waiting.saturating_sub(1);
        }
    }

    fn position(&self, slot: u32) -> Position {
        self.entries
            .get(slot)
            .map_or(Position::UNKNOWN, ChannelEntry::position)
    }

    fn member_changed(&mut self, change: MemberChange<'_>) -> EngineReply<bool> {
        self.change_member(&change)
    }

    fn occupancy_changed(&mut self, channel: &Arc<str>, is_occupied: bool) -> EngineReply<bool> {
        self.note_occupancy(channel, is_occupied);
        EngineReply::Deferred
    }

    fn presence(
        &mut self,
        here: LocalMembers<'_>,
        caller: QueryContext,
    ) -> EngineReply<Result<Box<[Arc<ClientInfo>]>, PresenceError>> {
        self.ask_members(here.channel, caller, false);
        EngineReply::Deferred
    }

    fn presence_stats(
        &mut self,
        here: LocalMembers<'_>,
        caller: QueryContext,
    ) -> EngineReply<Result<PresenceStats, PresenceError>> {
        self.ask_members(here.channel, caller, true);
        EngineReply::Deferred
    }

    fn set_limits(&mut self, namespaces: &Namespaces, _bytes_max: usize, _workers: u16) {
        self.namespaces = namespaces.clone();
    }

    fn maintain(
        &mut self,
        catalog: &Catalog<'_>,
        now_ms: u64,
        round: MaintenanceScope,
        gone: &mut Vec<u32>,
    ) {
        if round == MaintenanceScope::Incremental {
            return;
        }
        self.now_ms = now_ms;
        self.ticks = self.ticks.wrapping_add(1);
        self.lose_patience();
        self.restore(catalog);
        self.check_spare(catalog, gone);
        if self.connection.is_some() {
            self.check_unsure();
            self.check_missed();
        }
    }

    fn has_maintenance(&self) -> bool {
        self.entries.len() > 0 || self.waiting.len() > 0 || !self.unrecorded.is_empty()
    }

    fn gauges(&self) -> EngineGauges {
        EngineGauges {
            waiting: self.waiting.len(),
            ready: self.reports.len(),
            waiting_bytes: self.waiting_bytes,
            channels: self.entries.len(),
            bytes: 0,
        }
    }
}
