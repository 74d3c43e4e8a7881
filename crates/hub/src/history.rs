//! What channels remember, as far as it concerns the hub: who joins where, what is read, what is let go of.
//!
//! Everything here happens at a channel's home.

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

    /// Sets the options of channels and the bytes that the history of all workers may take, of which the
    /// [budgets](Namespaces::add_budget) of namespaces are parts. Streams move to their new budgets, and publications above
    /// them are evicted, in bounded steps of [`look_after`](Self::look_after). The wildcard namespaces may not change once
    /// there are channels, since the homes of these depend on them.
    pub fn set_history(&mut self, namespaces: Arc<Namespaces>, bytes_max: usize) {
        debug_assert!(
            self.channels.len() == 0 || namespaces.wildcards() == self.namespaces.wildcards()
        );
        self.engine.set_limits(&namespaces, bytes_max, self.workers);
        self.namespaces = namespaces;
    }

    /// Sets how many publications one answer has at most.
    pub fn set_history_answer_max(&mut self, publications: usize) {
        self.history_answer_max = publications;
    }

    /// Whether something gets old, or is over, also while nothing happens: [`look_after`](Self::look_after) is needed.
    pub fn has_looks_due(&self) -> bool {
        let has_old = self.engine.has_maintenance();
        has_old || self.presence.is_waiting() || self.happenings.is_waiting()
    }

    /// Whether somebody is to be told of something: a [`sweep`](Self::sweep), or
    /// [`take_happenings`](Self::take_happenings), is needed.
    pub fn has_to_tell(&self) -> bool {
        !self.announcements.is_empty() || self.happenings.has_some()
    }

    /// Lets go of some of what is over; to be called about once a second.
    pub fn look_after(&mut self) {
        self.recent.forget(self.now.mono_ms);
        self.end_absences();
        self.end_emptying();
        self.end_wanted();
        self.maintain(Round::Full);
    }

    /// Returns the wall clock for expiry, or 0 for [`SETTLED_MS`](crate::SETTLED_MS) after a start from a log, so that nothing
    /// expires.
    pub(crate) fn age_ms(&self) -> u64 {
        match self.now.mono_ms < self.doubts_clock_until {
            true => 0,
            false => self.now.wall_ms,
        }
    }

    /// The channel's stream, which begins now if there is none.
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

    /// Keeps the limits of what is stored. Entries may go with it: to be called while no index of one is held.
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

    /// The channel remembers no more; its entry stays.
    pub(crate) fn lose_stream(&mut self, index: u32) {
        let channel = &mut self.channels[index];
        if let Some(slot) = channel.home.stream() {
            self.engine.close(slot, &channel.name);
            channel.home = Home::HERE;
            self.lines.remove(&index);
            self.give_up_read(index);
        }
    }

    /// The slot of a channel that remembers, and its entry.
    fn remembered(&mut self, channel: &str) -> Result<(u32, u32, History), HistoryError> {
        let history = self.namespaces.of(channel).history;
        let history = history.ok_or(HistoryError::Off)?;
        let hash = self.channels.hash(channel);
        // It has a position from now on, which is worth as much as any.
        let index = self.entry(hash, channel);
        Ok((index, self.stream_of(index), history))
    }

    /// `None`: the answer comes with a report of the engine.
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

    /// `None`: the answer comes with a report of the engine.
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
