//! The engine of a single process: streams in memory, and optionally a log on disk.
//!
//! Without a log, the call that submits a publication orders and stores it. With a log, the publication waits until its
//! batch is durable; `log.rs` explains the reasons and the order.

use std::sync::Arc;

use crate::engine::{
    Catalog, Engine, EngineGauges, EngineReply, EngineReport, FeedItem, MaintenanceScope,
    NewPublication, OrderResult, RequestContext, StoredChannel,
};
use crate::epoch_generator::EpochGenerator;
use crate::pending::{PendingReport, PublicationLog};
use crate::records::RECORD_BYTES;
use crate::streams::Streams;
use crate::{
    HistoryError, HistoryOptions, HistoryPage, HistoryQuery, LogRecord, Namespaces, Payload,
    Position, Publication, RECOVERED_MAX, SubscribeOptions, SubscribeOutcome,
};

/// Maximum number of evictions per publication in addition to those that make room for its bytes.
/// These evictions make room for the bookkeeping of its stream and account, and gradually enforce a
/// budget that was lowered.
const EVICTIONS_PER_PUBLICATION: usize = 32;

/// Maximum number of evictions per call of [`Hub::maintain`](crate::Hub::maintain). This many evictions take a few
/// milliseconds.
const EVICTIONS_PER_MAINTENANCE: usize = 1 << 15;

/// A full scan of all streams takes about this many calls of [`Hub::maintain`](crate::Hub::maintain). The number of
/// streams per call is at least [`SCAN_MIN`] and at most [`SCAN_MAX`].
const SCAN_ROUNDS: usize = 30;
const SCAN_MIN: usize = 256;
const SCAN_MAX: usize = 8192;

/// Publications that streams have dropped but replies in flight still refer to may take up to the history limit divided
/// by this number. If they take more, history requests fail with [`HistoryError::Busy`].
const LENT_DIVISOR: usize = 4;

/// Streams without publications may take up to the history limit divided by this number, in
/// addition to that limit. Such streams are created by subscriptions and must not displace
/// publications.
const EMPTY_DIVISOR: usize = 4;

/// Maximum number of streams that are searched for an unused stream before publications are
/// evicted.
const UNUSED_SCAN_MAX: usize = 32;

/// The engine that orders and stores publications in the home worker's memory.
#[derive(Debug)]
pub struct MemoryEngine {
    pub(crate) streams: Streams,
    pub(crate) log: Option<Box<PublicationLog>>,
    bytes_max: usize,
    /// The memory, in bytes, that streams without publications used when the budgets were last checked.
    empty_stream_bytes: usize,
}

impl MemoryEngine {
    pub(crate) fn new(epoch_seed: u64) -> Self {
        Self {
            streams: Streams::new(EpochGenerator::new(epoch_seed)),
            log: None,
            bytes_max: usize::MAX,
            empty_stream_bytes: 0,
        }
    }

    /// Returns whether streams without publications use more than `bytes_max / EMPTY_DIVISOR`
    /// bytes.
    fn has_excess_empty_streams(&self) -> bool {
        self.streams.empty_bytes() > self.bytes_max / EMPTY_DIVISOR
    }

    /// Scans the next `count` streams and closes those that are unused or expired.
    fn close_unused_streams(
        &mut self,
        count: usize,
        catalog: &Catalog<'_>,
        now_ms: u64,
        gone: &mut Vec<u32>,
    ) {
        let is_too_much = self.has_excess_empty_streams();
        let begin = gone.len();
        let mut dropped = Vec::new();
        self.streams.scan(
            count,
            now_ms,
            is_too_much,
            |channel| catalog.history(channel),
            |channel| catalog.is_position_used(channel),
            |one| {
                gone.push(one.channel);
                dropped.push(one.is_known);
            },
        );
        for (channel, is_known) in gone[begin..].iter().zip(dropped) {
            self.record_dropped(catalog.name(*channel), is_known);
        }
    }

    fn record_dropped(&mut self, name: &Arc<str>, is_known: bool) {
        if is_known && let Some(changes) = &mut self.streams.changes {
            changes.dropped.push(Arc::clone(name));
        }
    }

    /// Evicts at most `most` publications, as long as a budget is exceeded.
    fn evict(&mut self, mut most: usize) {
        while most > 0 {
            match self.streams.evict(most) {
                0 => return,
                count => most -= count,
            }
        }
    }

    fn evict_over_budget(&mut self, catalog: &Catalog<'_>, now_ms: u64, gone: &mut Vec<u32>) {
        // Searches only if the streams without publications have grown. Otherwise, if all of them
        // are in use, each publication would cost a search.
        if self.has_excess_empty_streams() && self.streams.empty_bytes() > self.empty_stream_bytes {
            self.close_unused_streams(UNUSED_SCAN_MAX, catalog, now_ms, gone);
        }
        self.empty_stream_bytes = self.streams.empty_bytes();
        // Each publication takes at least `RECORD_BYTES`, so `grown / RECORD_BYTES` evictions free the bytes that were
        // added.
        let grown = self.streams.take_added_bytes();
        self.evict(EVICTIONS_PER_PUBLICATION + grown / RECORD_BYTES);
    }

