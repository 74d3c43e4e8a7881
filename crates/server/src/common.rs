//! What all workers of the process share: counts of connections, readiness, everybody's counters.
//!
//! Touched at accept, registration and close; never per message.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use parking_lot::Mutex;
use veche_acme::Orders;
use veche_frontends::Stats;
use veche_frontends::rate::Rate;
use veche_identity::{Guesses, Identities};
use veche_logging::ServerLog;
use veche_mailbox::Wake as _;
use veche_net::Waker;
use veche_outbound::Outbound;
use veche_proto::websocket::ContextBudget;
use veche_supervisor::Restarts;
use veche_supervisor::pulse::Pulse;
use veche_tls::Trusts;
use veche_webhooks::events::Events;
use veche_webhooks::hooks::Hooks;

use crate::access_log::Access;
use crate::addresses::Addresses;
use crate::blocks::Blocks;
use crate::cluster::Cluster;
use crate::decisions::Decisions;
use crate::history::Keeper;
use crate::memory::Memory;
use crate::sealing::Sealing;
use crate::slow::Board;
use crate::users::Users;

/// Wrong keys of one address that are answered as usual.
fn wrong_keys_rate() -> Rate {
    Rate::new(10, 60_000)
}

/// See the module's text.
pub(crate) struct Common {
    /// By worker.
    pub(crate) stats: Vec<Arc<Stats>>,
    /// By worker.
    pub(crate) pulses: Vec<Arc<Pulse>>,
    pub(crate) started: Instant,
    ready: AtomicBool,
    connections: AtomicUsize,
    /// Workers whose applications have not done yet what they do at the end.
    unstopped: AtomicUsize,
    /// Workers whose last client is not known to be gone, in a drain.
    with_clients: AtomicUsize,
    /// Workers whose services have not ended, in a drain.
    with_services: AtomicUsize,
    connections_max: AtomicUsize,
    /// What each client address takes.
    pub(crate) addresses: Addresses,
    /// Which addresses have shown wrong keys.
    pub(crate) wrong_keys: Guesses,
    /// How many connections users have.
    pub(crate) users: Users,
    /// What the process takes.
    pub(crate) memory: Memory,
    /// What connections that compress with context keep.
    pub(crate) contexts: Arc<ContextBudget>,
    /// Of the workers, so that all of them hear of the cap at once.
    wakers: Mutex<Vec<Waker>>,
    /// Whom clients of TLS believe.
    pub(crate) trusts: Arc<Trusts>,
    /// TLS of our listeners.
    pub(crate) sealing: Arc<Sealing>,
    /// Certificates that are ordered.
    pub(crate) orders: Orders,
    /// Where what channels remember is kept.
    pub(crate) history: Keeper,
    /// The server's log.
    pub(crate) log: ServerLog,
    /// The access log.
    pub(crate) access: Access,
    /// Who clients are, by the word of others.
    pub(crate) identities: Arc<Identities>,
    /// Who is not let in.
    pub(crate) blocks: Blocks,
    /// Who decides on clients' commands.
    pub(crate) hooks: Hooks,
    /// What happens, for the back end.
    pub(crate) events: Events,
    /// What took longest.
    pub(crate) slow: Board,
    /// How often server processes before this one ended by themselves.
    pub(crate) restarts: Restarts,
    /// What is decided about clients, for who looks.
    pub(crate) decisions: Decisions,
    /// The other nodes, if this process belongs to a cluster.
    pub(crate) cluster: Option<Arc<Cluster>>,
    /// When `warn_rarely` last spoke, in seconds since the start, plus one.
    warned: AtomicU64,
}

