//! The state that all workers of the process share: connection counts, readiness, counters and services.
//!
//! It is used when connections are accepted, registered and closed, never per message.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use parking_lot::Mutex;
use veche_acme::CertificateManager;
use veche_frontends::Stats;
use veche_frontends::rate::Rate;
use veche_identity::{BruteForceLimit, IdentityProviders};
use veche_logging::ServerLog;
use veche_mailbox::Wake as _;
use veche_net::Waker;
use veche_outbound::Outbound;
use veche_proto::websocket::DeflateBudget;
use veche_supervisor::Restarts;
use veche_supervisor::pulse::WorkerPulse;
use veche_tls::TrustStores;
use veche_webhooks::events::EventDelivery;
use veche_webhooks::hooks::HookClient;
use veche_worker::{ConnectionCount, DrainProgress};

use crate::access_log::AccessLogFile;
use crate::addresses::AddressCounters;
use crate::bans::Bans;
use crate::cluster::Cluster;
use crate::decisions::DecisionLog;
use crate::history::HistoryArchive;
use crate::memory::MemoryMonitor;
use crate::slow_log::SlowLog;
use crate::tls_listeners::TlsListeners;
use crate::users::UserCounters;

/// Returns the rate limit of requests with wrong keys from one address. Within the limit they are answered with status
/// 401, above it with 429.
fn wrong_keys_rate() -> Rate {
    Rate::new(10, 60_000)
}

/// The shared state of the process.
pub(crate) struct ProcessState {
    /// Counters, by worker index.
    pub(crate) stats: Vec<Arc<Stats>>,
    /// The progress of each worker's turns, by worker index.
    pub(crate) pulses: Vec<Arc<WorkerPulse>>,
    pub(crate) started: Instant,
    ready: AtomicBool,
    connections: AtomicUsize,
    /// In a shutdown, the number of workers whose applications have not stopped.
    unstopped: AtomicUsize,
    /// In a drain, the number of workers that may still have clients.
    with_clients: AtomicUsize,
    /// In a drain, the number of workers with running services.
    with_services: AtomicUsize,
    connections_max: AtomicUsize,
    /// Connection counts and rates by client address, and their limits.
    pub(crate) addresses: AddressCounters,
    /// Limits the attempts to guess API keys from one IP address.
    pub(crate) wrong_keys: BruteForceLimit,
    /// Connection counts by user.
    pub(crate) users: UserCounters,
    /// The memory of the process.
    pub(crate) memory: MemoryMonitor,
    /// The memory budget of compression contexts.
    pub(crate) contexts: Arc<DeflateBudget>,
    /// Wakes the workers when the number of connections reaches the limit.
    wakers: Mutex<Vec<Waker>>,
    /// Trusted certificates of outgoing TLS connections.
    pub(crate) trusts: Arc<TrustStores>,
    /// The TLS settings of the listeners.
    pub(crate) tls_listeners: Arc<TlsListeners>,
    /// Certificates ordered by ACME.
    pub(crate) orders: CertificateManager,
    /// The archive of channel history.
    pub(crate) history: HistoryArchive,
    pub(crate) log: ServerLog,
    pub(crate) access: AccessLogFile,
    /// Providers of client identity.
    pub(crate) identities: Arc<IdentityProviders>,
    /// Banned users and revoked tokens.
    pub(crate) blocks: Bans,
    /// Hooks that decide on clients' commands.
    pub(crate) hooks: HookClient,
    pub(crate) events: EventDelivery,
    /// The slowest recent operations.
    pub(crate) slow: SlowLog,
    /// Counts of server processes that ended unexpectedly.
    pub(crate) restarts: Restarts,
    /// Passes decisions about clients to their watchers and to the log.
    pub(crate) decisions: DecisionLog,
    /// This process as a node of a cluster, if it belongs to one.
    pub(crate) cluster: Option<Arc<Cluster>>,
    /// The time of the last line of `warn_throttled` in seconds since the start, plus one; 0 before the first line.
    warned: AtomicU64,
}

impl ProcessState {
    /// Creates the state of a process with `workers` workers.
    pub(crate) fn new(workers: usize, started: Instant) -> Self {
        Self {
            stats: (0..workers).map(|_| Arc::default()).collect(),
            pulses: (0..workers).map(|_| Arc::default()).collect(),
            started,
            ready: AtomicBool::new(false),
            connections: AtomicUsize::new(0),
            unstopped: AtomicUsize::new(workers),
            with_clients: AtomicUsize::new(workers),
            with_services: AtomicUsize::new(workers),
            connections_max: AtomicUsize::new(usize::MAX),
            addresses: AddressCounters::default(),
            wrong_keys: BruteForceLimit::new(Some(wrong_keys_rate())),
            users: UserCounters::default(),
            memory: MemoryMonitor::new(),
            contexts: Arc::default(),
            wakers: Mutex::default(),
            trusts: Arc::default(),
            tls_listeners: Arc::default(),
            orders: CertificateManager::default(),
            history: HistoryArchive::default(),
            blocks: Bans::default(),
            log: ServerLog::default(),
            access: AccessLogFile::default(),
            identities: Arc::default(),
            restarts: Restarts::default(),
            decisions: DecisionLog::default(),
            hooks: HookClient::default(),
            events: EventDelivery::new(Outbound::default()),
            slow: SlowLog::default(),
            cluster: None,
            warned: AtomicU64::new(0),
        }
    }

    /// Makes the identity providers, hooks, event webhooks and certificate orders send their requests through
    /// `outbound`, and use its trust stores.
    pub(crate) fn with_outbound(self, outbound: &Outbound) -> Self {
        let orders = CertificateManager::new(outbound.clone());
        Self {
            tls_listeners: Arc::new(TlsListeners::new(orders.alpn_challenges())),
            orders,
            trusts: Arc::clone(outbound.trusts()),
            identities: Arc::new(IdentityProviders::new(outbound.clone())),
            hooks: HookClient::new(outbound.clone()),
            events: EventDelivery::new(outbound.clone()),
            ..self
        }
    }

