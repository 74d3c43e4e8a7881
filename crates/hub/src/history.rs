//! What channels remember, as far as it concerns the hub: who joins where, what is read, what is let go of.
//!
//! Everything here happens at a channel's home.

use std::sync::Arc;

use crate::channel::{Channel, Home};
use crate::page::{Page, Query};
use crate::publish::Origin;
use crate::records::RECORD_BYTES;
use crate::stream::{RECOVERED_MAX, Recovered};
use crate::streams::Gone;
use crate::{Hub, Namespaces, Now, Position, SubscribeOptions};

/// Evictions for each publication beyond those that make room for its bytes: for the bookkeeping of its stream and account, and
/// towards a budget that was lowered.
const EVICTIONS: usize = 32;

/// Most evictions in a call of [`Hub::look_after`]: some milliseconds.
const LOOK_EVICTIONS: usize = 1 << 15;

/// Calls in which all streams are looked at, about of [`Hub::look_after`], at these numbers in one.
const LOOKS: usize = 30;
const LOOK_MIN: usize = 256;
const LOOK_MAX: usize = 8192;

/// Of what history may take, this part may be lent to answers after streams have dropped it.
const LENT_PART: usize = 4;

/// Streams without publications may take this part of what history may take, beside it: subscriptions make them, and
/// must not take the place of publications.
const SILENT_PART: usize = 4;

/// So many streams are looked at for one that nobody needs before any gives up its publications.
const SEARCHED: usize = 32;

/// What somebody joins who subscribes to a channel that remembers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    /// Of the latest publication so far: what he gets next has the next one.
    pub position: Position,
    /// What he has missed, if he had said up to where he knew the channel.
    pub recovered: Option<Recovered>,
}

/// Why there is no history to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HistoryError {
    /// Channels of its namespace don't remember.
    #[error("the channel keeps no history")]
    Off,
    /// The position is one of another epoch.
    #[error("the position is none of the channel's stream")]
    Unrecoverable,
    /// One answer has at most so many publications.
    #[error(
        "an answer has at most {0} publications: ask for fewer, and for the others since the last of these"
    )]
    TooMany(usize),
    /// Answers that are on their way refer to too much of what channels have dropped.
    #[error("too many answers are on their way to clients that read slowly")]
    Busy,
}

