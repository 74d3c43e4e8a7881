//! The hubs' logs on disk: queued batches, those that survive a crash, and the resulting streams.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use veche_hub::{Epoch, LogBatch, LogRecord, Publication, RestoredStream, Version};

use crate::failure::{PromiseResult, promise};

/// The logs of all workers, whose channels are disjoint.
#[derive(Default)]
pub(crate) struct Disk {
    logs: Vec<Log>,
    streams: BTreeMap<String, DiskStream>,
}

#[derive(Default)]
struct Log {
    /// Batches that are queued and not written yet, which are lost in a crash.
    queued: VecDeque<LogBatch>,
    /// The number of the last batch that survives a crash.
    committed: u64,
    /// The number of the last batch reported to the hub.
    reported: u64,
}

struct DiskStream {
    epoch: Epoch,
    top: u64,
    version: Option<Version>,
    publications: BTreeMap<u64, Publication>,
}

impl Disk {
    /// Starts empty logs for a new process; stored streams stay.
    pub(crate) fn begin(&mut self, workers: u16) {
        self.logs = (0..workers).map(|_| Log::default()).collect();
    }

    /// Queues the batch of a worker's turn.
    pub(crate) fn take(&mut self, worker: usize, batch: LogBatch) -> PromiseResult {
        let log = &mut self.logs[worker];
        let last = log.queued.back().map_or(log.committed, |last| last.number);
        let number = batch.number;
        promise!(
            number == last + 1,
            "batches are numbered",
            "{number} behind {last}"
        );
        log.queued.push_back(batch);
        Ok(())
    }

    /// Writes the next batch of a worker. Returns whether there was one.
    pub(crate) fn commit(&mut self, worker: usize) -> Result<bool, crate::Failure> {
        let log = &mut self.logs[worker];
        let Some(batch) = log.queued.pop_front() else {
            return Ok(false);
        };
        log.committed = batch.number;
        for append in batch.records {
            self.apply(append)?;
        }
        Ok(true)
    }

    /// Returns the number of the last durable batch of a worker, if it has changed since the last
    /// call.
    pub(crate) fn take_durable(&mut self, worker: usize) -> Option<u64> {
        let log = self.logs.get_mut(worker)?;
        let has_news = log.reported < log.committed;
        log.reported = log.committed;
        has_news.then_some(log.committed)
    }

    /// Returns all streams for a process that starts.
    pub(crate) fn restored(&self) -> impl Iterator<Item = RestoredStream> {
        self.streams.iter().map(|(channel, kept)| RestoredStream {
            channel: Arc::from(channel.as_str()),
            epoch: kept.epoch,
            top: kept.top,
            version: kept.version.clone(),
            publications: kept.publications.values().cloned().collect(),
        })
    }

    /// Applies a record by the rules of the archive. No record may be invalid, since hubs send only
    /// valid ones.
    fn apply(&mut self, append: LogRecord) -> PromiseResult {
        match append {
            LogRecord::Opened { channel, epoch, .. } => {
                let kept = DiskStream {
                    epoch,
                    top: 0,
                    version: None,
                    publications: BTreeMap::new(),
                };
                self.streams.insert(channel.to_string(), kept);
            }
            LogRecord::Published {
                channel,
                publication,
                version,
            } => {
                let kept = self.streams.get_mut(&*channel);
                let (Some(kept), Some(position)) = (kept, publication.position) else {
                    promise!(
                        false,
                        "a log only gets records of open streams",
                        "{channel}"
                    );
                    return Ok(());
                };
                promise!(
                    position.epoch == kept.epoch && position.offset == kept.top + 1,
                    "a log has no gap",
                    "{channel}: {position} behind {}:{}",
                    kept.epoch,
                    kept.top
                );
                kept.top = position.offset;
                if version.is_some() {
                    kept.version = version;
                }
                kept.publications.insert(position.offset, publication);
            }
            LogRecord::Trimmed { channel, below } => {
                let kept = self.streams.get_mut(&*channel);
                promise!(
                    kept.is_some(),
                    "a log only gets records of open streams",
                    "{channel}"
                );
                if let Some(kept) = kept {
                    kept.publications = kept.publications.split_off(&below);
                }
            }
            LogRecord::Dropped { channel } => {
                let kept = self.streams.remove(&*channel);
                promise!(
                    kept.is_some(),
                    "a log only gets records of open streams",
                    "{channel}"
                );
            }
        }
        Ok(())
    }
}
