//! A pool of reusable connections with a limit.
//!
//! Waiting calls are served in order. An idle connection is checked before it is handed out, so calls never get a dead one. A
//! connection that is not explicitly returned is closed, so a call that was cancelled or timed out leaves no half-read
//! connection behind.

pub(crate) mod active_uses;

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, timeout};
use veche_calls::{CallError, CallErrorKind};

use crate::metrics::{BusyGuard, ClientMetrics, ConnectionGuard};
use active_uses::{ActiveUse, ActiveUses};

/// Establishes, checks and closes the connections of a pool.
pub(crate) trait Connector: Send + Sync + 'static {
    type Connection: Send + fmt::Debug + 'static;

    /// Establishes a connection that can be used at once.
    fn dial(&self) -> impl Future<Output = Result<Self::Connection, CallError>> + Send;

    /// Returns whether an idle connection still responds.
    fn is_alive(&self, connection: &mut Self::Connection) -> impl Future<Output = bool> + Send;

    /// Closes a connection with an unread response.
    fn abort(&self, connection: Self::Connection) -> impl Future<Output = ()> + Send;
}

/// The limits of a pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolLimits {
    pub(crate) size: usize,
    pub(crate) connect_timeout: Duration,
    pub(crate) wait_timeout: Duration,
    pub(crate) idle_timeout: Duration,
}

/// The connections to one server.
#[derive(Debug)]
pub(crate) struct ConnectionPool<D: Connector> {
    /// The kind of server, for error texts.
    kind: &'static str,
    /// The name of the pool, for error texts.
    name: String,
    dial: D,
    limits: PoolLimits,
    free: Arc<Semaphore>,
    held: Arc<ActiveUses>,
    /// Idle connections with the time at which they became idle; the longest idle first.
    idle: Mutex<VecDeque<(CountedConnection<D>, Instant)>>,
    figures: Arc<ClientMetrics>,
}

/// A connection with its metrics guard.
type CountedConnection<D> = (<D as Connector>::Connection, ConnectionGuard);

/// How often idle connections are checked for expiry within one idle timeout.
const CHECKS_PER_TIMEOUT: u32 = 4;

impl<D: Connector> ConnectionPool<D> {
    /// Creates an empty pool. Has to be called within the tokio runtime.
    pub(crate) fn new(
        kind: &'static str,
        name: String,
        dial: D,
        limits: PoolLimits,
        figures: Arc<ClientMetrics>,
    ) -> Arc<Self> {
        let pool = Arc::new(Self {
            kind,
            name,
            dial,
            limits,
            free: Arc::new(Semaphore::new(limits.size)),
            held: Arc::default(),
            idle: Mutex::default(),
            figures,
        });
        tokio::spawn(close_idle(Arc::downgrade(&pool), limits.idle_timeout));
        pool
    }

    /// Returns a checked connection, after waiting for a free one. `use_text` describes the use for errors.
    pub(crate) async fn take(
        self: &Arc<Self>,
        use_text: String,
    ) -> Result<PooledConnection<D>, CallError> {
        let permit = self.permit(use_text).await?;
        let alive = loop {
            // Takes the most recently used connection, so that surplus connections reach the idle limit and are closed.
            let Some((mut open, _)) = self.idle.lock().pop_back() else {
                break None;
            };
            match timeout(self.limits.connect_timeout, self.dial.is_alive(&mut open.0)).await {
                Ok(true) => break Some(open),
                Ok(false) => {}
                // The check timed out. The checks of the other idle connections would time out too,
                // so all are closed.
                Err(_) => self.idle.lock().clear(),
            }
        };
        let (connection, connected) = match alive {
            Some(open) => open,
            None => self.connect().await?,
        };
        Ok(PooledConnection {
            of: Some(Of {
                connection,
                connected,
                pool: Arc::clone(self),
                permit,
            }),
            is_midway: false,
        })
    }

