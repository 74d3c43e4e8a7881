//! Publications that a log has to have before anybody hears of them.
//!
//! Where hubs have a log ([`Hub::keep_log`]), a home takes a publication of a channel that remembers in two steps. It
//! is *ordered*: it gets its offset, goes into the next [`Batch`], and waits here. When the log says that the batch is
//! durable ([`Hub::durable`]), it is *fed*: the channel's stream keeps it, the subscribers and the publisher hear of it,
//! and the credit by which it came goes back.
//!
//! So a stream is what has been fed, and nothing else. Who joins gets its position and what is in it, and then, in
//! order, what waited when he came: no hole, no overlap. Nobody ever sees an offset that a crash can take back.
//!
//! What waits is in the one order of the home. What can't be fed at once, for lack of credit, holds back what is
//! behind it in its channel, and nothing else. Whatever else would tell of the channel's state joins the order while
//! publications of the channel wait: those that are not kept, answers to stale and to repeated ones, the removal of the
//! history.
//!
//! When too much waits, publications are refused or stall like those without credit: a log that is slow or failing
//! pauses their sources.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::publish::{Blocked, Origin};
use crate::stream::{Stream, Version};
use crate::{
    Answer, ChannelName, Epoch, Hub, NameError, Namespaces, Outlet, Publication, Published, Terms,
};

/// So much may wait for the log: publications, and bytes of their payloads. The one that reaches it is still taken.
const PENDING_MAX: usize = 8192;
const PENDING_BYTES_MAX: usize = 8 << 20;

/// What nobody waits for is handed over with the next batch, or by itself when it is so much.
const CHANGES_MAX: usize = 1024;

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

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// For the next batch.
    published: Vec<Append>,
    /// Somebody waits for the next batch, whatever is in it.
    is_awaited: bool,
    /// The last batch that was handed over.
    taken: u64,
    durable: u64,
    /// What waits for a batch, in order.
    pending: VecDeque<Pending>,
    /// What is durable and waits for room, in order.
    ready: VecDeque<Pending>,
    /// Of the publications in both.
    bytes: usize,
}

/// Something that waits for a batch to be durable.
#[derive(Debug)]
struct Pending {
    channel: u32,
    batch: u64,
    task: Task,
    origin: Origin,
}

/// What is to be done then.
#[derive(Debug)]
pub(crate) enum Task {
    /// It is fed, and kept if it has a position.
    Feed(Box<Publication>, Option<Arc<Terms>>),
    /// A publication was stale: its publisher is told where the channel is.
    Stale(Option<Arc<Terms>>),
    /// A publication was there before: its publisher is told what the first was.
    Repeated(Arc<Terms>, Published),
    /// The history was removed.
    Removed,
}

impl Changes {
    fn len(&self) -> usize {
        self.streams.len() + self.dropped.len()
    }
}

impl Log {
    pub(crate) fn len(&self) -> usize {
        self.pending.len() + self.ready.len()
    }

    fn is_full(&self) -> bool {
        self.len() >= PENDING_MAX || self.bytes >= PENDING_BYTES_MAX
    }

    fn push(&mut self, channel: u32, task: Task, origin: Origin) {
        let is_awaited = match &task {
            Task::Feed(publication, _) => {
                self.bytes += publication.payload.bytes.len();
                publication.position.is_some()
            }
            Task::Removed => true,
            Task::Stale(_) | Task::Repeated(..) => false,
        };
        self.is_awaited |= is_awaited;
        let last = self.pending.back().map(|last| last.batch);
        let batch = is_awaited.then_some(self.taken + 1).or(last);
        let (queue, batch) = match batch {
            Some(batch) => (&mut self.pending, batch),
            // All that it is behind of is durable.
            None => (&mut self.ready, self.durable),
        };
        queue.push_back(Pending {
            channel,
            batch,
            task,
            origin,
        });
    }
}

impl Hub {
    /// From now on what channels remember is handed out as batches, and waits until it is durable. To be called before
    /// anything else.
    pub fn keep_log(&mut self) {
        self.log = Some(Box::default());
        self.streams.changes = Some(Box::default());
    }

