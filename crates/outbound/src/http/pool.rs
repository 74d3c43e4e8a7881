//! Idle connections, and the limit of connections to one target.
//!
//! A request first acquires a [`ConnectionPermit`], in order of arrival; the number of permits is
//! the maximum number of connections. It then takes an idle connection or establishes one. A
//! connection is returned only after its last response was read to its end; a dropped connection is
//! closed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use http_body_util::Full;
use hyper::client::conn::http1::SendRequest;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};
use veche_calls::CertificateTrust;

use crate::metrics::ClientMetrics;

/// The target of a connection, with all settings that the uses of a shared connection must have in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ConnectionTarget {
    pub(super) is_tls: bool,
    /// A host name or an address, without brackets.
    pub(super) host: String,
    pub(super) port: u16,
    /// The trusted certificates; ignored without TLS.
    pub(super) trust: CertificateTrust,
    pub(super) connections_max: u32,
}

/// The time for which an idle connection is kept. It is shorter than the idle timeout of most servers.
const IDLE: Duration = Duration::from_secs(50);
/// The interval of removing closed connections.
const SWEEP: Duration = Duration::from_secs(5);
/// The time within which a connection has to become ready after a response was read.
const SETTLE: Duration = Duration::from_secs(1);

/// The pools of all targets.
#[derive(Debug, Default)]
pub(super) struct HttpPool {
    pools: Mutex<HashMap<ConnectionTarget, Arc<TargetPool>>>,
    /// Whether the cleanup task is running.
    is_swept: Mutex<bool>,
}

/// The connections to one target.
#[derive(Debug)]
struct TargetPool {
    permits: Arc<Semaphore>,
    idle: Mutex<Vec<(HttpConnection, Instant)>>,
}

/// A connection. Dropping it closes it.
#[derive(Debug)]
pub(super) struct HttpConnection {
    pub(super) sender: SendRequest<Full<Bytes>>,
    pub(super) task: AbortHandle,
}

impl Drop for HttpConnection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The right to use a connection to a target.
#[derive(Debug)]
pub(super) struct ConnectionPermit {
    pool: Arc<TargetPool>,
    _permit: OwnedSemaphorePermit,
}

impl HttpPool {
    /// Waits for a permit for a target.
    pub(super) async fn acquire(
        self: &Arc<Self>,
        place: &ConnectionTarget,
        figures: &Arc<ClientMetrics>,
    ) -> ConnectionPermit {
        let pool = self.target_pool(place);
        let permits = Arc::clone(&pool.permits);
        let permit = match Arc::clone(&permits).try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                let _wait = figures.wait();
                let permit = permits.acquire_owned().await;
                permit.expect("the semaphore is never closed")
            }
        };
        ConnectionPermit {
            pool,
            _permit: permit,
        }
    }

    fn target_pool(self: &Arc<Self>, place: &ConnectionTarget) -> Arc<TargetPool> {
        let mut pools = self.pools.lock();
        if let Some(pool) = pools.get(place) {
            return Arc::clone(pool);
        }
        let pool = Arc::new(TargetPool {
            permits: Arc::new(Semaphore::new(place.connections_max as usize)),
            idle: Mutex::default(),
        });
        pools.insert(place.clone(), Arc::clone(&pool));
        drop(pools);
        if !std::mem::replace(&mut *self.is_swept.lock(), true) {
            tokio::spawn(Arc::clone(self).close_idle());
        }
        pool
    }

    /// Repeatedly removes connections that are closed or have been idle for [`IDLE`], and targets that are not in use.
    /// Returns once no target is left; the next target to be added starts this task again.
    async fn close_idle(self: Arc<Self>) {
        loop {
            sleep(SWEEP).await;
            let mut pools = self.pools.lock();
            pools.retain(|_, pool| {
                let mut idle = pool.idle.lock();
                idle.retain(|(link, since)| !link.sender.is_closed() && since.elapsed() < IDLE);
                // Holders of a permit and waiting requests have a clone of the `Arc`. No clone can be added meanwhile, since
                // that requires the lock held here.
                !idle.is_empty() || Arc::strong_count(pool) > 1
            });
            if pools.is_empty() {
                *self.is_swept.lock() = false;
                return;
            }
        }
    }
}

impl ConnectionPermit {
    /// Takes an idle connection that appears to be open.
    pub(super) fn take(&self) -> Option<HttpConnection> {
        let mut idle = self.pool.idle.lock();
        loop {
            let (link, since) = idle.pop()?;
            if link.sender.is_ready() && since.elapsed() < IDLE {
                return Some(link);
            }
        }
    }

    /// Puts a connection whose last response was read to its end back into the pool.
    pub(super) fn return_connection(self, mut link: HttpConnection) {
        match link.sender.ready().now_or_never() {
            Some(Ok(())) => self.put(link),
            Some(Err(_)) => {}
            // The connection's own task has not yet noticed that the response is complete.
            None => {
                tokio::spawn(async move {
                    if let Ok(Ok(())) = timeout(SETTLE, link.sender.ready()).await {
                        self.put(link);
                    }
                });
            }
        }
    }

    fn put(self, link: HttpConnection) {
        self.pool.idle.lock().push((link, Instant::now()));
    }
}
