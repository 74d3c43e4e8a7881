//! What the archive counts, for `/metrics` and the log.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

/// Counters since the archive was opened, and how it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArchiveStats {
    /// Records that were committed.
    pub records: u64,
    /// Payloads and extras of publications that were committed, in bytes.
    pub bytes: u64,
    /// Groups that were committed.
    pub commits: u64,
    /// Times that the policy had the disk asked; checkpoints ask besides.
    pub fsyncs: u64,
    /// Times that the log was moved into the tables.
    pub checkpoints: u64,
    /// Records that changed nothing, such as an offset that was there already.
    pub ignored: u64,
    /// Attempts that failed.
    pub errors: u64,
    /// What waits for its commit, of all writers, in bytes.
    pub queue_bytes: u64,
    /// Streams there are.
    pub streams: u64,
    /// Publications there are.
    pub publications: u64,
    /// The size of the files, in bytes, as of the last checkpoint.
    pub file_bytes: u64,
    /// The last attempt to write failed; it is tried again.
    pub is_failing: bool,
    /// The last error there was, of now or before.
    pub last_error: Option<String>,
}

/// The same, while it is counted: the archive's thread writes, others read.
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