    /// Goes on with a stream of a log; false if its channel does not remember any more, which the log will hear. To be
    /// called before anybody subscribes or publishes, after [`set_history`](Self::set_history) and
    /// [`set_now`](Self::set_now), for channels whose [home](Self::home_of) is here; those that were published to
    /// longest ago first, for they give first where there is more than fits.
    ///
    /// # Errors
    /// That is no name of a channel. Nothing is done.
    pub fn restore(&mut self, restored: Restored) -> Result<bool, NameError> {
        let name = ChannelName::new(&restored.channel)?;
        debug_assert_eq!(self.home_of(name), self.me, "all workers have one seed");
        let channel = Arc::clone(&restored.channel);
        let Some(history) = self.namespaces.of(&channel).history else {
            if let Some(changes) = &mut self.streams.changes {
                changes.dropped.push(channel);
            }
            return Ok(false);
        };
        let index = self.entry(self.channels.hash(&channel), &channel);
        if self.channels[index].home.stream().is_some() {
            debug_assert!(false, "a channel has one stream");
            return Ok(false);
        }
        let now_ms = self.now.wall_ms;
        let stream = Stream::restored(restored, now_ms);
        let stream = self
            .streams
            .restore(index, channel.len(), stream, &history, now_ms);
        self.channels[index].home = crate::channel::Home::with_stream(stream);
        self.keep_to_budget();
        Ok(true)
    }

    /// What is to be made durable next; to be called once at the end of a turn. With `is_all` also what nobody waits
    /// for, such as what channels let go of: about once a second.
    pub fn take_batch(&mut self, is_all: bool) -> Option<Batch> {
        let log = self.log.as_mut()?;
        let changes = self.streams.changes.as_mut()?;
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
            let Some((channel, was_known)) = self.streams.told(index) else {
                continue;
            };
            let channel = Arc::clone(&self.channels[channel].name);
            let stream = self.streams.get(index);
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
        let log = self.log.as_mut()?;
        log.taken += 1;
        Some(Batch {
            number: log.taken,
            appends,
        })
    }

    /// Whether [`take_batch`](Self::take_batch) would have something, with `is_all`.
    pub fn has_changes(&self) -> bool {
        let changes = self.streams.changes.as_ref();
        changes.is_some_and(|changes| changes.len() > 0)
            || self.log.as_ref().is_some_and(|log| log.is_awaited)
    }

    /// This batch and all before it are durable: what has waited for them goes on.
    pub fn durable(&mut self, batch: u64, outlet: &mut impl Outlet) {
        let Some(log) = &mut self.log else {
            return;
        };
        debug_assert!(batch <= log.taken, "it was never handed over");
        log.durable = log.durable.max(batch);
        let count = log.pending.partition_point(|one| one.batch <= log.durable);
        log.ready.extend(log.pending.drain(..count));
        self.retry_stalled(outlet);
    }

    /// Whether something is durable and waits for room.
    pub(crate) fn has_ready(&self) -> bool {
        self.log.as_ref().is_some_and(|log| !log.ready.is_empty())
    }

    /// One pass over all that is durable, oldest first.
    pub(crate) fn retry_ready(&mut self, outlet: &mut impl Outlet) {
        for _ in 0..self.log.as_ref().map_or(0, |log| log.ready.len()) {
            let Some(pending) = self.log.as_mut().and_then(|log| log.ready.pop_front()) else {
                break;
            };
            // As with those that are stalled: within a pass room only shrinks, so nothing overtakes in its channel.
            if let Some(blocked) = self.blocked_by_room(pending.channel, outlet) {
                self.reserve(pending.channel, blocked);
                if let Some(log) = &mut self.log {
                    log.ready.push_back(pending);
                }
                continue;
            }
            self.go_on(pending, outlet);
        }
    }

    /// Home: how much of this channel waits.
    pub(crate) fn pending_of(&self, index: u32) -> u32 {
        if self.log.is_none() {
            return 0;
        }
        let stream = self.channels[index].home.stream();
        stream.map_or(0, |stream| self.streams.pending(stream))
    }

