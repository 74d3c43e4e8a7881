//! What the hubs' logs have kept: batches that were handed over, those that a crash leaves, and what they come to.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use veche_hub::{Epoch, LogBatch, LogRecord, Publication, RestoredStream, Version};

use crate::failure::{Check, promise};

/// The logs of all workers, whose channels are different ones.
#[derive(Default)]
pub(crate) struct Disk {
    logs: Vec<Log>,
    streams: BTreeMap<String, DiskStream>,
}

#[derive(Default)]
struct Log {
    /// Handed over, and lost by a crash.
    queued: VecDeque<LogBatch>,
    /// Number of the last batch that no crash takes back, and what the hub knows of that.
    committed: u64,
    told: u64,
}

struct DiskStream {
    epoch: Epoch,
    top: u64,
    version: Option<Version>,
    publications: BTreeMap<u64, Publication>,
}

impl Disk {
    /// Empty logs of so many workers; what was kept stays.
    pub(crate) fn begin(&mut self, workers: u16) {
        self.logs = (0..workers).map(|_| Log::default()).collect();
    }

    /// A worker hands over what its turn has brought.
    pub(crate) fn take(&mut self, worker: usize, batch: LogBatch) -> Check {
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

    /// Writes the next batch of a worker; whether there was one.
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

    /// How far a worker's log has come, if its hub does not know that yet.
    pub(crate) fn take_durable(&mut self, worker: usize) -> Option<u64> {
        let log = self.logs.get_mut(worker)?;
        let has_news = log.told < log.committed;
        log.told = log.committed;
        has_news.then_some(log.committed)
    }

    /// All there is, for a process that begins.
    pub(crate) fn restored(&self) -> impl Iterator<Item = RestoredStream> {
        self.streams.iter().map(|(channel, kept)| RestoredStream {
            channel: Arc::from(channel.as_str()),
            epoch: kept.epoch,
            top: kept.top,
            version: kept.version.clone(),
            publications: kept.publications.values().cloned().collect(),
        })
    }

    /// The rules of an archive's records, but that nothing is ignored: hubs don't say what is not so.
    fn apply(&mut self, append: LogRecord) -> Check {
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
                    promise!(false, "a log hears of what was opened", "{channel}");
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
                    "a log hears of what was opened",
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
                    "a log hears of what was opened",
                    "{channel}"
                );
            }
        }
        Ok(())
    }
}