    async fn permit(&self, use_text: String) -> Result<Permit, CallError> {
        let free = Arc::clone(&self.free);
        let permit = match Arc::clone(&free).try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                let _waiting = self.figures.wait();
                let PoolLimits {
                    size, wait_timeout, ..
                } = self.limits;
                let Ok(Ok(permit)) = timeout(wait_timeout, free.acquire_owned()).await else {
                    let words = format!(
                        "{}: no free connection within {wait_timeout:?}: all {size} connections of the pool {:?} are in use: {}",
                        self.kind,
                        self.name,
                        self.held.describe()
                    );
                    return Err(CallError::new(CallErrorKind::PoolFull, words));
                };
                permit
            }
        };
        Ok(Permit {
            place: self.held.begin(use_text),
            _busy: self.figures.used(),
            _free: permit,
        })
    }

    async fn connect(&self) -> Result<CountedConnection<D>, CallError> {
        let within = self.limits.connect_timeout;
        let connection = timeout(within, self.dial.dial()).await;
        let connection = connection.unwrap_or_else(|_| {
            let words = format!("{}: no connection within {within:?}", self.kind);
            Err(CallError::new(CallErrorKind::Unreachable, words))
        })?;
        Ok((connection, self.figures.connected()))
    }
}

/// The right to use one of the pool's connections.
#[derive(Debug)]
struct Permit {
    place: ActiveUse,
    _busy: BusyGuard,
    /// Dropped last, because a waiting call may open a connection as soon as this permit is free.
    _free: OwnedSemaphorePermit,
}

/// A connection in use. Dropping it closes it.
#[derive(Debug)]
pub(crate) struct PooledConnection<D: Connector> {
    /// `None` only while the value is being dropped.
    of: Option<Of<D>>,
    /// Whether a response is pending, so that the connection can't be reused.
    is_midway: bool,
}

#[derive(Debug)]
struct Of<D: Connector> {
    connection: D::Connection,
    connected: ConnectionGuard,
    pool: Arc<ConnectionPool<D>>,
    /// Dropped last, so that a waiting call gets the permit only after the connection has closed.
    permit: Permit,
}

impl<D: Connector> PooledConnection<D> {
    /// Starts an exchange; until [`finish_use`](Self::finish_use) is called, the connection can't be reused.
    pub(crate) fn begin(&mut self) -> &mut D::Connection {
        self.is_midway = true;
        self.connection()
    }

    /// Changes the description of the current use.
    pub(crate) fn set_use(&self, text: String) {
        if let Some(of) = &self.of {
            of.permit.place.set(text);
        }
    }

    /// Ends an exchange whose response was read or is not expected any more.
    pub(crate) fn finish_use(&mut self) {
        self.is_midway = false;
    }

    pub(crate) fn connection(&mut self) -> &mut D::Connection {
        &mut self.of.as_mut().expect("present until dropped").connection
    }

    /// Puts the connection back into the pool. Its session must be in its initial state.
    pub(crate) fn give_back(mut self) {
        if let Some(of) = self.of.take() {
            let open = (of.connection, of.connected);
            of.pool.idle.lock().push_back((open, Instant::now()));
        }
    }
}

impl<D: Connector> Drop for PooledConnection<D> {
    fn drop(&mut self) {
        if !self.is_midway {
            return;
        }
        if let (Some(of), Ok(runtime)) = (self.of.take(), Handle::try_current()) {
            // The permit is held until the server has closed the connection too, so that the server
            // never sees more connections than the limit.
            runtime.spawn(async move {
                let within = of.pool.limits.connect_timeout;
                let _ = timeout(within, of.pool.dial.abort(of.connection)).await;
                drop((of.connected, of.permit));
            });
        }
    }
}

/// Closes idle connections while the pool exists.
async fn close_idle<D: Connector>(pool: Weak<ConnectionPool<D>>, idle_timeout: Duration) {
    loop {
        sleep(idle_timeout / CHECKS_PER_TIMEOUT).await;
        let Some(pool) = pool.upgrade() else { return };
        let mut idle = pool.idle.lock();
        let old = idle
            .iter()
            .take_while(|(_, since)| since.elapsed() >= idle_timeout);
        let old = old.count();
        let old: Vec<_> = idle.drain(..old).collect();
        drop(idle);
        drop(old);
    }
}