    /// Orders a publication that has to wait for the log, and queues it behind the earlier requests of its channel.
    /// Returns `None` if the publication need not wait.
    #[inline(never)]
    fn publish_logged(&mut self, offer: &mut NewPublication<'_, '_>) -> Option<OrderResult> {
        let slot = offer.slot?;
        let is_behind = self.streams.pending(slot) > 0;
        if offer.history.is_none() {
            if !is_behind {
                return None;
            }
            let item = FeedItem {
                channel: Arc::clone(offer.name),
                publication: offer.to_publication(None),
                predecessor: 0,
            };
            self.enqueue_pending(slot, PendingReport::Item(Box::new(item)), offer.context());
            return Some(OrderResult::Deferred);
        }
        let stream = self.streams.get_mut(slot);
        if let Some(version) = offer.version()
            && !stream.advance_version(version)
        {
            let position = stream.position();
            if !is_behind {
                return Some(OrderResult::Skipped(position));
            }
            self.enqueue_pending(slot, PendingReport::Skipped, offer.context());
            return Some(OrderResult::Deferred);
        }
        let position = self.streams.add_pending(slot, true);
        let publication = offer.to_publication(position);
        if let Some(log) = &mut self.log {
            log.published.push(LogRecord::Published {
                channel: Arc::clone(offer.name),
                publication: publication.clone(),
                version: offer.version().cloned(),
            });
            let item = FeedItem {
                channel: Arc::clone(offer.name),
                publication,
                // The offsets of this engine are dense, so the predecessor's offset can be calculated.
                predecessor: position.map_or(0, |position| position.offset - 1),
            };
            log.push(PendingReport::Item(Box::new(item)), offer.context());
        }
        Some(OrderResult::Deferred)
    }

    /// Queues a request behind the pending requests of its channel.
    fn enqueue_pending(&mut self, slot: u32, task: PendingReport, request_context: RequestContext) {
        self.streams.add_pending(slot, false);
        if let Some(log) = &mut self.log {
            log.push(task, request_context);
        }
    }

    pub(crate) fn has_changes(&self) -> bool {
        let changes = self.streams.changes.as_ref();
        changes.is_some_and(|changes| changes.len() > 0)
            || self.log.as_ref().is_some_and(|log| log.is_awaited)
    }
}

impl Engine for MemoryEngine {
    fn open(&mut self, channel: u32, name: &Arc<str>, now_ms: u64) -> u32 {
        self.streams.open(channel, name.len(), now_ms)
    }

    fn close(&mut self, slot: u32, name: &Arc<str>) {
        let gone = self.streams.close(slot);
        self.record_dropped(name, gone.is_known);
    }

    #[inline]
    fn publish(&mut self, offer: &mut NewPublication<'_, '_>) -> OrderResult {
        if self.log.is_some()
            && let Some(order) = self.publish_logged(offer)
        {
            return order;
        }
        let (Some(slot), Some(history)) = (offer.slot, offer.history) else {
            return OrderResult::Ordered {
                position: None,
                previous: None,
            };
        };
        let stream = self.streams.get_mut(slot);
        if let Some(version) = offer.version()
            && !stream.advance_version(version)
        {
            return OrderResult::Skipped(stream.position());
        }
        let previous = offer.wants_previous.then(|| stream.latest_payload());
        let kept = (offer.payload(), offer.info.cloned());
        let at_ms = offer.at_ms;
        let position = self.streams.append(slot, kept, at_ms, history, at_ms);
        OrderResult::Ordered {
            position: Some(position),
            previous: previous.flatten(),
        }
    }

    #[inline]
    fn is_deferring(&self) -> bool {
        self.log.is_some()
    }

    fn is_full(&self) -> bool {
        self.log.as_ref().is_some_and(|log| log.is_full())
    }

    #[inline]
    fn pending_count(&self, slot: u32) -> u32 {
        match &self.log {
            None => 0,
            Some(_) => self.streams.pending(slot),
        }
    }

    fn fence(&mut self, slot: u32, request_context: RequestContext) {
        self.enqueue_pending(slot, PendingReport::Fence, request_context);
    }

    fn join(
        &mut self,
        kept: StoredChannel<'_>,
        subscribe_options: &SubscribeOptions,
    ) -> EngineReply<SubscribeOutcome> {
        let stream = self.streams.trimmed(kept.slot, kept.history, kept.now_ms);
        let since = subscribe_options.since.as_ref();
        let latest_max = if subscribe_options.recover_all {
            RECOVERED_MAX
        } else {
            1
        };
        EngineReply::Ready(SubscribeOutcome {
            position: stream.position(),
            recovered: since.map(|since| stream.recover(since, kept.history.recovery, latest_max)),
        })
    }

