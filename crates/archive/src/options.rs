//! How an archive works.

use std::time::Duration;

/// Settings of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// When the disk itself has to have what was written.
    pub fsync: FsyncPolicy,
    /// What one [`Writer`](crate::Writer) may have waiting, in bytes; 16 MiB unless told. A batch that is larger is
    /// taken when nothing else waits.
    pub queue_bytes_max: usize,
    /// How long to wait before what failed is tried again; a second unless told.
    pub retry: Duration,
    /// Which start of the machine this is, from [`boot_id`](crate::boot_id). One that is not known counts as another
    /// than the last run's.
    pub boot: Option<String>,
}

/// What "durable" means. A process that is killed loses nothing that was told to be durable under any of these, and a
/// power cut never damages what is older than what it loses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FsyncPolicy {
    /// Each commit waits for the disk: a power cut loses nothing that was told to be durable.
    EveryCommit,
    /// The disk is asked at most so often: a power cut may lose that much.
    Interval(Duration),
    /// The operating system decides: a power cut may lose what it had not yet written, some seconds or some MiB.
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
