//! Figures of pools, for metrics and the status.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

/// Figures of all applications with processes, by name. Counters outlive reloads.
#[derive(Clone, Debug, Default)]
pub struct PoolRegistry(Arc<Mutex<BTreeMap<String, Arc<PoolFigures>>>>);

impl PoolRegistry {
    /// Returns the figures of an application, which begin at 0.
    #[must_use]
    pub fn of(&self, app: &str) -> Arc<PoolFigures> {
        Arc::clone(self.0.lock().entry(app.to_owned()).or_default())
    }

    /// Returns whether any process has not been reaped.
    #[must_use]
    pub fn have_processes(&self) -> bool {
        let all = self.0.lock();
        all.values().any(|figures| figures.gauges().processes() > 0)
    }

    /// Returns the figures of all applications in the order of their names.
    #[must_use]
    pub fn all(&self) -> Vec<(String, Arc<PoolFigures>)> {
        let all = self.0.lock();
        all.iter()
            .map(|(name, figures)| (name.clone(), Arc::clone(figures)))
            .collect()
    }
}

/// The current state of an application's processes, summed over all running generations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolGauges {
    /// Processes that have not finished their start.
    pub starting: u64,
    /// Processes that accept events and are handling none.
    pub idle: u64,
    /// Processes that are handling events.
    pub busy: u64,
    /// Processes that were asked to end or have ended and are not reaped yet.
    pub stopping: u64,
    /// Events that wait for a process.
    pub queued: u64,
    /// Resident memory of the processes in bytes, measured once per second.
    pub memory_bytes: u64,
}

impl PoolGauges {
    /// Returns the number of processes in any state.
    #[must_use]
    pub fn processes(&self) -> u64 {
        self.starting + self.idle + self.busy + self.stopping
    }

    const NONE: Self = Self {
        starting: 0,
        idle: 0,
        busy: 0,
        stopping: 0,
        queued: 0,
        memory_bytes: 0,
    };

    fn fields(&self) -> [u64; 6] {
        [
            self.starting,
            self.idle,
            self.busy,
            self.stopping,
            self.queued,
            self.memory_bytes,
        ]
    }
}

/// Reason why a process was replaced or lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartReason {
    /// The process ended by itself, or a frame broke the protocol.
    Failed,
    /// The process was not ready within `start_timeout`, or could not be started.
    Start,
    /// An event took longer than `event_timeout`.
    EventTimeout,
    /// The process handled `max_jobs` events.
    MaxJobs,
    /// The process reached the age `ttl`.
    Ttl,
    /// The process had no event for `idle_ttl`.
    IdleTtl,
    /// The process exceeded `rss_max`.
    RssMax,
    /// A file that the application watches has changed.
    Watch,
}

impl RestartReason {
    /// All reasons, in the order of the counters.
    pub const ALL: [Self; 8] = [
        Self::Failed,
        Self::Start,
        Self::EventTimeout,
        Self::MaxJobs,
        Self::Ttl,
        Self::IdleTtl,
        Self::RssMax,
        Self::Watch,
    ];

    /// Returns the name used in metrics and logs. A limit set by a directive has the name of the
    /// directive.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Start => "start",
            Self::EventTimeout => "event_timeout",
            Self::MaxJobs => "max_jobs",
            Self::Ttl => "ttl",
            Self::IdleTtl => "idle_ttl",
            Self::RssMax => "rss_max",
            Self::Watch => "watch",
        }
    }
}

/// Figures of one application's processes.
#[derive(Debug, Default)]
pub struct PoolFigures {
    gauges: [AtomicU64; 6],
    answered: AtomicU64,
    failed: AtomicU64,
    refused: AtomicU64,
    wait_us: AtomicU64,
    run_us: AtomicU64,
    restarts: [AtomicU64; RestartReason::ALL.len()],
}

