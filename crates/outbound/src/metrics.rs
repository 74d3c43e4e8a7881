//! Counters of calls, read by `/metrics`.
//!
//! A new client needs a variant of [`ClientKind`] and a name. Gauges are maintained by guards, so they stay correct if
//! a call is cancelled.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tokio::time::Instant;
use veche_calls::{CallErrorKind, CallOutcome};

/// The kind of client that a set of counters belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientKind {
    /// Lookups of host names.
    Resolve,
    /// Requests to HTTP servers.
    Http,
    /// Statements for MySQL and MariaDB.
    Mysql,
    /// Commands that handlers send to Redis.
    Redis,
    /// Password hashing, on threads of this process.
    Password,
    /// Requests to scripts behind FastCGI.
    Fastcgi,
}

impl ClientKind {
    /// All kinds, in the order of their declaration.
    pub const ALL: [Self; 6] = [
        Self::Resolve,
        Self::Http,
        Self::Mysql,
        Self::Redis,
        Self::Password,
        Self::Fastcgi,
    ];

    /// Returns the metric label.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Resolve => "resolve",
            Self::Http => "http",
            Self::Mysql => "mysql",
            Self::Redis => "redis",
            Self::Password => "password",
            Self::Fastcgi => "fastcgi",
        }
    }
}

/// The upper bounds of the buckets for wait times, in milliseconds; an additional bucket counts longer waits.
pub const WAIT_BUCKETS_MS: [u64; 9] = [1, 5, 10, 50, 100, 500, 1_000, 5_000, 10_000];

/// The counters of all clients.
#[derive(Debug, Default)]
pub struct OutboundMetrics([Arc<ClientMetrics>; ClientKind::ALL.len()]);

/// The counters of one client.
#[derive(Debug, Default)]
pub struct ClientMetrics {
    calls: AtomicU64,
    errors: [AtomicU64; CallErrorKind::ALL.len()],
    connections: AtomicU64,
    busy: AtomicU64,
    waiting: AtomicU64,
    waits: [AtomicU64; WAIT_BUCKETS_MS.len() + 1],
    wait_us: AtomicU64,
}

impl OutboundMetrics {
    /// Returns the counters of one client.
    #[must_use]
    pub fn of(&self, client: ClientKind) -> &Arc<ClientMetrics> {
        &self.0[client as usize]
    }
}

impl ClientMetrics {
    /// Returns the number of completed calls.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.calls.load(Relaxed)
    }

    /// Returns the number of calls that failed with a kind of error.
    #[must_use]
    pub fn errors(&self, kind: CallErrorKind) -> u64 {
        self.errors[kind as usize].load(Relaxed)
    }

    /// Returns the number of open connections.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.connections.load(Relaxed)
    }

    /// Returns the number of connections in use.
    #[must_use]
    pub fn busy(&self) -> u64 {
        self.busy.load(Relaxed)
    }

    /// Returns the number of calls that wait for a connection.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        self.waiting.load(Relaxed)
    }

    /// Returns the numbers of completed waits for a connection, one for each [bucket](WAIT_BUCKETS_MS).
    #[must_use]
    pub fn waits(&self) -> [u64; WAIT_BUCKETS_MS.len() + 1] {
        self.waits.each_ref().map(|waits| waits.load(Relaxed))
    }

    /// Returns the total wait time in microseconds.
    #[must_use]
    pub fn wait_us(&self) -> u64 {
        self.wait_us.load(Relaxed)
    }

    /// Counts a completed call.
    pub(crate) fn ended(&self, outcome: &CallOutcome) {
        self.calls.fetch_add(1, Relaxed);
        if let Err(fault) = outcome {
            self.errors[fault.kind as usize].fetch_add(1, Relaxed);
        }
    }

    /// Counts an open connection while the guard exists.
    pub(crate) fn connected(self: &Arc<Self>) -> ConnectionGuard {
        self.connections.fetch_add(1, Relaxed);
        ConnectionGuard(Arc::clone(self))
    }

    /// Counts a connection in use while the guard exists.
    pub(crate) fn used(self: &Arc<Self>) -> BusyGuard {
        self.busy.fetch_add(1, Relaxed);
        BusyGuard(Arc::clone(self))
    }

    /// Counts a waiting call while the guard exists. Only called if no connection is free.
    pub(crate) fn wait(self: &Arc<Self>) -> WaitGuard {
        self.waiting.fetch_add(1, Relaxed);
        WaitGuard {
            figures: Arc::clone(self),
            since: Instant::now(),
        }
    }
}

/// Counts an open connection until the guard is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionGuard(Arc<ClientMetrics>);

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Relaxed);
    }
}

/// Counts a connection in use until the guard is dropped.
#[derive(Debug)]
pub(crate) struct BusyGuard(Arc<ClientMetrics>);

impl Drop for BusyGuard {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Relaxed);
    }
}

/// Counts a call that waits for a connection, and records its wait time when the guard is dropped.
#[derive(Debug)]
pub(crate) struct WaitGuard {
    figures: Arc<ClientMetrics>,
    since: Instant,
}

impl Drop for WaitGuard {
    fn drop(&mut self) {
        let us = u64::try_from(self.since.elapsed().as_micros()).unwrap_or(u64::MAX);
        let bucket = WAIT_BUCKETS_MS.partition_point(|&bound| bound * 1_000 < us);
        self.figures.waits[bucket].fetch_add(1, Relaxed);
        self.figures.wait_us.fetch_add(us, Relaxed);
        self.figures.waiting.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_wait_is_counted_in_its_bucket_and_a_connection_while_it_is_there() {
        let figures = Arc::new(ClientMetrics::default());
        for (wait_ms, bucket) in [(0, 0), (1, 0), (2, 1), (10_000, 8), (10_001, 9)] {
            let wait = figures.wait();
            let before = figures.waits()[bucket];
            assert_eq!(figures.waiting(), 1);
            tokio::time::advance(Duration::from_millis(wait_ms)).await;
            drop(wait);
            assert_eq!(figures.waits()[bucket], before + 1, "{wait_ms}");
        }
        assert_eq!((figures.waiting(), figures.wait_us()), (0, 20_004_000));
        let connection = figures.connected();
        assert_eq!(figures.connections(), 1);
        drop(connection);
        assert_eq!(figures.connections(), 0);
    }
}
