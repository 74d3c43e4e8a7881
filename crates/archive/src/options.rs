//! Options of an archive.

use std::time::Duration;

/// Options of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// When written data is synced to the disk.
    pub fsync: FsyncPolicy,
    /// Maximum bytes waiting per [`Writer`](crate::Writer). Default 16 MiB. A larger batch is accepted when nothing
    /// else waits.
    pub queue_bytes_max: usize,
    /// Delay before a failed write is retried. Default one second.
    pub retry: Duration,
    /// Identifies the current boot of the machine, from [`boot_id`](crate::boot_id). `None` counts
    /// as a different boot than that of the last run.
    pub boot: Option<String>,
}

/// The meaning of "durable". Under each policy, a killed process loses nothing that was reported as
/// durable. A power cut loses at most the latest data, and damages nothing older.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FsyncPolicy {
    /// Each commit is synced, so a power cut loses nothing that was reported as durable.
    EveryCommit,
    /// Commits are synced at this interval, so a power cut may lose the data of the last interval.
    Interval(Duration),
    /// The operating system decides when to sync, so a power cut may lose some seconds or some MiB.
    Never,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            fsync: FsyncPolicy::Interval(Duration::from_secs(1)),
            queue_bytes_max: 16 << 20,
            retry: Duration::from_secs(1),
            boot: None,
        }
    }
}
