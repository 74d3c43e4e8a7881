//! Connections that are kept, and how many there may be to one place.
//!
//! Whoever wants to ask something takes a [`ConnectionPermit`] first, in the order of asking; there are as many as connections are
//! allowed. With it he takes a connection that is kept, or makes one. A connection goes back only when its last answer
//! was read to its end; one that is dropped is closed.

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

/// Where a connection leads to, and what may not be mixed with others.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ConnectionTarget {
    pub(super) is_tls: bool,
    /// A name or an address, without brackets.
    pub(super) host: String,
    pub(super) port: u16,
    /// Of no matter without TLS.
    pub(super) trust: CertificateTrust,
    pub(super) connections_max: u32,
}

/// A connection that nobody uses is kept so long: shorter than most servers do.
const IDLE: Duration = Duration::from_secs(50);
/// How often those that are over are looked for.
const SWEEP: Duration = Duration::from_secs(5);
/// An answer was read to its end; its connection is ready for the next one within this time or given up.
const SETTLE: Duration = Duration::from_secs(1);

/// All of them.
#[derive(Debug, Default)]
pub(super) struct HttpPool {
    berths: Mutex<HashMap<ConnectionTarget, Arc<TargetPool>>>,
    /// Somebody looks for connections that are over.
    is_swept: Mutex<bool>,
}

/// Those to one place.
#[derive(Debug)]
struct TargetPool {
    seats: Arc<Semaphore>,
    idle: Mutex<Vec<(HttpConnection, Instant)>>,
}

/// A connection. It is closed when this is dropped.
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

/// The right to use a connection to a place.
#[derive(Debug)]
pub(super) struct ConnectionPermit {
    berth: Arc<TargetPool>,
    _permit: OwnedSemaphorePermit,
}

impl HttpPool {
    /// Waits until there may be another connection to that place.
    pub(super) async fn acquire(
        self: &Arc<Self>,
        place: &ConnectionTarget,
        figures: &Arc<ClientMetrics>,
    ) -> ConnectionPermit {
        let berth = self.target_pool(place);
        let seats = Arc::clone(&berth.seats);
        let permit = match Arc::clone(&seats).try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                let _wait = figures.wait();
                let permit = seats.acquire_owned().await;
                permit.expect("nobody closes the semaphore")
            }
        };
        ConnectionPermit {
            berth,
            _permit: permit,
        }
    }

    fn target_pool(self: &Arc<Self>, place: &ConnectionTarget) -> Arc<TargetPool> {
        let mut berths = self.berths.lock();
        if let Some(berth) = berths.get(place) {
            return Arc::clone(berth);
        }
        let berth = Arc::new(TargetPool {
            seats: Arc::new(Semaphore::new(place.connections_max as usize)),
            idle: Mutex::default(),
        });
        berths.insert(place.clone(), Arc::clone(&berth));
        drop(berths);
        if !std::mem::replace(&mut *self.is_swept.lock(), true) {
            tokio::spawn(Arc::clone(self).close_idle());
        }
        berth
    }

    /// Lets go of connections that are over and of places to which there are none, until nothing is left.
    async fn close_idle(self: Arc<Self>) {
        loop {
            sleep(SWEEP).await;
            let mut berths = self.berths.lock();
            berths.retain(|_, berth| {
                let mut idle = berth.idle.lock();
                idle.retain(|(link, since)| !link.sender.is_closed() && since.elapsed() < IDLE);
                // Who has a seat, or waits for one, has a copy; a new one needs the lock that is held.
                !idle.is_empty() || Arc::strong_count(berth) > 1
            });
            if berths.is_empty() {
                *self.is_swept.lock() = false;
                return;
            }
        }
    }
}

impl ConnectionPermit {
    /// A connection that is kept and was not closed meanwhile, as far as is known.
    pub(super) fn take(&self) -> Option<HttpConnection> {
        let mut idle = self.berth.idle.lock();
        loop {
            let (link, since) = idle.pop()?;
            if link.sender.is_ready() && since.elapsed() < IDLE {
                return Some(link);
            }
        }
    }

    /// Gives back a connection whose last answer was read to its end.
    pub(super) fn return_connection(self, mut link: HttpConnection) {
        match link.sender.ready().now_or_never() {
            Some(Ok(())) => self.put(link),
            Some(Err(_)) => {}
            // Its own task has not looked yet.
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
        self.berth.idle.lock().push((link, Instant::now()));
    }
}
