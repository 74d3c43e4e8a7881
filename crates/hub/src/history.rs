//! The hub's operations on histories: joining, reading, removing and maintenance.
//!
//! They all run on the channel's home, the worker that orders its publications.

use std::sync::Arc;

use crate::channel::Home;
use crate::engine::{Catalog, EngineReply, MaintenanceScope, RequestContext, StoredChannel};
use crate::message::Origin;
use crate::page::{HistoryPage, HistoryQuery};
use crate::{Engine, HistoryError, HistoryOptions, Hub, Namespaces, Now};

impl<E: Engine> Hub<E> {
    /// Sets the time that the hub uses until the next call. Called once at the beginning of each turn.
    pub fn set_now(&mut self, now: Now) {
        self.now = now;
    }

    /// Sets the namespaces, and the limit for the history of all workers together in bytes, which includes the
    /// [budgets](Namespaces::add_budget) of namespaces. Maintenance then moves streams to their new budgets and evicts
    /// excess publications, in bounded steps. The wildcard namespaces must not change once there are channels, because
    /// the homes of channels depend on them.
    pub fn set_history(&mut self, namespaces: Arc<Namespaces>, bytes_max: usize) {
        debug_assert!(
            self.channels.len() == 0 || namespaces.wildcards() == self.namespaces.wildcards()
        );
        self.engine.set_limits(&namespaces, bytes_max, self.workers);
        self.namespaces = namespaces;
    }

    /// Sets the maximum number of publications in one history reply.
    pub fn set_history_answer_max(&mut self, publications: usize) {
        self.history_answer_max = publications;
    }

    /// Returns whether stored data or a delay can expire, so that [`maintain`](Self::maintain) must be called even without
    /// other activity.
    pub fn needs_maintenance(&self) -> bool {
        let has_old = self.engine.has_maintenance();
        has_old || self.presence.is_waiting() || self.channel_events.has_timers()
    }

    /// Returns whether joins and leaves wait for a [`sweep`](Self::sweep), or events for
    /// [`take_channel_events`](Self::take_channel_events).
    pub fn has_pending_output(&self) -> bool {
        !self.join_leave_queue.is_empty() || self.channel_events.has_events()
    }

    /// Frees a bounded amount of expired data. Must be called about once a second.
    pub fn maintain(&mut self) {
        self.idempotency.expire(self.now.mono_ms);
        self.expire_leaves();
        self.report_vacated();
        self.report_still_empty();
        self.maintain_engine(MaintenanceScope::Full);
    }

    /// Returns the time against which the expiry of publications is checked: the wall clock in
    /// milliseconds since 1970, or 0 during [`RESTORE_GRACE_MS`](crate::RESTORE_GRACE_MS) after a
    /// start from a log, so that nothing expires.
    pub(crate) fn expiry_clock_ms(&self) -> u64 {
        match self.now.mono_ms < self.clock_grace_until_ms {
            true => 0,
            false => self.now.wall_ms,
        }
    }

    /// Returns the slot of the channel's stream, and starts a stream if there is none.
    pub(crate) fn open_stream(&mut self, index: u32) -> u32 {
        let channel = &mut self.channels[index];
        debug_assert!(channel.home.is_local());
        match channel.home.stream() {
            Some(stream) => stream,
            None => {
                let stream = self.engine.open(index, &channel.name, self.now.wall_ms);
                channel.home = Home::with_stream(stream);
                stream
            }
        }
    }

    /// Enforces the limits of stored data. This may remove entries, so no entry index is valid after the call.
    #[inline]
    pub(crate) fn evict_over_budget(&mut self) {
        self.maintain_engine(MaintenanceScope::Incremental);
    }

    #[inline]
    fn maintain_engine(&mut self, round: MaintenanceScope) {
        let now_ms = self.expiry_clock_ms();
        let catalog = Catalog {
            channels: &self.channels,
            namespaces: &self.namespaces,
            presence: &self.presence,
            emptying: self.channel_events.emptying(),
        };
        let mut gone = Vec::new();
        self.engine.maintain(&catalog, now_ms, round, &mut gone);
        for index in gone {
            self.feed_queues.remove(&index);
            self.channels[index].home = Home::LOCAL;
            self.channels.release(index);
        }
    }

    /// Closes the stream of a channel; the channel's entry stays.
    pub(crate) fn detach_stream(&mut self, index: u32) {
        let channel = &mut self.channels[index];
        if let Some(slot) = channel.home.stream() {
            self.engine.close(slot, &channel.name);
            channel.home = Home::LOCAL;
            self.feed_queues.remove(&index);
            self.abandon_join_read(index);
        }
    }

    /// Returns the entry, the slot and the options of a channel with history.
    fn find_stored_channel(
        &mut self,
        channel: &str,
    ) -> Result<(u32, u32, HistoryOptions), HistoryError> {
        let history = self.namespaces.of(channel).history;
        let history = history.ok_or(HistoryError::Off)?;
        let hash = self.channels.hash(channel);
        // If there is no stream, one is started, because the reply to a read contains a position.
        let index = self.channels.entry(hash, channel, &self.namespaces);
        Ok((index, self.open_stream(index), history))
    }

    /// Reads a page of the history of a channel. Returns `None` if the result arrives with a report of the engine.
    pub(crate) fn read_history(
        &mut self,
        channel: &str,
        query: &HistoryQuery,
        origin: Origin,
    ) -> Option<Result<Box<HistoryPage>, HistoryError>> {
        let answer_max = self.history_answer_max;
        let page = self.query_engine(channel, origin, |engine, kept, request_context| {
            engine.read(kept, query, answer_max, request_context)
        })?;
        Some(page.map(Box::new))
    }

    /// Removes the history of a channel. Returns `None` if the result arrives with a report of the engine.
    pub(crate) fn clear_history(
        &mut self,
        channel: &str,
        origin: Origin,
    ) -> Option<Result<(), HistoryError>> {
        self.query_engine(channel, origin, E::remove)
    }

    fn query_engine<T>(
        &mut self,
        channel: &str,
        origin: Origin,
        ask: impl FnOnce(
            &mut E,
            StoredChannel<'_>,
            RequestContext,
        ) -> EngineReply<Result<T, HistoryError>>,
    ) -> Option<Result<T, HistoryError>> {
        let (index, slot, history) = match self.find_stored_channel(channel) {
            Ok(found) => found,
            Err(error) => return Some(Err(error)),
        };
        let kept = StoredChannel {
            name: &self.channels[index].name,
            slot,
            history: &history,
            now_ms: self.expiry_clock_ms(),
        };
        let request_context = RequestContext {
            channel: index,
            origin,
            options: None,
            repeated: None,
            has_slot: true,
        };
        let answer = match ask(&mut self.engine, kept, request_context) {
            EngineReply::Ready(answer) => Some(answer),
            EngineReply::Deferred => {
                self.channels[index].waiting += 1;
                None
            }
        };
        self.evict_over_budget();
        answer
    }
}
