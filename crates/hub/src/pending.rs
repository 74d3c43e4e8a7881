//! What waits for the log: how it gets its place, and how it goes on. Why, and in which order, says `log.rs`.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::log::Append;
use crate::payload::{Ordered, Source};
use crate::publish::{Blocked, Origin};
use crate::{Answer, Event, Hub, Namespaces, Outlet, Publication, PublishOptions, Published};

/// So much may wait for the log: publications, and bytes of their payloads. The one that reaches it is still taken.
const PENDING_MAX: usize = 8192;
const PENDING_BYTES_MAX: usize = 8 << 20;

/// As home: what the next batch has of publications, and what waits for batches.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// For the next batch: publications, and removals of those before them.
    pub(crate) published: Vec<Append>,
    /// Somebody waits for the next batch, whatever is in it.
    pub(crate) is_awaited: bool,
    /// The last batch that was handed over.
    pub(crate) taken: u64,
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
    Feed(Box<Publication>, Option<Arc<PublishOptions>>),
    /// A publication was stale: its publisher is told where the channel is.
    Stale(Option<Arc<PublishOptions>>),
    /// A publication was there before: its publisher is told what the first was.
    Repeated(Arc<PublishOptions>, Published),
    /// The history was removed.
    Removed,
}

impl Log {
    pub(crate) fn len(&self) -> usize {
        self.pending.len() + self.ready.len()
    }

