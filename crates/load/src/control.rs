//! Shared state between the threads of a process and the thread that waits for them.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64};

use serde::{Deserialize, Serialize};

use crate::tally::Tally;

/// State shared by all threads of a process.
#[derive(Debug)]
pub(crate) struct Control {
    start_ns: AtomicU64,
    /// How often the end of the run was requested, at most twice.
    stops: AtomicU8,
    held: AtomicBool,
    threads: Vec<ThreadProgress>,
    /// Index of this process's first thread among the threads of all processes.
    first: u32,
}

/// Progress of a thread, for the progress line.
#[derive(Debug, Default)]
pub(crate) struct ThreadProgress {
    /// Whether all connections of the thread have opened or failed.
    pub(crate) ready: AtomicBool,
    /// Whether the measurement of the thread has ended.
    pub(crate) done: AtomicBool,
    /// Whether the thread has finished its work.
    pub(crate) finished: AtomicBool,
    pub(crate) asked: AtomicU64,
    pub(crate) opened: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) received: AtomicU64,
    pub(crate) errors: AtomicU64,
    /// The 99th percentile of the last second's latencies in nanoseconds; 0 without answers.
    pub(crate) p99_ns: AtomicU64,
}

impl ThreadProgress {
    pub(crate) fn show(&self, tally: &Tally) {
        self.asked.store(tally.asked, Relaxed);
        self.opened.store(tally.opened, Relaxed);
        self.failed.store(tally.failed, Relaxed);
        self.received.store(tally.received, Relaxed);
        self.errors.store(tally.fault_count(), Relaxed);
    }
}

impl Control {
    pub(crate) fn new(first: u32, threads: u32) -> Self {
        Self {
            start_ns: AtomicU64::new(u64::MAX),
            stops: AtomicU8::new(0),
            held: AtomicBool::new(false),
            threads: (0..threads).map(|_| ThreadProgress::default()).collect(),
            first,
        }
    }

    /// Returns the time at which the run starts, on the monotonic clock; `u64::MAX` while unknown.
    pub(crate) fn start_ns(&self) -> u64 {
        self.start_ns.load(SeqCst)
    }

    pub(crate) fn start_at(&self, at_ns: u64) {
        self.start_ns.store(at_ns, SeqCst);
    }

    /// Ends the measurement. A second call also ends the wait for the last answers.
    pub(crate) fn stop(&self) {
        let _ = self
            .stops
            .fetch_update(SeqCst, SeqCst, |count| count.checked_add(1));
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stops.load(Relaxed) > 0
    }

    pub(crate) fn is_aborted(&self) -> bool {
        self.stops.load(Relaxed) > 1
    }

    /// Sets whether connections are kept open after the measurement.
    pub(crate) fn hold(&self, held: bool) {
        self.held.store(held, SeqCst);
    }

    pub(crate) fn is_held(&self) -> bool {
        self.held.load(Relaxed)
    }

    pub(crate) fn thread(&self, index: u32) -> &ThreadProgress {
        &self.threads[(index - self.first) as usize]
    }

    /// Returns the total progress of all threads.
    pub(crate) fn sums(&self) -> TotalProgress {
        let sum = |of: fn(&ThreadProgress) -> &AtomicU64| {
            self.threads.iter().map(|live| of(live).load(Relaxed)).sum()
        };
        let all = |of: fn(&ThreadProgress) -> &AtomicBool| {
            self.threads.iter().all(|live| of(live).load(Relaxed))
        };
        TotalProgress {
            ready: all(|live| &live.ready),
            done: all(|live| &live.done),
            finished: all(|live| &live.finished),
            asked: sum(|live| &live.asked),
            opened: sum(|live| &live.opened),
            failed: sum(|live| &live.failed),
            received: sum(|live| &live.received),
            errors: sum(|live| &live.errors),
            p99_ns: self
                .threads
                .iter()
                .map(|live| live.p99_ns.load(Relaxed))
                .max()
                .unwrap_or(0),
        }
    }
}

/// Total progress of all threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TotalProgress {
    pub(crate) ready: bool,
    pub(crate) done: bool,
    pub(crate) finished: bool,
    pub(crate) asked: u64,
    pub(crate) opened: u64,
    pub(crate) failed: u64,
    pub(crate) received: u64,
    pub(crate) errors: u64,
    pub(crate) p99_ns: u64,
}

impl TotalProgress {
    pub(crate) fn add(&mut self, other: Self) {
        self.ready &= other.ready;
        self.done &= other.done;
        self.finished &= other.finished;
        self.asked += other.asked;
        self.opened += other.opened;
        self.failed += other.failed;
        self.received += other.received;
        self.errors += other.errors;
        self.p99_ns = self.p99_ns.max(other.p99_ns);
    }
}
