//! The engine of a single process: streams in memory, and optionally a log on disk.
//!
//! Without a log a publication is ordered and stored by the call that submits it. With a log it waits until its batch
//! is durable; `log.rs` explains why and in which order.

use std::sync::Arc;

use crate::engine::{
    Catalog, Engine, Gauges, Item, Kept, Offer, Order, Receipt, Report, Round, Step,
};
use crate::pending::{Log, Task};
use crate::position::Epochs;
use crate::records::RECORD_BYTES;
use crate::streams::Streams;
use crate::{
    Append, History, HistoryError, Joined, Namespaces, Page, Payload, Position, Publication, Query,
    RECOVERED_MAX, SubscribeOptions,
};

/// Evictions per publication beyond those that make room for its bytes: for the bookkeeping of its stream and account,
/// and to approach a budget that was lowered.
const EVICTIONS: usize = 32;

/// Maximum number of evictions in one call of [`Hub::maintain`](crate::Hub::maintain), which takes some milliseconds.
const LOOK_EVICTIONS: usize = 1 << 15;

/// A full scan of all streams takes about this many calls of [`Hub::maintain`](crate::Hub::maintain), within these
/// bounds per call.
const LOOKS: usize = 30;
const LOOK_MIN: usize = 256;
const LOOK_MAX: usize = 8192;

/// Divisor: this fraction of the history limit may be held by replies after streams have dropped it.
const LENT_PART: usize = 4;

/// Divisor: streams without publications may take this fraction of the history limit in addition to it. Subscriptions
/// create them, and must not displace publications.
const SILENT_PART: usize = 4;

/// Number of streams searched for an unused one before any publication is evicted.
const SEARCHED: usize = 32;

/// The in-memory engine.
#[derive(Debug)]
pub struct MemoryEngine {
    pub(crate) streams: Streams,
    pub(crate) log: Option<Box<Log>>,
    bytes_max: usize,
    /// Bytes of streams without publications when the budget was last checked.
    silent_bytes: usize,
}

impl MemoryEngine {
    pub(crate) fn new(epoch_seed: u64) -> Self {
        Self {
            streams: Streams::new(Epochs::new(epoch_seed)),
            log: None,
            bytes_max: usize::MAX,
            silent_bytes: 0,
        }
    }

    /// Returns whether streams without publications exceed their share.
    fn has_too_many_silent(&self) -> bool {
        self.streams.silent() > self.bytes_max / SILENT_PART
    }

    /// Scans the next streams and closes unused and expired ones.
    fn search(&mut self, count: usize, catalog: &Catalog<'_>, now_ms: u64, gone: &mut Vec<u32>) {
        let is_too_much = self.has_too_many_silent();
        let begin = gone.len();
        let mut dropped = Vec::new();
        self.streams.look(
            count,
            now_ms,
            is_too_much,
            |channel| catalog.history(channel),
            |channel| catalog.is_used(channel),
            |one| {
                gone.push(one.channel);
                dropped.push(one.is_known);
            },
        );
        for (channel, is_known) in gone[begin..].iter().zip(dropped) {
            self.note_dropped(catalog.name(*channel), is_known);
        }
    }

    fn note_dropped(&mut self, name: &Arc<str>, is_known: bool) {
        if is_known && let Some(changes) = &mut self.streams.changes {
            changes.dropped.push(Arc::clone(name));
        }
    }

    /// Evicts at most `most` publications while a budget is exceeded.
    fn evict(&mut self, mut most: usize) {
        while most > 0 {
            match self.streams.evict(most) {
                0 => return,
                count => most -= count,
            }
        }
    }

    fn keep_to_budget(&mut self, catalog: &Catalog<'_>, now_ms: u64, gone: &mut Vec<u32>) {
        // Searches only if they have grown: if all of them are in use, each publication would pay for a search.
        if self.has_too_many_silent() && self.streams.silent() > self.silent_bytes {
            self.search(SEARCHED, catalog, now_ms, gone);
        }
        self.silent_bytes = self.streams.silent();
        // Each publication takes at least `RECORD_BYTES`.
        let grown = self.streams.take_grown();
        self.evict(EVICTIONS + grown / RECORD_BYTES);
    }

    /// Orders a publication that may have to wait for the log; `None` if it need not.
    #[inline(never)]
    fn publish_logged(&mut self, offer: &mut Offer<'_, '_>) -> Option<Order> {
        let slot = offer.slot?;
        let is_behind = self.streams.pending(slot) > 0;
        if offer.history.is_none() {
            if !is_behind {
                return None;
            }
            let item = Item {
                channel: Arc::clone(offer.name),
                publication: offer.to_publication(None),
                before: 0,
            };
            self.wait(slot, Task::Item(Box::new(item)), offer.receipt());
            return Some(Order::Later);
        }
        let stream = self.streams.get_mut(slot);
        if let Some(version) = offer.version()
            && !stream.take_version(version)
        {
            let position = stream.position();
            if !is_behind {
                return Some(Order::Skipped(position));
            }
            self.wait(slot, Task::Skipped, offer.receipt());
            return Some(Order::Later);
        }
        let position = self.streams.wait(slot, true);
        let publication = offer.to_publication(position);
        if let Some(log) = &mut self.log {
            log.published.push(Append::Published {
                channel: Arc::clone(offer.name),
                publication: publication.clone(),
                version: offer.version().cloned(),
            });
            let item = Item {
                channel: Arc::clone(offer.name),
                publication,
                // This engine's offsets are dense.
                before: position.map_or(0, |position| position.offset - 1),
            };
            log.push(Task::Item(Box::new(item)), offer.receipt());
        }
        Some(Order::Later)
    }