    /// Bytes of what waits, in whichever way.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// What waits for room alone.
    pub(crate) fn ready(&self) -> usize {
        self.ready.len()
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

    /// Whether the log takes no more.
    pub(crate) fn is_log_full(&self) -> bool {
        self.log.as_ref().is_some_and(|log| log.is_full())
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
            self.announcements.look_again();
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
    #[inline]
    pub(crate) fn blocked_by_log(&self, index: u32, is_passing: bool) -> Option<Blocked> {
        let log = self.log.as_deref()?;
        self.blocked_by(log, index, is_passing)
    }

    #[inline(never)]
    fn blocked_by(&self, log: &Log, index: u32, is_passing: bool) -> Option<Blocked> {
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

    /// Home: whether publications of this channel may have to wait for the log.
    #[inline(never)]
    pub(crate) fn is_logged(&self, index: u32) -> bool {
        remembers(&self.namespaces, &self.channels[index].name) || self.pending_of(index) > 0
    }

    /// Home: gives a publication of such a channel its place. `None`: its answer comes when the log has it.
    #[inline(never)]
    pub(crate) fn order_logged(
        &mut self,
        index: u32,
        mut payload: Source<'_>,
        terms: Option<&Arc<PublishOptions>>,
        origin: Origin,
        outlet: &mut impl Outlet,
    ) -> Option<Published> {
        let is_behind = self.pending_of(index) > 0;
        let is_passing = terms.is_some_and(|terms| terms.is_passing);
        let name = &self.channels[index].name;
        let key = terms.and_then(|terms| terms.idempotency_key.as_deref());
        if let Some((terms, key)) = terms.zip(key)
            && let Some(first) = self.recent.find(name, key, self.now.mono_ms)
        {
            if !is_behind {
                return Some(first);
            }
            let task = Task::Repeated(Arc::clone(terms), first);
            self.wait_behind(index, task, origin);
            return None;
        }
        if is_passing && !is_behind {
            return Some(self.order_now(index, payload, terms.map(|terms| &**terms), outlet));
        }
        let publication = Publication {
            payload: payload.keep(),
            position: None,
            at_ms: self.now.wall_ms,
            event: Event::Published,
            info: terms.and_then(|terms| terms.info.clone()),
        };
        let mut published = Published::default();
        if is_passing {
            let task = Task::Feed(Box::new(publication), terms.cloned());
            self.wait_behind(index, task, origin);
        } else {
            let stream = self.stream_of(index);
            let version = terms.and_then(|terms| terms.version.as_ref());
            let is_stale =
                version.is_some_and(|version| !self.streams.get_mut(stream).take_version(version));
            if !is_stale {
                published = self.append(index, publication, terms, origin);
            } else if is_behind {
                self.wait_behind(index, Task::Stale(terms.cloned()), origin);
            } else {
                published.position = Some(self.streams.get(stream).position());
                published.is_skipped = true;
                self.keep_key(index, terms.map(|terms| &**terms), published);
                return Some(published);
            }
        }
        // Those with the same key come behind it.
        self.keep_key(index, terms.map(|terms| &**terms), published);
        None
    }

    /// What became of a publication, for those that repeat it.
    fn keep_key(&mut self, index: u32, terms: Option<&PublishOptions>, published: Published) {
        if let Some(key) = terms.and_then(|terms| terms.idempotency_key.as_deref()) {
            let name = &self.channels[index].name;
            self.recent.keep(name, key, published, self.now.mono_ms);
        }
    }

    /// Home: a publication that is to be kept waits for the log.
    fn append(
        &mut self,
        index: u32,
        mut publication: Publication,
        terms: Option<&Arc<PublishOptions>>,
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
            position,
            ..Published::default()
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
        // What is ordered and not fed goes with the batch that the answer waits for; the rest went already.
        if let Some(below) = self.streams.below_pending(stream)
            && let Some(log) = &mut self.log
        {
            let channel = Arc::clone(&self.channels[index].name);
            log.published.push(Append::Trimmed { channel, below });
        }
        self.wait_behind(index, Task::Removed, origin);
        true
    }

    /// What has waited is done.
    fn go_on(&mut self, pending: Pending, outlet: &mut impl Outlet) {
        let index = pending.channel;
        let stream = self.stream_of(index);
        let (origin, now_ms) = (pending.origin, self.age_ms());
        let mut is_kept = false;
        let mut previous = None;
        let published = match pending.task {
            Task::Feed(publication, terms) => {
                let position = publication.position;
                is_kept = position.is_some();
                if let Some(log) = &mut self.log {
                    log.bytes -= publication.payload.bytes.len();
                }
                if is_kept {
                    let namespace = self.namespaces.of(&self.channels[index].name);
                    previous = self.previous(stream, namespace.differences, terms.as_deref());
                    let kept = (publication.payload.clone(), publication.info.clone());
                    let at_ms = publication.at_ms;
                    let history = namespace.history.unwrap_or(NO_HISTORY);
                    let found = self.streams.append(stream, kept, at_ms, &history, now_ms);
                    debug_assert_eq!(Some(found), position);
                }
                let ordered = Ordered {
                    previous,
                    ..(*publication).into()
                };
                let handed = self.feed(index, ordered, outlet);
                let published = Published {
                    handed,
                    position,
                    is_skipped: false,
                };
                self.keep_key(index, terms.as_deref(), published);
                Some(published)
            }
            Task::Stale(terms) => {
                let published = Published {
                    handed: 0,
                    position: Some(self.streams.get(stream).position()),
                    is_skipped: true,
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
            Task::Removed => {
                // What was ordered before and has been fed meanwhile goes too.
                self.streams.clear(stream);
                None
            }
        };
        self.streams.waited(stream, is_kept);
        self.channels[index].waiting -= 1;
        self.channels.release(index);
        self.keep_to_budget();
        let answer = match published {
            Some(published) => Answer::Published(published),
            None => Answer::HistoryRemoved(Ok(())),
        };
        self.reply(origin, answer, outlet);
    }
}

/// Of a channel that does not remember any more.
const NO_HISTORY: crate::History = crate::History {
    size: 1,
    ttl_ms: 0,
    position_ttl_ms: 0,
    recovery: crate::Recovery::Missed,
    budget: crate::Budget::COMMON,
};

pub(crate) fn remembers(namespaces: &Namespaces, channel: &str) -> bool {
    namespaces.of(channel).history.is_some()
}
