//! Publications that a log has to have before anybody hears of them.
//!
//! Where hubs have a log ([`Hub::keep_log`]), a home takes a publication of a channel that remembers in two steps. It
//! is *ordered*: it gets its offset, goes into the next [`Batch`], and waits. When the log says that the batch is
//! durable ([`Hub::durable`]), it is *fed*: the channel's stream keeps it, and the subscribers and the publisher hear of
//! it.
//!
//! So a stream is what has been fed, and nothing else. Who joins gets its position and what is in it, and then, in
//! order, what waited when he came: no hole, no overlap. Nobody ever sees an offset that a crash can take back.
//!
//! What waits is in the one order of the home. What can't be fed at once, for lack of credit, holds back what is
//! behind it in its channel, and nothing else. Whatever else would tell of the channel's state joins the order while
//! publications of the channel wait: those that are not kept, answers to stale and to repeated ones, joins and leaves,
//! the removal of the history. How, is in `pending.rs`.
//!
//! When too much waits, publications are refused or stall like those without credit: a log that is slow or failing
//! pauses their sources.

use std::sync::Arc;

use crate::Version;
use crate::channel::Home;
use crate::stream::Stream;
use crate::{ChannelName, Epoch, Hub, MemoryEngine, NameError, NodeEngine, Outlet, Publication};

/// What nobody waits for is handed over with the next batch, or by itself when it is so much.
const CHANGES_MAX: usize = 1024;

/// Milliseconds after a start from a log in which nothing expires. A clock that is ahead until NTP has set it would delete
/// all history for good.
pub const SETTLED_MS: u64 = 600_000;

/// What the log is to keep of one channel's stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Append {
    /// A stream began; what was there of another one of that channel is void.
    Opened {
        /// Its channel.
        channel: Arc<str>,
        /// Its epoch.
        epoch: Epoch,
        /// When, in milliseconds since 1970.
        at_ms: u64,
    },
    /// A publication, with its position.
    Published {
        /// Its channel.
        channel: Arc<str>,
        /// With its position.
        publication: Publication,
        /// Of the state that it tells.
        version: Option<Version>,
    },
    /// Publications with offsets below are not kept any more.
    Trimmed {
        /// Their channel.
        channel: Arc<str>,
        /// The lowest offset that may still be there.
        below: u64,
    },
    /// The stream is forgotten.
    Dropped {
        /// Its channel.
        channel: Arc<str>,
    },
}

/// What becomes durable together. Of each channel it is in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The first is 1, each next one more: what [`Hub::durable`] is told.
    pub number: u64,
    /// What is to be kept; nothing where somebody waits for the batches before alone.
    pub appends: Vec<Append>,
}

/// A stream as a log has kept it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// Its channel.
    pub channel: Arc<str>,
    /// Its epoch.
    pub epoch: Epoch,
    /// The offset of the last publication that there ever was; 0 before the first.
    pub top: u64,
    /// The last one that a publication had.
    pub version: Option<Version>,
    /// Those that are kept, by offset, each with its position.
    pub publications: Vec<Publication>,
}

/// What a log is to be told of streams, beside publications. How much it is, is bounded by how many streams there are.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// Those that began, or let go of something.
    pub(crate) streams: Vec<u32>,
    /// Channels whose streams were forgotten.
    pub(crate) dropped: Vec<Arc<str>>,
    /// Somebody has a position that the log does not know.
    pub(crate) is_urgent: bool,
}

impl Changes {
    fn len(&self) -> usize {
        self.streams.len() + self.dropped.len()
    }
}

impl Hub {
    /// From now on what channels remember is handed out as batches, and waits until it is durable. To be called before
    /// anything else.
    pub fn keep_log(&mut self) {
        if let Some(engine) = self.engine.memory() {
            engine.log = Some(Box::default());
            engine.streams.changes = Some(Box::default());
        }
    }

    /// Goes on with a stream of a log; false if its channel does not remember any more, which the log will hear. To be
    /// called before anybody subscribes or publishes, after [`set_history`](Self::set_history) and
    /// [`set_now`](Self::set_now), for channels whose [home](Self::home_of) is here; those that were published to
    /// longest ago first, for of those that take as much they give first.
    ///
    /// # Errors
    /// That is no name of a channel. Nothing is done.
    pub fn restore(&mut self, restored: Restored) -> Result<bool, NameError> {
        let name = ChannelName::new(&restored.channel)?;
        debug_assert_eq!(self.home_of(name), self.me, "all workers have one seed");
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
        let index = self.entry(self.channels.hash(&channel), &channel);
        if self.channels[index].home.stream().is_some() {
            debug_assert!(false, "a channel has one stream");
            return Ok(false);
        }
        self.doubts_clock_until = self.now.mono_ms.saturating_add(SETTLED_MS);
        let (wall_ms, now_ms) = (self.now.wall_ms, self.age_ms());
        let Some(engine) = self.engine.memory() else {
            return Ok(false);
        };
        let stream = Stream::restored(restored, engine.streams.lent(), wall_ms);
        let streams = &mut engine.streams;
        let stream = streams.restore(index, channel.len(), stream, &history, now_ms);
        self.channels[index].home = Home::with_stream(stream);
        self.keep_to_budget();
        Ok(true)
    }

    /// What is to be made durable next; to be called once at the end of a turn. With `is_all` also what nobody waits
    /// for, such as what channels let go of: about once a second.
    pub fn take_batch(&mut self, is_all: bool) -> Option<Batch> {
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
        // What is dropped is over: a stream that waits for the log is not. One that began since is another.
        let mut appends: Vec<_> = dropped
            .into_iter()
            .map(|channel| Append::Dropped { channel })
            .collect();
        appends.reserve(published.len() + changed.len());
        let mut trimmed = Vec::new();
        for index in changed {
            let Some((channel, was_known)) = engine.streams.told(index) else {
                continue;
            };
            let channel = Arc::clone(&self.channels[channel].name);
            let stream = engine.streams.get(index);
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
        let log = engine.log.as_mut()?;
        log.taken += 1;
        Some(Batch {
            number: log.taken,
            appends,
        })
    }

    /// This batch and all before it are durable: what has waited for them goes on.
    pub fn durable(&mut self, batch: u64, outlet: &mut impl Outlet) {
        let engine = self.engine.memory();
        if let Some(log) = engine.and_then(|engine| engine.log.as_mut()) {
            log.durable(batch);
            self.take_reports(outlet);
        }
    }

    /// Whether [`take_batch`](Self::take_batch) would have something, with `is_all`.
    pub fn has_changes(&self) -> bool {
        match &self.engine {
            NodeEngine::Memory(engine) => engine.has_changes(),
            NodeEngine::Remote(_) => false,
        }
    }
}

impl MemoryEngine {
    pub(crate) fn has_changes(&self) -> bool {
        let changes = self.streams.changes.as_ref();
        changes.is_some_and(|changes| changes.len() > 0)
            || self.log.as_ref().is_some_and(|log| log.is_awaited)
    }
}
