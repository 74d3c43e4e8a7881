//! History from the hub's point of view: joining, reading, removing and maintenance.
//!
//! Everything here runs at a channel's home.

use std::sync::Arc;

use crate::channel::Home;
use crate::engine::{Catalog, Kept, Receipt, Round, Step};
use crate::mail::Origin;
use crate::page::{Page, Query};
use crate::{Engine, History, HistoryError, Hub, Namespaces, Now};

impl<E: Engine> Hub<E> {
    /// Begins a turn.
    pub fn set_now(&mut self, now: Now) {
        self.now = now;
    }

    /// Sets the namespace options and the limit in bytes for the history of all workers, of which the
    /// [budgets](Namespaces::add_budget) of namespaces are a part. Streams move to their new budgets, and excess
    /// publications are evicted, in bounded steps by [`maintain`](Self::maintain). The wildcard namespaces must not
    /// change once there are channels, because the homes of channels depend on them.
    pub fn set_history(&mut self, namespaces: Arc<Namespaces>, bytes_max: usize) {
        debug_assert!(
            self.channels.len() == 0 || namespaces.wildcards() == self.namespaces.wildcards()
        );
        self.engine.set_limits(&namespaces, bytes_max, self.workers);
        self.namespaces = namespaces;
    }

    /// Sets the maximum number of publications of one history reply.
    pub fn set_history_answer_max(&mut self, publications: usize) {
        self.history_answer_max = publications;
    }

    /// Returns whether something may expire without further activity, so that [`maintain`](Self::maintain) must be
    /// called.
    pub fn has_looks_due(&self) -> bool {
        let has_old = self.engine.has_maintenance();
        has_old || self.presence.is_waiting() || self.happenings.is_waiting()
    }

    /// Returns whether a [`sweep`](Self::sweep) or a [`take_happenings`](Self::take_happenings) is needed.
    pub fn has_to_tell(&self) -> bool {
        !self.announcements.is_empty() || self.happenings.has_some()
    }

    /// Releases a bounded amount of expired data; to be called about once a second.
    pub fn look_after(&mut self) {
        self.recent.forget(self.now.mono_ms);
        self.end_absences();
        self.end_emptying();
        self.end_wanted();
        self.maintain(Round::Full);
    }

    /// Returns the wall clock for expiry, or 0 during [`SETTLED_MS`](crate::SETTLED_MS) after a start from a log, so
    /// that nothing expires.
    pub(crate) fn age_ms(&self) -> u64 {
        match self.now.mono_ms < self.doubts_clock_until {
            true => 0,
            false => self.now.wall_ms,
        }
    }

    /// Returns the channel's stream and starts one if necessary.
    pub(crate) fn stream_of(&mut self, index: u32) -> u32 {
        let channel = &mut self.channels[index];
        debug_assert!(channel.home.is_here());
        match channel.home.stream() {
            Some(stream) => stream,
            None => {
                let stream = self.engine.open(index, &channel.name, self.now.wall_ms);
                channel.home = Home::with_stream(stream);
                stream
            }
        }
    }

    /// Enforces the limits of stored data. Entries may be removed, so no entry index may be held across the call.
    #[inline]
    pub(crate) fn keep_to_budget(&mut self) {
        self.maintain(Round::Step);
    }

    #[inline]
    fn maintain(&mut self, round: Round) {
        let now_ms = self.age_ms();
        let catalog = Catalog {
            channels: &self.channels,
            namespaces: &self.namespaces,
            presence: &self.presence,
        };
        let mut gone = Vec::new();
        self.engine.maintain(&catalog, now_ms, round, &mut gone);
        for index in gone {
            self.lines.remove(&index);
            self.channels[index].home = Home::HERE;
            self.channels.release(index);
        }
    }

    /// Detaches the channel from its stream; the entry stays.
    pub(crate) fn lose_stream(&mut self, index: u32) {
        let channel = &mut self.channels[index];
        if let Some(slot) = channel.home.stream() {
            self.engine.close(slot, &channel.name);
            channel.home = Home::HERE;
            self.lines.remove(&index);
            self.give_up_read(index);
        }
    }

    /// Returns the entry, the slot and the options of a channel with history.
    fn remembered(&mut self, channel: &str) -> Result<(u32, u32, History), HistoryError> {
        let history = self.namespaces.of(channel).history;
        let history = history.ok_or(HistoryError::Off)?;
        let hash = self.channels.hash(channel);
        // The new stream has a position from now on, which is as good as any other.
        let index = self.entry(hash, channel);
        Ok((index, self.stream_of(index), history))
    }

    /// Returns `None` if the result arrives with a report of the engine.
    pub(crate) fn read_history(
        &mut self,
        channel: &str,
        query: &Query,
        origin: Origin,
    ) -> Option<Result<Box<Page>, HistoryError>> {
        let answer_max = self.history_answer_max;
        let page = self.ask_engine(channel, origin, |engine, kept, receipt| {
            engine.read(kept, query, answer_max, receipt)
        })?;
        Some(page.map(Box::new))
    }

    /// Returns `None` if the result arrives with a report of the engine.
    pub(crate) fn clear_history(
        &mut self,
        channel: &str,
        origin: Origin,
    ) -> Option<Result<(), HistoryError>> {
        self.ask_engine(channel, origin, E::remove)
    }

    fn ask_engine<T>(
        &mut self,
        channel: &str,
        origin: Origin,
        ask: impl FnOnce(&mut E, Kept<'_>, Receipt) -> Step<Result<T, HistoryError>>,
    ) -> Option<Result<T, HistoryError>> {
        let (index, slot, history) = match self.remembered(channel) {
            Ok(found) => found,
            Err(error) => return Some(Err(error)),
        };
        let kept = Kept {
            name: &self.channels[index].name,
            slot,
            history: &history,
            now_ms: self.age_ms(),
        };
        let receipt = Receipt {
            channel: index,
            origin,
            terms: None,
            first: None,
            has_slot: true,
        };
        let answer = match ask(&mut self.engine, kept, receipt) {
            Step::Done(answer) => Some(answer),
            Step::Later => {
                self.channels[index].waiting += 1;
                None
            }
        };
        self.keep_to_budget();
        answer
    }
}