    fn is_empty(&self, slot: u32) -> bool {
        !self.streams.get(slot).has_records()
    }

    fn read(
        &mut self,
        kept: StoredChannel<'_>,
        query: &HistoryQuery,
        answer_max: usize,
        _receipt: RequestContext,
    ) -> EngineReply<Result<HistoryPage, HistoryError>> {
        self.streams.trimmed(kept.slot, kept.history, kept.now_ms);
        EngineReply::Ready(
            match self.streams.lent().bytes() > self.bytes_max / LENT_DIVISOR {
                true => Err(HistoryError::Busy),
                false => self.streams.get(kept.slot).page(query, answer_max),
            },
        )
    }

    fn remove(
        &mut self,
        kept: StoredChannel<'_>,
        request_context: RequestContext,
    ) -> EngineReply<Result<(), HistoryError>> {
        self.streams.trimmed(kept.slot, kept.history, kept.now_ms);
        self.streams.clear(kept.slot);
        if self.log.is_none() {
            return EngineReply::Ready(Ok(()));
        }
        // Delivered publications are already removed. Publications that are ordered but not delivered are removed when
        // the batch for which the reply waits is durable.
        if let Some(below) = self.streams.next_offset_if_pending(kept.slot)
            && let Some(log) = &mut self.log
        {
            let channel = Arc::clone(kept.name);
            log.published.push(LogRecord::Trimmed { channel, below });
        }
        self.enqueue_pending(kept.slot, PendingReport::Removed, request_context);
        EngineReply::Deferred
    }

    fn before_removal_reply(&mut self, slot: u32) {
        self.streams.clear(slot);
    }

    fn before_delivery(
        &mut self,
        slot: u32,
        publication: &Publication,
        history: &HistoryOptions,
        wants_previous: bool,
        now_ms: u64,
    ) -> Option<Payload> {
        if let Some(log) = &mut self.log {
            log.before_delivery(publication);
        }
        let mut previous = None;
        if publication.position.is_some() {
            previous = wants_previous.then(|| self.streams.get(slot).latest_payload());
            let kept = (publication.payload.clone(), publication.info.clone());
            let at_ms = publication.at_ms;
            let found = self.streams.append(slot, kept, at_ms, history, now_ms);
            debug_assert_eq!(Some(found), publication.position);
            self.streams.pending_was_stored(slot);
        }
        previous.flatten()
    }

    fn ready_reports(&self) -> usize {
        self.log.as_ref().map_or(0, |log| log.ready())
    }

    fn poll(&mut self) -> Option<EngineReport> {
        let pending = self.log.as_mut()?.pop()?;
        let request_context = pending.request_context;
        Some(match pending.task {
            PendingReport::Item(item) => EngineReport::Item(item, Some(request_context)),
            PendingReport::Skipped => EngineReport::Skipped(request_context, None),
            PendingReport::Fence => EngineReport::Fence(request_context),
            PendingReport::Removed => EngineReport::Removed(request_context, Ok(())),
        })
    }

    fn report_handled(&mut self, slot: u32) {
        self.streams.remove_pending(slot);
        if let Some(log) = &mut self.log {
            log.report_handled();
        }
    }

    fn position(&self, slot: u32) -> Position {
        self.streams.get(slot).position()
    }

    fn set_limits(&mut self, namespaces: &Namespaces, bytes_max: usize, workers: u16) {
        let workers = usize::from(workers);
        let budgets = namespaces.budgets();
        let parts: usize = budgets.clone().map(|(_, bytes)| bytes).sum();
        let common = bytes_max.saturating_sub(parts) / workers;
        let budgets = budgets.map(|(namespace, bytes)| (namespace, bytes / workers));
        self.streams.set_budgets(common, budgets);
        self.bytes_max = bytes_max / workers;
    }

    #[inline]
    fn maintain(
        &mut self,
        catalog: &Catalog<'_>,
        now_ms: u64,
        round: MaintenanceScope,
        gone: &mut Vec<u32>,
    ) {
        if round == MaintenanceScope::Full {
            let count = self.streams.len() / SCAN_ROUNDS;
            self.close_unused_streams(count.clamp(SCAN_MIN, SCAN_MAX), catalog, now_ms, gone);
        }
        self.evict_over_budget(catalog, now_ms, gone);
        if round == MaintenanceScope::Full {
            self.evict(EVICTIONS_PER_MAINTENANCE);
        }
    }

    fn has_maintenance(&self) -> bool {
        self.streams.len() > 0 || self.has_changes()
    }

    fn gauges(&self) -> EngineGauges {
        let log = self.log.as_deref();
        EngineGauges {
            waiting: log.map_or(0, PublicationLog::len),
            ready: log.map_or(0, PublicationLog::ready),
            waiting_bytes: log.map_or(0, PublicationLog::bytes),
            channels: self.streams.len(),
            bytes: self.streams.bytes(),
        }
    }
}
