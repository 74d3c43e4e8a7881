//! What all workers of the process share: counts of connections, readiness, everybody's counters.
//!
//! Touched at accept, registration and close; never per message.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use parking_lot::Mutex;
use veche_frontends::Stats;
use veche_mailbox::Wake as _;
use veche_net::Waker;
use veche_tls::Trusts;

use crate::sealing::Sealing;

/// Shards of the table of addresses.
const SHARDS: usize = 16;

/// See the module's text.
pub(crate) struct Common {
    /// By worker.
    pub(crate) stats: Vec<Arc<Stats>>,
    pub(crate) started: Instant,
    ready: AtomicBool,
    connections: AtomicUsize,
    /// Workers whose applications have not done yet what they do at the end.
    unstopped: AtomicUsize,
    connections_max: AtomicUsize,
    /// 0: off.
    per_address_max: AtomicUsize,
    addresses: [Mutex<HashMap<IpAddr, u32>>; SHARDS],
    /// Of the workers, so that all of them hear of the cap at once.
    wakers: Mutex<Vec<Waker>>,
    /// Whom clients of TLS believe.
    pub(crate) trusts: Arc<Trusts>,
    /// TLS of our listeners.
    pub(crate) sealing: Arc<Sealing>,
    /// When `warn_rarely` last spoke, in seconds since the start, plus one.
    warned: AtomicU64,
}

/// What a new connection meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// The address has not too many already.
    pub(crate) address_allowed: bool,
    /// No further connection should be accepted.
    pub(crate) at_cap: bool,
}

impl Common {
    /// For so many workers.
    pub(crate) fn new(workers: usize, started: Instant) -> Self {
        Self {
            stats: (0..workers).map(|_| Arc::default()).collect(),
            started,
            ready: AtomicBool::new(false),
            connections: AtomicUsize::new(0),
            unstopped: AtomicUsize::new(workers),
            connections_max: AtomicUsize::new(usize::MAX),
            per_address_max: AtomicUsize::new(0),
            addresses: std::array::from_fn(|_| Mutex::default()),
            wakers: Mutex::default(),
            trusts: Arc::default(),
            sealing: Arc::default(),
            warned: AtomicU64::new(0),
        }
    }

    /// Those who dial believe what others of the process do.
    pub(crate) fn with_trusts(self, trusts: Arc<Trusts>) -> Self {
        Self { trusts, ..self }
    }

    /// Sets the caps; `per_address` 0 is off.
    pub(crate) fn set_caps(&self, connections: usize, per_address: usize) {
        self.connections_max.store(connections, Relaxed);
        self.per_address_max.store(per_address, Relaxed);
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

    /// Whether the applications of all workers have.
    pub(crate) fn have_apps_stopped(&self) -> bool {
        self.unstopped.load(Relaxed) == 0
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

    /// Counts a connection in, and in the share of its address if it is `counted` there.
    pub(crate) fn connection_opened(&self, peer: IpAddr, counted: bool) -> Verdict {
        self.connections.fetch_add(1, Relaxed);
        let at_cap = self.is_at_cap();
        if !counted {
            return Verdict {
                address_allowed: true,
                at_cap,
            };
        }
        let mut shard = self.shard(peer).lock();
        let count = shard.entry(peer).or_insert(0);
        *count += 1;
        let max = self.per_address_max.load(Relaxed);
        Verdict {
            address_allowed: max == 0 || *count as usize <= max,
            at_cap,
        }
    }

    /// Counts it out, as it was counted in.
    pub(crate) fn connection_closed(&self, peer: IpAddr, counted: bool) {
        self.connections.fetch_sub(1, Relaxed);
        if !counted {
            return;
        }
        let mut shard = self.shard(peer).lock();
        if let Some(count) = shard.get_mut(&peer) {
            *count -= 1;
            if *count == 0 {
                shard.remove(&peer);
            }
        }
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

    fn shard(&self, peer: IpAddr) -> &Mutex<HashMap<IpAddr, u32>> {
        let last = match peer {
            IpAddr::V4(address) => address.octets()[3],
            IpAddr::V6(address) => address.octets()[7],
        };
        &self.addresses[last as usize % SHARDS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a start is needed, not a time")]
    fn the_cap_is_told_when_it_is_reached_and_left() {
        let common = Common::new(1, Instant::now());
        common.set_caps(3, 2);
        let (a, b) = (IpAddr::from([127, 0, 0, 1]), IpAddr::from([127, 0, 0, 2]));
        assert_eq!(
            common.connection_opened(a, true),
            Verdict {
                address_allowed: true,
                at_cap: false
            }
        );
        assert_eq!(
            common.connection_opened(a, true),
            Verdict {
                address_allowed: true,
                at_cap: false
            }
        );
        assert_eq!(
            common.connection_opened(a, true),
            Verdict {
                address_allowed: false,
                at_cap: true
            }
        );
        assert!(!common.is_below_cap());
        common.connection_closed(a, true);
        assert!(common.is_below_cap());
        assert_eq!(
            common.connection_opened(b, true),
            Verdict {
                address_allowed: true,
                at_cap: true
            }
        );
        for peer in [a, a, b] {
            common.connection_closed(peer, true);
        }
        assert_eq!(common.connections(), 0);
        assert!(common.addresses.iter().all(|shard| shard.lock().is_empty()));
    }
}
