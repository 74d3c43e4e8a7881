//! Publications that must be durable before they are delivered.
//!
//! With a log ([`Hub::keep_log`]), a home handles a publication of a channel with history in two steps. First it is
//! *ordered*: it gets its offset, goes into the next [`Batch`], and waits. Once the batch is durable
//! ([`Hub::durable`]), it is *delivered*: the channel's stream stores it, and the subscribers and the publisher are
//! notified.
//!
//! So a stream contains exactly what has been delivered. A new subscriber gets the stream's position and content, and
//! then, in order, what was waiting when it arrived: no gap, no overlap. No client ever sees an offset that a crash can
//! take back.
//!
//! Waiting publications are in the one order of the home. A publication that can't be delivered at once for lack of
//! credit blocks later ones of its channel and nothing else. While publications of a channel wait, everything else that
//! reveals the channel's state joins the same order: publications that are not stored, replies to stale and repeated
//! ones, joins and leaves, the removal of the history. `pending.rs` implements this.
//!
//! When too much is waiting, publications are refused or stalled like those without credit: a slow or failing log
//! pauses their sources.

use std::sync::Arc;

use crate::Version;
use crate::channel::Home;
use crate::stream::Stream;
use crate::{ChannelName, Epoch, Hub, MemoryEngine, NameError, Outlet, Publication};

/// Changes with no waiter ride along with the next batch; this many force one.
const CHANGES_MAX: usize = 1024;

/// Period after a start from a log, in milliseconds, during which nothing expires: a clock that is ahead until NTP has
/// set it would delete all history for good.
pub const SETTLED_MS: u64 = 600_000;

/// A record of one channel's stream for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Append {
    /// A stream was started; an earlier stream of that channel is void.
    Opened {
        /// The channel name.
        channel: Arc<str>,
        /// The epoch of the stream.
        epoch: Epoch,
        /// The time in milliseconds since 1970.
        at_ms: u64,
    },
    /// A publication was ordered.
    Published {
        /// The channel name.
        channel: Arc<str>,
        /// The publication with its position.
        publication: Publication,
        /// The version of the state in the payload.
        version: Option<Version>,
    },
    /// Publications with lower offsets are no longer stored.
    Trimmed {
        /// The channel name.
        channel: Arc<str>,
        /// The lowest offset that may still be stored.
        below: u64,
    },
    /// The stream was dropped.
    Dropped {
        /// The channel name.
        channel: Arc<str>,
    },
}

/// Records that become durable together. The records of one channel are in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The number to pass to [`Hub::durable`]; consecutive from 1.
    pub number: u64,
    /// The records; empty if something only waits for earlier batches.
    pub appends: Vec<Append>,
}

/// A stream as stored by a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The channel name.
    pub channel: Arc<str>,
    /// The epoch of the stream.
    pub epoch: Epoch,
    /// The offset of the last publication ever ordered; 0 before the first.
    pub top: u64,
    /// The last version of a publication.
    pub version: Option<Version>,
    /// The stored publications by offset, each with its position.
    pub publications: Vec<Publication>,
}

/// Changes of streams other than publications that the log has yet to record; bounded by the number of streams.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// Streams that were started or trimmed.
    pub(crate) streams: Vec<u32>,
    /// Channels whose streams were dropped.
    pub(crate) dropped: Vec<Arc<str>>,
    /// A client knows a position that the log does not contain.
    pub(crate) is_urgent: bool,
}

impl Changes {
    fn len(&self) -> usize {
        self.streams.len() + self.dropped.len()
    }
}

impl Hub {
    /// Makes channels with history hand out their changes as batches and wait until these are durable. Must be called
    /// before anything else.
    pub fn keep_log(&mut self) {
        self.engine.log = Some(Box::default());
        self.engine.streams.changes = Some(Box::default());
    }

    /// Restores a stream from a log; returns `false` if its channel no longer has history, which the log will be told.
    /// To be called before any subscription or publication, after [`set_history`](Self::set_history) and
    /// [`set_now`](Self::set_now), for channels whose [home](Self::home_of) is here, in the order of their last
    /// publication, because among equally heavy streams the oldest is evicted first.
    ///
    /// # Errors
    /// The name is not a valid channel name; nothing is changed.
    pub fn restore(&mut self, restored: Restored) -> Result<bool, NameError> {
        let name = ChannelName::new(&restored.channel)?;
        debug_assert_eq!(self.home_of(name), self.me, "all workers have one seed");
        let channel = Arc::clone(&restored.channel);
        let Some(history) = self.namespaces.of(&channel).history else {
            if let Some(changes) = &mut self.engine.streams.changes {
                changes.dropped.push(channel);
            }
            return Ok(false);
        };
        let index = self.entry(self.channels.hash(&channel), &channel);
        if self.channels[index].home.stream().is_some() {
            debug_assert!(false, "a channel has one stream");
            return Ok(false);
        }
        self.doubts_clock_until = self.now.mono_ms.saturating_add(SETTLED_MS);
        let stream = Stream::restored(restored, self.engine.streams.lent(), self.now.wall_ms);
        let now_ms = self.age_ms();
        let stream = self
            .engine
            .streams
            .restore(index, channel.len(), stream, &history, now_ms);
        self.channels[index].home = Home::with_stream(stream);
        self.keep_to_budget();
        Ok(true)
    }

    /// Returns the next batch to make durable; to be called once at the end of a turn. With `is_all`, to be set about
    /// once a second, it includes changes that have no waiter, such as trimmed publications.
    pub fn take_batch(&mut self, is_all: bool) -> Option<Batch> {
        let engine = &mut self.engine;
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
        // Dropped streams come first: such a stream has nothing waiting for the log, and one started since is another
        // stream.
        let mut appends: Vec<_> = dropped
            .into_iter()
            .map(|channel| Append::Dropped { channel })
            .collect();
        appends.reserve(published.len() + changed.len());
        let mut trimmed = Vec::new();
        for index in changed {
            let Some((channel, was_known)) = self.engine.streams.told(index) else {
                continue;
            };
            let channel = Arc::clone(&self.channels[channel].name);
            let stream = self.engine.streams.get(index);
            if was_known {
                let below = stream.lowest();
                trimmed.push(Append::Trimmed { channel, below });
            } else {
                appends.push(Append::Opened {
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
        let log = self.engine.log.as_mut()?;
        log.taken += 1;
        Some(Batch {
            number: log.taken,
            appends,
        })
    }

    /// Marks a batch and all earlier ones as durable and continues what has waited for them.
    pub fn durable(&mut self, batch: u64, outlet: &mut impl Outlet) {
        if let Some(log) = &mut self.engine.log {
            log.durable(batch);
            self.take_reports(outlet);
        }
    }

    /// Returns whether [`take_batch`](Self::take_batch) with `is_all` would return a batch.
    pub fn has_changes(&self) -> bool {
        self.engine.has_changes()
    }
}

impl MemoryEngine {
    pub(crate) fn has_changes(&self) -> bool {
        let changes = self.streams.changes.as_ref();
        changes.is_some_and(|changes| changes.len() > 0)
            || self.log.as_ref().is_some_and(|log| log.is_awaited)
    }
}
