//! The path of publications that must be durable before they are delivered.
//!
//! With a log ([`Hub::enable_log`]), a home handles a publication of a channel with history in two
//! steps. First it is *ordered*: it gets its offset, goes into the next [`LogBatch`], and waits.
//! Once the batch is durable ([`Hub::batch_durable`]), it is *delivered*: the channel's stream
//! stores it, and the subscribers and the publisher are notified.
//!
//! So a stream contains exactly the publications that have been delivered. A new subscriber gets
//! the stream's position and publications, and then, in order, the publications that were waiting
//! when it arrived, without a gap or an overlap. No client ever sees an offset that a crash could
//! take back.
//!
//! The publications that wait for the log at a home have one order, across all channels. But a
//! publication that is durable and can't be delivered for lack of credit blocks only later ones of
//! its channel. While publications of a channel wait, everything else that reveals the channel's
//! state waits in the same order: publications that are not stored, replies to stale and repeated
//! publications, joins and leaves, the removal of the history. `pending.rs` implements this.
//!
//! When too many publications wait, further ones are refused or stalled, as if there were no
//! credit. In this way a slow or failing log pauses the publishers.

use std::sync::Arc;

use crate::channel::Home;
use crate::stream::Stream;
use crate::{ChannelName, Hub, LogBatch, LogRecord, NameError, NodeEngine, Outlet, RestoredStream};

/// If this many changes are pending for which no request waits, such as trimmed publications, they get a
/// batch of their own. Fewer such changes are recorded with the next batch.
const CHANGES_MAX: usize = 1024;

/// The time after a start from a log during which nothing expires, in milliseconds. If the clock is
/// ahead until NTP corrects it, expiry would otherwise permanently delete all history.
pub const RESTORE_GRACE_MS: u64 = 600_000;

impl Hub {
    /// Makes the hub return changes of channels with history as batches, and deliver publications only when their batch
    /// is durable. Must be called before any other method.
    pub fn enable_log(&mut self) {
        if let Some(engine) = self.engine.memory() {
            engine.log = Some(Box::default());
            engine.streams.changes = Some(Box::default());
        }
    }

    /// Restores a stream from a log. Returns `false` if the channel no longer has history; the log
    /// will then record that the stream was dropped. Must be called for all channels whose
    /// [home](Self::home_of) is this worker, after [`set_history`](Self::set_history) and
    /// [`set_now`](Self::set_now), and before any subscription or publication. The streams must be
    /// restored in the order of their last publications, because among equally large streams the
    /// oldest is evicted first.
    ///
    /// # Errors
    /// The name is not a valid channel name; nothing is changed.
    pub fn restore(&mut self, restored: RestoredStream) -> Result<bool, NameError> {
        let name = ChannelName::new(&restored.channel)?;
        debug_assert_eq!(
            self.home_of(name),
            self.me,
            "a stream may only be restored by the worker that owns its channel"
        );
        let channel = Arc::clone(&restored.channel);
        let Some(history) = self.namespaces.of(&channel).history else {
            let changes = self
                .engine
                .memory()
                .and_then(|one| one.streams.changes.as_mut());
            if let Some(changes) = changes {
                changes.dropped.push(channel);
            }
            return Ok(false);
        };
        let hash = self.channels.hash(&channel);
        let index = self.channels.entry(hash, &channel, &self.namespaces);
        if self.channels[index].home.stream().is_some() {
            debug_assert!(false, "a channel can't have more than one stream");
            return Ok(false);
        }
        self.clock_grace_until_ms = self.now.mono_ms.saturating_add(RESTORE_GRACE_MS);
        let (wall_ms, now_ms) = (self.now.wall_ms, self.expiry_clock_ms());
        let Some(engine) = self.engine.memory() else {
            return Ok(false);
        };
        let stream = Stream::restored(restored, engine.streams.lent(), wall_ms);
        let streams = &mut engine.streams;
        let stream = streams.restore(index, channel.len(), stream, &history, now_ms);
        self.channels[index].home = Home::with_stream(stream);
        self.evict_over_budget();
        Ok(true)
    }

    /// Returns the next batch to make durable, if there is one. Must be called once at the end of each turn. With
    /// `is_all`, to be set about once a second, a batch is returned even if it contains only changes for which no
    /// request waits, such as trimmed publications.
    pub fn take_batch(&mut self, is_all: bool) -> Option<LogBatch> {
        let NodeEngine::Memory(engine) = &mut self.engine else {
            return None;
        };
        let log = engine.log.as_mut()?;
        let changes = engine.streams.changes.as_mut()?;
        let is_awaited = std::mem::take(&mut log.is_awaited);
        let is_urgent = std::mem::take(&mut changes.is_urgent);
        if !(is_awaited || is_urgent || is_all || changes.len() >= CHANGES_MAX) {
            return None;
        }
        let (dropped, changed) = (
            std::mem::take(&mut changes.dropped),
            std::mem::take(&mut changes.streams),
        );
        let published = std::mem::take(&mut log.published);
        // Records of dropped streams come first, because the records of a new stream of the same channel must follow
        // them. A stream with waiting requests is never dropped, so this batch has no publications of dropped streams.
        let mut appends: Vec<_> = dropped
            .into_iter()
            .map(|channel| LogRecord::Dropped { channel })
            .collect();
        appends.reserve(published.len() + changed.len());
        let mut trimmed = Vec::new();
        for index in changed {
            let Some((channel, was_known)) = engine.streams.take_change(index) else {
                continue;
            };
            let channel = Arc::clone(&self.channels[channel].name);
            let stream = engine.streams.get(index);
            if was_known {
                let below = stream.lowest();
                trimmed.push(LogRecord::Trimmed { channel, below });
            } else {
                appends.push(LogRecord::Opened {
                    channel,
                    epoch: stream.epoch(),
                    at_ms: stream.touched_ms(),
                });
            }
        }
        appends.extend(published);
        appends.append(&mut trimmed);
        if appends.is_empty() && !is_awaited {
            return None;
        }
        let log = engine.log.as_mut()?;
        log.taken += 1;
        Some(LogBatch {
            number: log.taken,
            records: appends,
        })
    }

    /// Called when a batch and all earlier ones are durable: continues the requests that have
    /// waited for them.
    pub fn batch_durable(&mut self, batch: u64, outlet: &mut impl Outlet) {
        let engine = self.engine.memory();
        if let Some(log) = engine.and_then(|engine| engine.log.as_mut()) {
            log.batch_durable(batch);
            self.take_reports(outlet);
        }
    }

    /// Returns whether [`take_batch`](Self::take_batch) with `is_all` would return a batch.
    pub fn has_changes(&self) -> bool {
        match &self.engine {
            NodeEngine::Memory(engine) => engine.has_changes(),
            NodeEngine::Remote(_) => false,
        }
    }
}
