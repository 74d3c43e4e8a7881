//! Statistics for `/metrics` and the log.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

/// Counters since the archive was opened, and its state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArchiveStats {
    /// Number of committed records.
    pub records: u64,
    /// Total size of the committed payloads and of the extra data stored with them, in bytes.
    pub bytes: u64,
    /// Number of commits, each of one group of batches.
    pub commits: u64,
    /// Number of syncs that the fsync policy requires; checkpoints sync in addition.
    pub fsyncs: u64,
    /// Number of checkpoints, each of which moved the archive's log into its tables.
    pub checkpoints: u64,
    /// Records without effect, such as an offset that was stored already.
    pub ignored: u64,
    /// Number of failed attempts to write.
    pub errors: u64,
    /// Number of bytes that wait to be committed, summed over all writers.
    pub queue_bytes: u64,
    /// Current number of streams.
    pub streams: u64,
    /// Current number of publications.
    pub publications: u64,
    /// Size of the files in bytes, at the last maintenance step.
    pub file_bytes: u64,
    /// Whether the last attempt to write failed and is being retried.
    pub is_failing: bool,
    /// The last error, even if later writes succeeded.
    pub last_error: Option<String>,
}

/// The live counters: written by the archive's thread, read by others.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) records: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) commits: AtomicU64,
    pub(crate) fsyncs: AtomicU64,
    pub(crate) checkpoints: AtomicU64,
    pub(crate) ignored: AtomicU64,
    pub(crate) errors: AtomicU64,
    pub(crate) streams: AtomicU64,
    pub(crate) publications: AtomicU64,
    pub(crate) file_bytes: AtomicU64,
    pub(crate) is_failing: AtomicBool,
    pub(crate) last_error: Mutex<Option<String>>,
}

impl Counters {
    pub(crate) fn failed(&self, error: &dyn std::error::Error) {
        self.errors.fetch_add(1, Relaxed);
        *self.last_error.lock() = Some(error.to_string());
        self.is_failing.store(true, Relaxed);
    }

    pub(crate) fn snapshot(&self, queue_bytes: u64) -> ArchiveStats {
        ArchiveStats {
            records: self.records.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            commits: self.commits.load(Relaxed),
            fsyncs: self.fsyncs.load(Relaxed),
            checkpoints: self.checkpoints.load(Relaxed),
            ignored: self.ignored.load(Relaxed),
            errors: self.errors.load(Relaxed),
            queue_bytes,
            streams: self.streams.load(Relaxed),
            publications: self.publications.load(Relaxed),
            file_bytes: self.file_bytes.load(Relaxed),
            is_failing: self.is_failing.load(Relaxed),
            last_error: self.last_error.lock().clone(),
        }
    }
}