impl PoolFigures {
    /// Returns the current state of the application's processes.
    #[must_use]
    pub fn gauges(&self) -> PoolGauges {
        let [starting, idle, busy, stopping, queued, memory_bytes] =
            self.gauges.each_ref().map(read);
        PoolGauges {
            starting,
            idle,
            busy,
            stopping,
            queued,
            memory_bytes,
        }
    }

    /// Returns the number of events that a process answered.
    #[must_use]
    pub fn answered(&self) -> u64 {
        read(&self.answered)
    }

    /// Returns the number of events whose process ended or was killed before it answered.
    #[must_use]
    pub fn failed(&self) -> u64 {
        read(&self.failed)
    }

    /// Returns the number of events that were refused: the queue was full, or no process was free
    /// within `queue_timeout`.
    #[must_use]
    pub fn refused(&self) -> u64 {
        read(&self.refused)
    }

    /// Returns the total time that events waited for a process, in seconds.
    #[must_use]
    pub fn wait_s(&self) -> f64 {
        read(&self.wait_us) as f64 / 1e6
    }

    /// Returns the total time that processes spent on events, in seconds.
    #[must_use]
    pub fn run_s(&self) -> f64 {
        read(&self.run_us) as f64 / 1e6
    }

    /// Returns the number of processes that were replaced or lost for a reason.
    #[must_use]
    pub fn restarts(&self, reason: RestartReason) -> u64 {
        read(&self.restarts[reason as usize])
    }

    pub(crate) fn add_answer(&self, took: Duration) {
        add(&self.answered, 1);
        add(&self.run_us, took.as_micros() as u64);
    }

    pub(crate) fn add_failed(&self) {
        add(&self.failed, 1);
    }

    pub(crate) fn add_refused(&self) {
        add(&self.refused, 1);
    }

    pub(crate) fn add_wait(&self, waited: Duration) {
        add(&self.wait_us, waited.as_micros() as u64);
    }

    pub(crate) fn add_restart(&self, reason: RestartReason) {
        add(&self.restarts[reason as usize], 1);
    }
}

/// The share that one generation of processes has in the gauges. Dropping it subtracts the share.
#[derive(Debug)]
pub(crate) struct GaugeShare {
    figures: Arc<PoolFigures>,
    set: PoolGauges,
}

impl GaugeShare {
    pub(crate) fn new(figures: Arc<PoolFigures>) -> Self {
        let set = PoolGauges::NONE;
        Self { figures, set }
    }

    pub(crate) fn set(&mut self, gauges: PoolGauges) {
        if gauges == self.set {
            return;
        }
        let changes = gauges.fields().into_iter().zip(self.set.fields());
        for (cell, (new, old)) in self.figures.gauges.iter().zip(changes) {
            // A difference below 0 wraps around, and so does the sum: only the sum of all shares is meaningful.
            cell.fetch_add(new.wrapping_sub(old), Ordering::Relaxed);
        }
        self.set = gauges;
    }
}

impl Drop for GaugeShare {
    fn drop(&mut self) {
        self.set(PoolGauges::NONE);
    }
}

fn read(cell: &AtomicU64) -> u64 {
    cell.load(Ordering::Relaxed)
}

fn add(cell: &AtomicU64, count: u64) {
    cell.fetch_add(count, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gauges_are_the_sum_of_generations() {
        let registry = PoolRegistry::default();
        let figures = registry.of("chat");
        let mut old = GaugeShare::new(registry.of("chat"));
        let mut new = GaugeShare::new(registry.of("chat"));
        let busy = |busy, queued| PoolGauges {
            busy,
            queued,
            ..PoolGauges::NONE
        };
        old.set(busy(2, 5));
        new.set(busy(1, 0));
        assert_eq!(figures.gauges(), busy(3, 5));
        old.set(busy(1, 0));
        assert_eq!(figures.gauges(), busy(2, 0));
        drop(old);
        assert_eq!(figures.gauges(), busy(1, 0));
        drop(new);
        assert_eq!(figures.gauges(), PoolGauges::NONE);
        assert_eq!(registry.all().len(), 1);
    }
}