    /// Sets the counts of server processes that ended unexpectedly.
    pub(crate) fn with_restarts(self, restarts: Restarts) -> Self {
        Self { restarts, ..self }
    }

    /// Sets the server's log.
    pub(crate) fn with_log(self, log: ServerLog) -> Self {
        Self { log, ..self }
    }

    /// Returns the state with the cluster that the process belongs to, if any.
    pub(crate) fn with_cluster(self, cluster: Option<Arc<Cluster>>) -> Self {
        Self { cluster, ..self }
    }

    pub(crate) fn with_blocks(self, blocks: Bans) -> Self {
        Self { blocks, ..self }
    }

    /// Sets the archive of channel history.
    pub(crate) fn with_history(self, history: HistoryArchive) -> Self {
        Self { history, ..self }
    }

    /// Sets the connection limit.
    pub(crate) fn set_connections_max(&self, connections: usize) {
        self.connections_max.store(connections, Relaxed);
    }

    /// Sets whether new work is accepted.
    pub(crate) fn set_ready(&self, ready: bool) {
        self.ready.store(ready, Relaxed);
    }

    /// Returns whether new work is accepted.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready.load(Relaxed)
    }

    /// Returns the number of connections of all workers.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Relaxed)
    }

    /// Records that a worker's applications have stopped, in a shutdown.
    pub(crate) fn mark_apps_stopped(&self) {
        self.unstopped.fetch_sub(1, Relaxed);
    }

    /// Returns the number of workers whose applications have not stopped.
    #[cfg(test)]
    pub(crate) fn running_workers(&self) -> usize {
        self.unstopped.load(Relaxed)
    }

    /// Returns whether the applications of all workers have stopped.
    pub(crate) fn have_apps_stopped(&self) -> bool {
        self.unstopped.load(Relaxed) == 0
    }

    /// Records that a draining worker has no more clients.
    pub(crate) fn mark_clients_gone(&self) {
        self.with_clients.fetch_sub(1, Relaxed);
    }

    /// Records that the services of a draining worker have ended.
    pub(crate) fn mark_services_ended(&self) {
        self.with_services.fetch_sub(1, Relaxed);
    }

    /// Returns whether, in a drain, the services of all workers have ended.
    pub(crate) fn have_services_ended(&self) -> bool {
        self.with_services.load(Relaxed) == 0
    }

    /// Returns how far the drain has come in all workers.
    pub(crate) fn drain_progress(&self) -> DrainProgress {
        DrainProgress {
            have_apps_stopped: self.have_apps_stopped(),
            are_clients_gone: self.with_clients.load(Relaxed) == 0,
            have_services_ended: self.have_services_ended(),
        }
    }

    /// Returns the connection limit.
    pub(crate) fn connections_max(&self) -> usize {
        self.connections_max.load(Relaxed)
    }

    /// Adds a worker's waker.
    pub(crate) fn attach(&self, waker: Waker) {
        self.wakers.lock().push(waker);
    }

    pub(crate) fn wake_workers(&self) {
        self.wakers.lock().iter().for_each(Waker::wake);
    }

    /// Counts an opened connection; returns whether the limit is now reached.
    pub(crate) fn connection_opened(&self) -> bool {
        self.connections.fetch_add(1, Relaxed);
        self.is_at_cap()
    }

    /// Counts a closed connection.
    pub(crate) fn connection_closed(&self) {
        self.connections.fetch_sub(1, Relaxed);
    }

    /// Returns whether the connection limit is reached.
    pub(crate) fn is_at_cap(&self) -> bool {
        self.connection_count() == ConnectionCount::AtLimit
    }

    /// Returns the number of connections, compared with the limit.
    pub(crate) fn connection_count(&self) -> ConnectionCount {
        let max = self.connections_max.load(Relaxed);
        let count = self.connections.load(Relaxed);
        let margin = (max / 64).min(max.saturating_sub(1)).min(64);
        match count {
            _ if count >= max => ConnectionCount::AtLimit,
            _ if count < max - margin => ConnectionCount::Low,
            _ => ConnectionCount::High,
        }
    }

    /// Calls `say`, unless another warning was logged through this method in the last ten seconds.
    pub(crate) fn warn_throttled(&self, say: impl FnOnce()) {
        let now = self.started.elapsed().as_secs() + 1;
        let last = self.warned.load(Relaxed);
        if (last == 0 || now >= last + 10)
            && self
                .warned
                .compare_exchange(last, now, Relaxed, Relaxed)
                .is_ok()
        {
            say();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a start is needed, not a time")]
    fn reaching_and_leaving_the_cap_is_logged() {
        let common = ProcessState::new(1, Instant::now());
        common.set_connections_max(3);
        assert!(!common.connection_opened());
        assert!(!common.connection_opened());
        assert!(common.connection_opened());
        assert_eq!(common.connection_count(), ConnectionCount::AtLimit);
        common.connection_closed();
        assert_eq!(common.connection_count(), ConnectionCount::Low);
        assert!(common.connection_opened());
        (0..3).for_each(|_| common.connection_closed());
        assert_eq!(common.connections(), 0);
        // Accepting is resumed a sixty-fourth below the limit.
        common.set_connections_max(128);
        (0..126).for_each(|_| assert!(!common.connection_opened()));
        assert_eq!(common.connection_count(), ConnectionCount::High);
        common.connection_closed();
        assert_eq!(common.connection_count(), ConnectionCount::Low);
    }
}