impl Hub {
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
        let workers = usize::from(self.workers);
        let budgets = namespaces.budgets();
        let parts: usize = budgets.clone().map(|(_, bytes)| bytes).sum();
        let common = bytes_max.saturating_sub(parts) / workers;
        let budgets = budgets.map(|(namespace, bytes)| (namespace, bytes / workers));
        self.streams.set_budgets(common, budgets);
        self.namespaces = namespaces;
        self.history_bytes_max = bytes_max / workers;
    }

    /// Sets how many publications one answer has at most.
    pub fn set_history_answer_max(&mut self, publications: usize) {
        self.history_answer_max = publications;
    }

    /// Whether something gets old, or is over, also while nothing happens: [`look_after`](Self::look_after) is needed.
    pub fn has_looks_due(&self) -> bool {
        let has_old = self.streams.len() > 0 || self.has_changes();
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
        let count = self.streams.len() / LOOKS;
        self.search(count.clamp(LOOK_MIN, LOOK_MAX));
        self.keep_to_budget();
        self.evict(LOOK_EVICTIONS);
    }

    /// Looks at the next so many streams, and lets go of what is over.
    fn search(&mut self, count: usize) {
        let mut gone = Vec::new();
        let (channels, namespaces) = (&self.channels, &self.namespaces);
        self.streams.look(
            count,
            self.age_ms(),
            self.has_too_many_silent(),
            |channel| namespaces.of(&channels[channel].name).history,
            |channel| is_used(&channels[channel]),
            |one| gone.push(one),
        );
        for one in gone {
            self.forget_stream(one);
        }
    }

    /// What somebody joins who is about to be counted.
    pub(crate) fn join(&mut self, index: u32, joining: &SubscribeOptions) -> Option<Box<Joined>> {
        let history = self.namespaces.of(&self.channels[index].name).history?;
        let stream = self.stream_of(index);
        let stream = self.streams.trimmed(stream, &history, self.age_ms());
        let since = joining.since.as_ref();
        let latest_max = if joining.picks { RECOVERED_MAX } else { 1 };
        let joined = Joined {
            position: stream.position(),
            recovered: since.map(|since| stream.recover(since, history.recovery, latest_max)),
        };
        if !stream.has_records() {
            self.happened_empty(index);
        }
        Some(Box::new(joined))
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
                let name_bytes = channel.name.len();
                let stream = self.streams.open(index, name_bytes, self.now.wall_ms);
                channel.home = Home::with_stream(stream);
                stream
            }
        }
    }

    /// Evicts publications where a budget is exceeded, of those that take most of it, and, where silent streams have grown
    /// beyond their part, looks for some without subscribers. Entries may go with these: to be called while no index of
    /// one is held.
    pub(crate) fn keep_to_budget(&mut self) {
        // Without growth there is no search: where all of them are in use, each publication would pay for one.
        if self.has_too_many_silent() && self.streams.silent() > self.silent_bytes {
            self.search(SEARCHED);
        }
        self.silent_bytes = self.streams.silent();
        // Each publication has at least `RECORD_BYTES`.
        let grown = self.streams.take_grown();
        self.evict(EVICTIONS + grown / RECORD_BYTES);
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

    /// Whether streams without publications take more than their part.
    fn has_too_many_silent(&self) -> bool {
        self.streams.silent() > self.history_bytes_max / SILENT_PART
    }

    /// The channel remembers no more; its entry stays.
    pub(crate) fn lose_stream(&mut self, index: u32) {
        if let Some(stream) = self.channels[index].home.stream() {
            let gone = self.streams.close(stream);
            self.forget(gone);
        }
    }

    fn forget_stream(&mut self, gone: Gone) {
        self.forget(gone);
        self.channels.release(gone.channel);
    }

    fn forget(&mut self, gone: Gone) {
        let channel = &mut self.channels[gone.channel];
        channel.home = Home::HERE;
        if gone.is_known
            && let Some(changes) = &mut self.streams.changes
        {
            changes.dropped.push(Arc::clone(&channel.name));
        }
    }

    /// The stream of a channel that remembers.
    fn remembered(&mut self, channel: &str) -> Result<u32, HistoryError> {
        let history = self.namespaces.of(channel).history;
        let history = history.ok_or(HistoryError::Off)?;
        let hash = self.channels.hash(channel);
        // It has a position from now on, which is worth as much as any.
        let index = self.entry(hash, channel);
        let stream = self.stream_of(index);
        self.streams.trimmed(stream, &history, self.age_ms());
        Ok(stream)
    }

    pub(crate) fn read_history(
        &mut self,
        channel: &str,
        query: &Query,
    ) -> Result<Box<Page>, HistoryError> {
        let stream = self.remembered(channel)?;
        let page = match self.streams.lent().bytes() > self.history_bytes_max / LENT_PART {
            true => Err(HistoryError::Busy),
            false => {
                let stream = self.streams.get(stream);
                stream.page(query, self.history_answer_max)
            }
        };
        self.keep_to_budget();
        page.map(Box::new)
    }

    /// `None`: the answer comes when the log has it.
    pub(crate) fn clear_history(
        &mut self,
        channel: &str,
        origin: Origin,
    ) -> Option<Result<(), HistoryError>> {
        let stream = match self.remembered(channel) {
            Ok(stream) => stream,
            Err(error) => return Some(Err(error)),
        };
        self.streams.clear(stream);
        let waits = self.wait_for_removal(channel, stream, origin);
        self.keep_to_budget();
        (!waits).then_some(Ok(()))
    }
}

/// Whether somebody knows the position of this channel's stream, or is about to.
fn is_used(channel: &Channel) -> bool {
    channel.waiting > 0 || channel.subscribers_all() > 0
}
