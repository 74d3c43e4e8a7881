//! The logs of the hubs: queued batches, batches that survive a crash, and the stored streams.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use veche_hub::{Epoch, LogBatch, LogRecord, Publication, RestoredStream, Version};

/// The logs of all workers of a node. Each channel is in the log of one worker only.
#[derive(Default)]
pub(crate) struct Disk {
    pub(crate) logs: Vec<Log>,
    pub(crate) streams: BTreeMap<String, Kept>,
}

/// The log of one worker.
#[derive(Default)]
pub(crate) struct Log {
    /// The batches that are not written yet and would be lost in a crash.
    queued: VecDeque<LogBatch>,
    /// The number of the last batch that survives a crash.
    pub(crate) committed: u64,
    /// The number of the last batch that was reported to the hub as durable.
    pub(crate) reported: u64,
}

pub(crate) struct Kept {
    pub(crate) epoch: Epoch,
    pub(crate) top: u64,
    version: Option<Version>,
    pub(crate) publications: BTreeMap<u64, Publication>,
}

impl Disk {
    /// Starts a new process with empty queues. The stored streams are kept.
    pub(crate) fn begin(&mut self, workers: u16) {
        self.logs = (0..workers).map(|_| Log::default()).collect();
    }

    pub(crate) fn take(&mut self, worker: usize, batch: LogBatch) {
        let log = &mut self.logs[worker];
        let last = log.queued.back().map_or(log.committed, |last| last.number);
        assert_eq!(batch.number, last + 1, "batches are numbered");
        log.queued.push_back(batch);
    }

    /// Writes the next queued batch of a worker. Returns `false` if there is none.
    pub(crate) fn commit(&mut self, worker: usize) -> bool {
        let log = &mut self.logs[worker];
        let Some(batch) = log.queued.pop_front() else {
            return false;
        };
        log.committed = batch.number;
        for append in batch.records {
            self.apply(append);
        }
        true
    }

    /// Applies a record by the rules of `veche_archive::ArchiveRecord`. No record is ignored as invalid, because hubs
    /// send only valid ones.
    fn apply(&mut self, append: LogRecord) {
        match append {
            LogRecord::Opened { channel, epoch, .. } => {
                let kept = Kept {
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
                let kept = self.streams.get_mut(&*channel).expect("it was opened");
                let position = publication.position.expect("it is kept");
                assert_eq!(position.epoch, kept.epoch);
                assert_eq!(position.offset, kept.top + 1, "{channel} has no gaps");
                kept.top = position.offset;
                if version.is_some() {
                    kept.version = version;
                }
                kept.publications.insert(position.offset, publication);
            }
            LogRecord::Trimmed { channel, below } => {
                let kept = self.streams.get_mut(&*channel).expect("it was opened");
                assert!(below <= kept.top + 1);
                kept.publications = kept.publications.split_off(&below);
            }
            LogRecord::Dropped { channel } => {
                let kept = self.streams.remove(&*channel);
                assert!(kept.is_some(), "{channel} was opened");
            }
        }
    }

    /// Returns all stored streams, for a process that starts.
    pub(crate) fn restored(&self) -> impl Iterator<Item = RestoredStream> {
        self.streams.iter().map(|(channel, kept)| RestoredStream {
            channel: Arc::from(channel.as_str()),
            epoch: kept.epoch,
            top: kept.top,
            version: kept.version.clone(),
            publications: kept.publications.values().cloned().collect(),
        })
    }

    pub(crate) fn is_quiet(&self) -> bool {
        self.logs
            .iter()
            .all(|log| log.queued.is_empty() && log.reported == log.committed)
    }
}
