//! The settings of an application's processes.

use std::sync::Arc;
use std::time::Duration;

use veche_calls::Databases;

/// The settings of an application's processes.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Name of the application in the configuration.
    pub name: String,
    /// The application's own options, one JSON object.
    pub options: String,
    /// The databases that handlers may call.
    pub databases: Arc<Databases>,
    /// The number of processes, at least 1.
    pub workers: u32,
    /// The number of events after which a process is replaced; 0: unlimited.
    pub jobs_max: u64,
    /// The age at which a process is replaced; `None`: unlimited.
    pub ttl: Option<Duration>,
    /// The maximum number of handshakes and requests that wait for a process.
    pub queue: usize,
    /// The longest wait of an event for a process.
    pub queue_timeout: Duration,
    /// The time limit for the start of a process, until it answers `start`.
    pub start_timeout: Duration,
    /// The time that a process has to end after a request to stop.
    pub stop_timeout: Duration,
    /// The time limit of one event.
    pub event_timeout: Duration,
    /// Time without an event after which a process is replaced; `None`: unlimited.
    pub idle_ttl: Option<Duration>,
    /// Resident memory in bytes at which a process is replaced; `None`: unlimited.
    pub rss_bytes_max: Option<u64>,
}
