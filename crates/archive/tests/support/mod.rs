//! Helpers of the tests: temporary folders, a plain model of the archive, and waiting.

#![allow(dead_code, reason = "each test takes what it needs")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use veche_archive::{
    AppendError, Archive, ArchiveRecord, FsyncPolicy, LoadedStream, LoadedStreams, Options,
    StoredPublication, StoredVersion, Writer,
};

/// A temporary folder of one test.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!(
            "veche-archive-{name}-{}-{number}",
            std::process::id()
        ));
        let _ = fs::remove_dir_all(&folder);
        Self(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Copies the archive's current files, as if the process had been killed.
    pub(crate) fn copy(&self, name: &str) -> Self {
        let copy = Self::new(name);
        fs::create_dir_all(&copy.0).expect("a folder");
        for file in ["history.sqlite", "history.sqlite-wal"] {
            if self.0.join(file).exists() {
                fs::copy(self.0.join(file), copy.0.join(file)).expect("a copy");
            }
        }
        copy
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The expected content, computed independently of the archive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Model(pub(crate) BTreeMap<String, LoadedStream>);

impl Model {
    pub(crate) fn of(loaded: LoadedStreams) -> Self {
        Self(
            loaded
                .map(|channel| (channel.name.to_string(), channel))
                .collect(),
        )
    }

    pub(crate) fn apply(&mut self, record: &ArchiveRecord) {
        match record {
            ArchiveRecord::Opened {
                channel,
                epoch,
                at_ms,
            } => {
                let stream = self
                    .0
                    .entry(channel.to_string())
                    .or_insert_with(|| stream(channel, *epoch, *at_ms));
                if stream.epoch != *epoch {
                    *stream = self::stream(channel, *epoch, *at_ms);
                }
            }
            ArchiveRecord::Published {
                channel,
                epoch,
                publication,
            } => {
                self.apply(&ArchiveRecord::Opened {
                    channel: Arc::clone(channel),
                    epoch: *epoch,
                    at_ms: publication.at_ms,
                });
                let stream = self.0.get_mut(&**channel).expect("just opened");
                if publication.offset > stream.top {
                    stream.top = publication.offset;
                    stream.version = publication.version.clone().or(stream.version.take());
                    stream.publications.push(publication.clone());
                }
            }
            ArchiveRecord::Trimmed { channel, below } => {
                if let Some(stream) = self.0.get_mut(&**channel) {
                    stream
                        .publications
                        .retain(|publication| publication.offset >= *below);
                }
            }
            ArchiveRecord::Cleared { channel } => {
                if let Some(stream) = self.0.get_mut(&**channel) {
                    stream.publications.clear();
                }
            }
            ArchiveRecord::Dropped { channel } => {
                self.0.remove(&**channel);
            }
        }
    }

    pub(crate) fn top(&self, channel: &str) -> u64 {
        self.0.get(channel).map_or(0, |stream| stream.top)
    }
}

fn stream(name: &Arc<str>, epoch: u64, opened_ms: u64) -> LoadedStream {
    LoadedStream {
        name: Arc::clone(name),
        epoch,
        opened_ms,
        top: 0,
        version: None,
        publications: Vec::new(),
    }
}

/// A worker that can block, unlike real ones.
pub(crate) struct Worker {
    pub(crate) writer: Writer,
    pub(crate) durable: u64,
}

impl Worker {
    /// Creates a writer that wakes the calling thread, so only this thread may wait for it.
    pub(crate) fn new(archive: &Archive) -> Self {
        let me = thread::current();
        Self {
            writer: archive.writer(move || me.unpark()),
            durable: 0,
        }
    }

    /// Submits a batch when there is room.
    pub(crate) fn append(&mut self, mut records: Vec<ArchiveRecord>) -> u64 {
        loop {
            match self.writer.append(records) {
                Ok(batch) => return batch,
                Err(AppendError::Full(again)) => {
                    records = again;
                    self.news();
                }
                Err(AppendError::Closed(_)) => panic!("the archive is closed"),
            }
        }
    }

    pub(crate) fn wait(&mut self, batch: u64) {
        while self.durable < batch {
            self.news();
        }
    }

    /// Takes the reported progress, or waits at most a second for a report.
    pub(crate) fn look(&mut self) {
        self.news();
    }

    /// Takes the reported progress; if there is none, waits at most a second for a report.
    fn news(&mut self) {
        match self.writer.take_durable() {
            Some(news) => self.durable = news.batch,
            None => thread::park_timeout(Duration::from_secs(1)),
        }
    }
}

pub(crate) fn options(fsync: FsyncPolicy) -> Options {
    Options {
        fsync,
        retry: Duration::from_millis(20),
        boot: veche_archive::boot_id(),
        ..Options::default()
    }
}

pub(crate) fn open(folder: &Folder, fsync: FsyncPolicy) -> (Archive, LoadedStreams) {
    veche_archive::open(folder.path(), &options(fsync)).expect("an archive")
}

pub(crate) fn published(
    channel: &str,
    epoch: u64,
    offset: u64,
    payload: impl Into<Bytes>,
) -> ArchiveRecord {
    let publication = StoredPublication {
        offset,
        at_ms: 1_000_000 + offset,
        kind: 2,
        payload: payload.into(),
        version: None,
        extra: None,
    };
    ArchiveRecord::Published {
        channel: channel.into(),
        epoch,
        publication,
    }
}

/// Returns batch `number` of a worker. The batch depends only on the arguments, and contains a
/// publication whose offset is the batch's number.
pub(crate) fn batch(worker: u32, number: u64, before: &Model) -> Vec<ArchiveRecord> {
    let mut random = fastrand::Rng::with_seed(u64::from(worker) << 32 | number);
    let mut model = before.clone();
    let mut records = vec![
        published(&marker(worker), 1, number, Bytes::new()),
        ArchiveRecord::Trimmed {
            channel: marker(worker).into(),
            below: number,
        },
    ];
    for _ in 0..random.usize(1..12) {
        let name = format!("w{worker}:c{}", random.u8(0..6));
        let channel: Arc<str> = name.as_str().into();
        let (epoch, top) = model
            .0
            .get(&name)
            .map_or((random.u64(..), 0), |stream| (stream.epoch, stream.top));
        let record = match random.u8(0..20) {
            0 => ArchiveRecord::Dropped { channel },
            1 => ArchiveRecord::Cleared { channel },
            2 => ArchiveRecord::Opened {
                channel,
                epoch: random.u64(..),
                at_ms: number,
            },
            3..7 => ArchiveRecord::Trimmed {
                channel,
                below: top.saturating_sub(random.u64(0..8)),
            },
            _ => {
                let version = StoredVersion {
                    number: random.u64(..),
                    epoch: random.bool().then(|| "état".into()),
                };
                let publication = StoredPublication {
                    offset: top + random.u64(1..3),
                    at_ms: random.u64(..),
                    kind: random.u8(..),
                    payload: vec![random.u8(..); random.usize(0..6_000)].into(),
                    version: (random.u8(0..4) == 0).then_some(version),
                    extra: random.bool().then(|| Bytes::from(name.clone())),
                };
                ArchiveRecord::Published {
                    channel,
                    epoch,
                    publication,
                }
            }
        };
        model.apply(&record);
        records.push(record);
    }
    records
}

pub(crate) fn marker(worker: u32) -> String {
    format!("w{worker}:marker")
}

/// Returns a worker's channels.
pub(crate) fn channels_of(model: &Model, worker: u32) -> Model {
    let prefix = format!("w{worker}:");
    Model(
        model
            .0
            .iter()
            .filter(|(name, _)| name.starts_with(&prefix))
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect(),
    )
}