impl Common {
    /// For so many workers.
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
            addresses: Addresses::default(),
            wrong_keys: Guesses::new(Some(wrong_keys_rate())),
            users: Users::default(),
            memory: Memory::new(),
            contexts: Arc::default(),
            wakers: Mutex::default(),
            trusts: Arc::default(),
            sealing: Arc::default(),
            orders: Orders::default(),
            history: Keeper::default(),
            blocks: Blocks::default(),
            log: ServerLog::default(),
            access: Access::default(),
            identities: Arc::default(),
            restarts: Restarts::default(),
            decisions: Decisions::default(),
            hooks: Hooks::default(),
            events: Events::new(Outbound::default()),
            slow: Board::default(),
            cluster: None,
            warned: AtomicU64::new(0),
        }
    }

    /// What asks or dials others does it as all of the process do, and believes the same.
    pub(crate) fn with_outbound(self, outbound: &Outbound) -> Self {
        let orders = Orders::new(outbound.clone());
        Self {
            sealing: Arc::new(Sealing::new(orders.proofs())),
            orders,
            trusts: Arc::clone(outbound.trusts()),
            identities: Arc::new(Identities::new(outbound.clone())),
            hooks: Hooks::new(outbound.clone()),
            events: Events::new(outbound.clone()),
            ..self
        }
    }

    /// The same, after server processes that ended by themselves.
    pub(crate) fn with_restarts(self, restarts: Restarts) -> Self {
        Self { restarts, ..self }
    }

    /// The server's log can be seen here.
    pub(crate) fn with_log(self, log: ServerLog) -> Self {
        Self { log, ..self }
    }

    /// Returns it as a part of a cluster.
    pub(crate) fn with_cluster(self, cluster: Option<Arc<Cluster>>) -> Self {
        Self { cluster, ..self }
    }

    /// Those are not let in.
    pub(crate) fn with_blocks(self, blocks: Blocks) -> Self {
        Self { blocks, ..self }
    }

    /// What channels remember is kept there.
    pub(crate) fn with_history(self, history: Keeper) -> Self {
        Self { history, ..self }
    }

    /// Sets the cap on connections.
    pub(crate) fn set_connections_max(&self, connections: usize) {
        self.connections_max.store(connections, Relaxed);
    }

    /// Says whether new work is welcome.
    pub(crate) fn set_ready(&self, ready: bool) {
        self.ready.store(ready, Relaxed);
    }

    /// Whether new work is welcome.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready.load(Relaxed)
    }

    /// Connections of all workers.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Relaxed)
    }

    /// A worker's applications have stopped, which they are told to at the end.
    pub(crate) fn apps_stopped(&self) {
        self.unstopped.fetch_sub(1, Relaxed);
    }

    /// Workers whose applications have not.
    #[cfg(test)]
    pub(crate) fn unstopped(&self) -> usize {
        self.unstopped.load(Relaxed)
    }

    /// Whether the applications of all workers have.
    pub(crate) fn have_apps_stopped(&self) -> bool {
        self.unstopped.load(Relaxed) == 0
    }

    /// A worker that drains has no client any more.
    pub(crate) fn clients_gone(&self) {
        self.with_clients.fetch_sub(1, Relaxed);
    }

    /// Whether no worker has, in a drain.
    pub(crate) fn are_clients_gone(&self) -> bool {
        self.with_clients.load(Relaxed) == 0
    }

    /// The services of a worker that drains have ended.
    pub(crate) fn services_ended(&self) {
        self.with_services.fetch_sub(1, Relaxed);
    }

    /// Whether those of all workers have, in a drain.
    pub(crate) fn have_services_ended(&self) -> bool {
        self.with_services.load(Relaxed) == 0
    }

    /// The cap on them.
    pub(crate) fn connections_max(&self) -> usize {
        self.connections_max.load(Relaxed)
    }

    /// A worker is woken by this.
    pub(crate) fn attach(&self, waker: Waker) {
        self.wakers.lock().push(waker);
    }

    /// Has every worker look around.
    pub(crate) fn wake_workers(&self) {
        self.wakers.lock().iter().for_each(Waker::wake);
    }

    /// Counts a connection in; whether no further one should be accepted.
    pub(crate) fn connection_opened(&self) -> bool {
        self.connections.fetch_add(1, Relaxed);
        self.is_at_cap()
    }

    /// Counts it out.
    pub(crate) fn connection_closed(&self) {
        self.connections.fetch_sub(1, Relaxed);
    }

    /// Whether no further connection should be accepted.
    pub(crate) fn is_at_cap(&self) -> bool {
        self.connections.load(Relaxed) >= self.connections_max.load(Relaxed)
    }

    /// Whether accepting may go on. A little below the cap, so that it does not flap.
    pub(crate) fn is_below_cap(&self) -> bool {
        let max = self.connections_max.load(Relaxed);
        self.connections.load(Relaxed) < max - (max / 64).min(max.saturating_sub(1)).min(64)
    }

    /// Says something at most every ten seconds.
    pub(crate) fn warn_rarely(&self, say: impl FnOnce()) {
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
    fn the_cap_is_told_when_it_is_reached_and_left() {
        let common = Common::new(1, Instant::now());
        common.set_connections_max(3);
        assert!(!common.connection_opened());
        assert!(!common.connection_opened());
        assert!(common.connection_opened());
        assert!(!common.is_below_cap());
        common.connection_closed();
        assert!(common.is_below_cap());
        assert!(common.connection_opened());
        (0..3).for_each(|_| common.connection_closed());
        assert_eq!(common.connections(), 0);
    }
}