    /// Home: whether the log keeps a publication from being ordered. `is_passing`: it is not kept.
    pub(crate) fn blocked_by_log(&self, index: u32, is_passing: bool) -> Option<Blocked> {
        let log = self.log.as_ref()?;
        let pending = self.pending_of(index);
        if pending == 0 && !log.is_full() {
            return None;
        }
        let has_history = remembers(&self.namespaces, &self.channels[index].name);
        if !has_history {
            // It does so no more: its stream ends with the first publication behind those that wait.
            return (pending > 0).then_some(Blocked::Log);
        }
        let waits = pending > 0 || !is_passing;
        (log.is_full() && waits).then_some(Blocked::Log)
    }

    /// Home: a publication that is to be kept waits for the log.
    pub(crate) fn append(
        &mut self,
        index: u32,
        mut publication: Publication,
        terms: Option<&Arc<Terms>>,
        origin: Origin,
    ) -> Published {
        let stream = self.stream_of(index);
        let position = self.streams.wait(stream, true);
        publication.position = position;
        let channel = &mut self.channels[index];
        channel.waiting += 1;
        if let Some(log) = &mut self.log {
            log.published.push(Append::Published {
                channel: Arc::clone(&channel.name),
                publication: publication.clone(),
                version: terms.and_then(|terms| terms.version.clone()),
            });
            let task = Task::Feed(Box::new(publication), terms.cloned());
            log.push(index, task, origin);
        }
        Published {
            handed: 0,
            position,
        }
    }

    /// Home: something has its place behind what waits of its channel.
    pub(crate) fn wait_behind(&mut self, index: u32, task: Task, origin: Origin) {
        let stream = self.stream_of(index);
        self.streams.wait(stream, false);
        self.channels[index].waiting += 1;
        if let Some(log) = &mut self.log {
            log.push(index, task, origin);
        }
    }

    /// Home: the history was removed, and whoever asked for it is told when the log has it. False if there is no log.
    pub(crate) fn wait_for_removal(&mut self, channel: &str, stream: u32, origin: Origin) -> bool {
        let Some(index) = self.find(channel).filter(|_| self.log.is_some()) else {
            return false;
        };
        debug_assert_eq!(self.channels[index].home.stream(), Some(stream));
        self.wait_behind(index, Task::Removed, origin);
        true
    }

    /// What has waited is done.
    fn go_on(&mut self, pending: Pending, outlet: &mut impl Outlet) {
        let index = pending.channel;
        let stream = self.stream_of(index);
        let (origin, now_ms) = (pending.origin, self.now.wall_ms);
        let mut is_kept = false;
        let published = match pending.task {
            Task::Feed(publication, terms) => {
                let position = publication.position;
                is_kept = position.is_some();
                if let Some(log) = &mut self.log {
                    log.bytes -= publication.payload.bytes.len();
                }
                if is_kept {
                    let history = self.namespaces.of(&self.channels[index].name).history;
                    let kept = (publication.payload.clone(), publication.info.clone());
                    let at_ms = publication.at_ms;
                    let history = history.unwrap_or(NO_HISTORY);
                    let found = self.streams.append(stream, kept, at_ms, &history, now_ms);
                    debug_assert_eq!(Some(found), position);
                }
                let handed = self.feed(index, (*publication).into(), outlet);
                let published = Published { handed, position };
                self.keep_key(index, terms.as_deref(), published);
                Some(published)
            }
            Task::Stale(terms) => {
                let published = Published {
                    handed: 0,
                    position: Some(self.streams.get(stream).position()),
                };
                self.keep_key(index, terms.as_deref(), published);
                Some(published)
            }
            Task::Repeated(terms, first) => {
                let name = &self.channels[index].name;
                let key = terms.idempotency_key.as_deref().unwrap_or_default();
                let found = self.recent.find(name, key, self.now.mono_ms);
                Some(found.unwrap_or(first))
            }
            Task::Removed => None,
        };
        self.streams.waited(stream, is_kept);
        self.channels[index].waiting -= 1;
        self.channels.release(index);
        self.keep_to_budget();
        match published {
            Some(published) => self.published(origin, published, outlet),
            None => self.reply(origin, Answer::HistoryRemoved(Ok(())), outlet),
        }
    }
}

/// Of a channel that does not remember any more.
const NO_HISTORY: crate::History = crate::History {
    size: 1,
    ttl_ms: 0,
    position_ttl_ms: 0,
    recovery: crate::Recovery::Missed,
};

fn remembers(namespaces: &Namespaces, channel: &str) -> bool {
    namespaces.of(channel).history.is_some()
}