    /// Queues a request behind what waits for its channel.
    fn wait(&mut self, slot: u32, task: Task, receipt: Receipt) {
        self.streams.wait(slot, false);
        if let Some(log) = &mut self.log {
            log.push(task, receipt);
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
        self.note_dropped(name, gone.is_known);
    }

    #[inline]
    fn publish(&mut self, offer: &mut Offer<'_, '_>) -> Order {
        if self.log.is_some()
            && let Some(order) = self.publish_logged(offer)
        {
            return order;
        }
        let (Some(slot), Some(history)) = (offer.slot, offer.history) else {
            return Order::Done {
                position: None,
                previous: None,
            };
        };
        let stream = self.streams.get_mut(slot);
        if let Some(version) = offer.version()
            && !stream.take_version(version)
        {
            return Order::Skipped(stream.position());
        }
        let previous = offer.wants_previous.then(|| stream.latest_payload());
        let kept = (offer.payload(), offer.info.cloned());
        let at_ms = offer.at_ms;
        let position = self.streams.append(slot, kept, at_ms, history, at_ms);
        Order::Done {
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
    fn waiting(&self, slot: u32) -> u32 {
        match &self.log {
            None => 0,
            Some(_) => self.streams.pending(slot),
        }
    }

    fn fence(&mut self, slot: u32, receipt: Receipt) {
        self.wait(slot, Task::Fence, receipt);
    }

    fn join(&mut self, kept: Kept<'_>, joining: &SubscribeOptions) -> Step<Joined> {
        let stream = self.streams.trimmed(kept.slot, kept.history, kept.now_ms);
        let since = joining.since.as_ref();
        let latest_max = if joining.picks { RECOVERED_MAX } else { 1 };
        Step::Done(Joined {
            position: stream.position(),
            recovered: since.map(|since| stream.recover(since, kept.history.recovery, latest_max)),
        })
    }

    fn is_empty(&self, slot: u32) -> bool {
        !self.streams.get(slot).has_records()
    }

    fn read(
        &mut self,
        kept: Kept<'_>,
        query: &Query,
        answer_max: usize,
        _receipt: Receipt,
    ) -> Step<Result<Page, HistoryError>> {
        self.streams.trimmed(kept.slot, kept.history, kept.now_ms);
        Step::Done(
            match self.streams.lent().bytes() > self.bytes_max / LENT_PART {
                true => Err(HistoryError::Busy),
                false => self.streams.get(kept.slot).page(query, answer_max),
            },
        )
    }

    fn remove(&mut self, kept: Kept<'_>, receipt: Receipt) -> Step<Result<(), HistoryError>> {
        self.streams.trimmed(kept.slot, kept.history, kept.now_ms);
        self.streams.clear(kept.slot);
        if self.log.is_none() {
            return Step::Done(Ok(()));
        }
        // Ordered but undelivered publications go with the batch that the reply waits for; the rest is gone already.
        if let Some(below) = self.streams.below_pending(kept.slot)
            && let Some(log) = &mut self.log
        {
            let channel = Arc::clone(kept.name);
            log.published.push(Append::Trimmed { channel, below });
        }
        self.wait(kept.slot, Task::Removed, receipt);
        Step::Later
    }

    fn removed(&mut self, slot: u32) {
        self.streams.clear(slot);
    }

    fn fed(
        &mut self,
        slot: u32,
        publication: &Publication,
        history: &History,
        wants_previous: bool,
        now_ms: u64,
    ) -> Option<Payload> {
        if let Some(log) = &mut self.log {
            log.fed(publication);
        }
        let mut previous = None;
        if publication.position.is_some() {
            previous = wants_previous.then(|| self.streams.get(slot).latest_payload());
            let kept = (publication.payload.clone(), publication.info.clone());
            let at_ms = publication.at_ms;
            let found = self.streams.append(slot, kept, at_ms, history, now_ms);
            debug_assert_eq!(Some(found), publication.position);
            self.streams.fed(slot);
        }
        previous.flatten()
    }

    fn ready(&self) -> usize {
        self.log.as_ref().map_or(0, |log| log.ready())
    }

    fn poll(&mut self) -> Option<Report> {
        let pending = self.log.as_mut()?.pop()?;
        let receipt = pending.receipt;
        Some(match pending.task {
            Task::Item(item) => Report::Item(item, Some(receipt)),
            Task::Skipped => Report::Skipped(receipt, None),
            Task::Fence => Report::Fence(receipt),
            Task::Removed => Report::Removed(receipt, Ok(())),
        })
    }

    fn settle(&mut self, slot: u32) {
        self.streams.waited(slot);
        if let Some(log) = &mut self.log {
            log.settled();
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
    fn maintain(&mut self, catalog: &Catalog<'_>, now_ms: u64, round: Round, gone: &mut Vec<u32>) {
        if round == Round::Full {
            let count = self.streams.len() / LOOKS;
            self.search(count.clamp(LOOK_MIN, LOOK_MAX), catalog, now_ms, gone);
        }
        self.keep_to_budget(catalog, now_ms, gone);
        if round == Round::Full {
            self.evict(LOOK_EVICTIONS);
        }
    }

    fn has_maintenance(&self) -> bool {
        self.streams.len() > 0 || self.has_changes()
    }

    fn gauges(&self) -> Gauges {
        let log = self.log.as_deref();
        Gauges {
            waiting: log.map_or(0, Log::len),
            ready: log.map_or(0, Log::ready),
            waiting_bytes: log.map_or(0, Log::bytes),
            channels: self.streams.len(),
            bytes: self.streams.bytes(),
        }
    }
}
