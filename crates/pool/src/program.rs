//! An application's configuration, and the pool that runs it.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use veche_calls::Databases;

use crate::figures::PoolFigures;
use crate::manager;
use crate::shared::Shared;

/// An application's settings of its processes.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Name of the application in the configuration.
    pub name: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The working directory of the processes.
    pub folder: PathBuf,
    /// The application's own options, one JSON object.
    pub options: String,
    /// The databases that handlers may call.
    pub databases: Arc<Databases>,
    /// The number of processes, at least 1.
    pub workers: u32,
    /// The number of events after which a process is replaced; 0: unlimited.
    pub jobs_max: u64,
    /// The age at which a process is replaced.
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
    /// Time without an event after which a process is replaced.
    pub idle_ttl: Option<Duration>,
    /// Resident memory in bytes at which a process is replaced.
    pub rss_bytes_max: Option<u64>,
}

/// One generation of an application, shared by all server threads.
#[derive(Clone, Debug)]
pub struct Program(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    options: Options,
    figures: Arc<PoolFigures>,
    pool: OnceLock<Result<Arc<Shared>, String>>,
}

impl Program {
    /// Returns an application none of whose processes has begun, and which counts in these figures.
    #[must_use]
    pub fn new(options: Options, figures: Arc<PoolFigures>) -> Self {
        let pool = OnceLock::new();
        Self(Arc::new(Inner {
            options,
            figures,
            pool,
        }))
    }

    /// Returns the configured options.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.0.options
    }

    /// Returns whether both are the same generation.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns the pool, whose processes start with the first call.
    pub(crate) fn pool(&self) -> Result<&Arc<Shared>, String> {
        let inner = &self.0;
        let start = || manager::start(&inner.options, Arc::clone(&inner.figures));
        let pool = inner.pool.get_or_init(start);
        pool.as_ref().map_err(Clone::clone)
    }
}
