//! Channel history on disk: opened and loaded into the hubs before the server is ready, written while the server runs,
//! and closed when the server ends.
//!
//! Storage is in `veche-archive`, and the queue in the hub (`crates/hub/src/log.rs`); `records` converts between their
//! types, and each worker transfers batches (`worker/history.rs`).

mod records;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tracing::{error, info, warn};
use veche_archive::{Archive, ArchiveStats, Error, LoadedStreams, Options, Warning, Writer};
use veche_clock::now;
use veche_config::{Fsync, HistoryStore};
use veche_hub::{ChannelName, Hub};

#[cfg(test)]
pub(crate) use records::batch_of;
pub(crate) use records::records_of;

/// How long to wait for another process that has locked the folder and is about to end. A process whose supervisor was
/// killed drains for two seconds, and then gives its clients two more seconds to answer close frames. Even after the
/// process has ended, a child that it was just starting may hold a duplicate of the lock for a moment.
const LOCK_WAIT: Duration = Duration::from_secs(8);
const LOCK_LOOK: Duration = Duration::from_millis(20);

/// The interval of checking the archive's state.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Maximum number of warnings that are logged individually when the archive is opened.
const WARNINGS_MAX: usize = 20;

/// The process's archive, if it has one.
#[derive(Debug, Default)]
pub(crate) struct HistoryArchive {
    archive: Mutex<Option<Archive>>,
    /// Whether there is an archive.
    is_on: bool,
    is_closing: AtomicBool,
    /// Whether the log's latest message about the history says that it can't be written.
    was_failing: AtomicBool,
}

impl HistoryArchive {
    /// Opens the configured folder and loads the channels of each hub. The namespaces and the time of all hubs must
    /// have been set before.
    ///
    /// # Errors
    /// The archive can't be opened, so the server must not start. The text of the error is one line.
    pub(crate) fn begin(
        store: Option<&HistoryStore>,
        boot: Option<String>,
        hubs: &mut [Hub],
    ) -> Result<Self, String> {
        let Some(store) = store else {
            return Ok(Self::default());
        };
        let began = now();
        let (archive, loaded) = open(store, boot).map_err(|error| format!("[history]: {error}"))?;
        log_loaded(loaded.warnings());
        let stored = (loaded.len(), loaded.publications());
        for hub in &mut *hubs {
            hub.enable_log();
        }
        restore(loaded, hubs);
        let counts = hubs.iter().map(Hub::gauges);
        let streams: u32 = counts.map(|counts| counts.streams).sum();
        info!(
            path = %store.path.display(),
            streams,
            stored_streams = stored.0,
            stored_publications = stored.1,
            ms = (now() - began).as_millis() as u64,
            "history was restored"
        );
        Ok(Self {
            archive: Mutex::new(Some(archive)),
            is_on: true,
            ..Self::default()
        })
    }

    /// Returns a worker's writer; `None` without an open archive. `wake` is called whenever writes become durable.
    pub(crate) fn writer(&self, wake: impl Fn() + Send + Sync + 'static) -> Option<Writer> {
        let archive = self.archive.lock();
        archive.as_ref().map(|archive| archive.writer(wake))
    }

    /// Returns the counters, all zero without an archive.
    pub(crate) fn stats(&self) -> ArchiveStats {
        if !self.is_on {
            return ArchiveStats::default();
        }
        let archive = self.archive.lock();
        archive.as_ref().map(Archive::stats).unwrap_or_default()
    }

    /// Returns whether the archive is closing or closed.
    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing.load(Relaxed)
    }

    /// Logs when writes to the archive begin to fail, and when they succeed again. Returns when
    /// this method must be called next; `None` without an open archive.
    pub(crate) fn look(&self) -> Option<Instant> {
        if !self.is_on || self.is_closing() {
            return None;
        }
        let stats = self.stats();
        if self.was_failing.swap(stats.is_failing, Relaxed) != stats.is_failing {
            match stats.is_failing {
                true => error!(
                    error = stats.last_error.unwrap_or_default(),
                    "history can't be written; publications to channels with history wait until it can be written"
                ),
                false => info!("history can be written again"),
            }
        }
        Some(now() + LOOK_EVERY)
    }

    /// Writes pending records and closes the archive. A failure is only logged, since it can lose only data that was
    /// never acknowledged.
    pub(crate) fn close(&self) {
        self.is_closing.store(true, Relaxed);
        let Some(archive) = self.archive.lock().take() else {
            return;
        };
        if let Err(error) = archive.close() {
            warn!(%error, "history was not closed cleanly");
        }
    }
}

fn open(store: &HistoryStore, boot: Option<String>) -> Result<(Archive, LoadedStreams), Error> {
    let options = Options {
        fsync: match store.fsync {
            Fsync::Commit => veche_archive::FsyncPolicy::EveryCommit,
            Fsync::Interval(every) => veche_archive::FsyncPolicy::Interval(every),
            Fsync::Never => veche_archive::FsyncPolicy::Never,
        },
        boot,
        ..Options::default()
    };
    let deadline = now() + LOCK_WAIT;
    loop {
        return match veche_archive::open(&store.path, &options) {
            Err(Error::InUse { .. }) if now() < deadline => {
                std::thread::sleep(LOCK_LOOK);
                continue;
            }
            Err(Error::Damaged { reason, .. }) => reset(&store.path, &options, &reason),
            other => other,
        };
    }
}

/// Moves unreadable files aside for inspection and opens a new archive.
fn reset(path: &Path, options: &Options, reason: &str) -> Result<(Archive, LoadedStreams), Error> {
    let aside = veche_archive::set_aside(path)?;
    error!(
        reason,
        aside = %aside.display(),
        "history is damaged and was set aside, so channels start with new epochs"
    );
    veche_archive::open(path, options)
}

fn log_loaded(warnings: &[Warning]) {
    for warning in warnings.iter().take(WARNINGS_MAX) {
        warn!("history: {warning}");
    }
    if let more @ 1.. = warnings.len().saturating_sub(WARNINGS_MAX) {
        warn!(more, "history: further warnings about damage were left out");
    }
}

/// Loads the channels into their hubs, starting with the channel whose last publication is oldest:
/// of channels of equal size, a hub evicts the one loaded first.
fn restore(loaded: LoadedStreams, hubs: &mut [Hub]) {
    let mut channels: Vec<_> = loaded.collect();
    channels.sort_by_key(|channel| channel.publications.last().map_or(0, |last| last.at_ms));
    for channel in channels {
        let Ok(name) = ChannelName::new(&channel.name) else {
            warn!(channel = ?channel.name, "history: skipped a channel whose name is not valid");
            continue;
        };
        let home = usize::from(hubs[0].home_of(name).0);
        let restored = hubs[home].restore(records::restored(channel));
        debug_assert!(restored.is_ok(), "the channel's name was checked before");
    }
}
