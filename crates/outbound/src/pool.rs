//! Connections that are used again, at most so many at once.
//!
//! Whoever has to wait is served in order. What is handed out has just answered: an idle connection is asked first, so a
//! dead one never gets to anybody. What is not given back on purpose is closed: a call that was cancelled or took too
//! long leaves nothing behind.

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

/// How connections come about.
pub(crate) trait Dial: Send + Sync + 'static {
    type Connection: Send + fmt::Debug + 'static;

    /// A new one.
    fn dial(&self) -> impl Future<Output = Result<Self::Connection, CallError>> + Send;

    /// Whether one that was idle still answers.
    fn is_alive(&self, connection: &mut Self::Connection) -> impl Future<Output = bool> + Send;

    /// Ends one on which an answer is still to come.
    fn abort(&self, connection: Self::Connection) -> impl Future<Output = ()> + Send;
}

/// Limits of a pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolLimits {
    pub(crate) size: usize,
    pub(crate) connect_timeout: Duration,
    pub(crate) wait_timeout: Duration,
    pub(crate) idle_timeout: Duration,
}

/// The connections to one server.
#[derive(Debug)]
pub(crate) struct ConnectionPool<D: Dial> {
    /// What is spoken, for words.
    kind: &'static str,
    /// For words as well.
    name: String,
    dial: D,
    limits: PoolLimits,
    free: Arc<Semaphore>,
    held: Arc<ActiveUses>,
    /// With the time since when they are idle: the longest first.
    idle: Mutex<VecDeque<(CountedConnection<D>, Instant)>>,
    figures: Arc<ClientMetrics>,
}

/// A connection that is counted.
type CountedConnection<D> = (<D as Dial>::Connection, ConnectionGuard);

/// How often idle connections are looked at: so many times in the time that they may be idle.
const LOOKS: u32 = 4;

impl<D: Dial> ConnectionPool<D> {
    /// To be called on the runtime.
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

    /// A connection that answers, and what it is for. Waits for one to be free.
    pub(crate) async fn take(
        self: &Arc<Self>,
        use_text: String,
    ) -> Result<PooledConnection<D>, CallError> {
        let permit = self.permit(use_text).await?;
        let alive = loop {
            // Of those that were used last: the others may be closed one day.
            let Some((mut open, _)) = self.idle.lock().pop_back() else {
                break None;
            };
            match timeout(self.limits.connect_timeout, self.dial.is_alive(&mut open.0)).await {
                Ok(true) => break Some(open),
                Ok(false) => {}
                // Nobody says no either: the others would be as silent.
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
                        "{}: no free connection within {wait_timeout:?}: all {size} of the pool {:?} are in use: {}",
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
            let words = format!("{}: not connected within {within:?}", self.kind);
            Err(CallError::new(CallErrorKind::Unreachable, words))
        })?;
        Ok((connection, self.figures.connected()))
    }
}

/// The right to a connection.
#[derive(Debug)]
struct Permit {
    place: ActiveUse,
    _busy: BusyGuard,
    /// Freed last.
    _free: OwnedSemaphorePermit,
}

/// A connection in use. Dropped it is closed.
#[derive(Debug)]
pub(crate) struct PooledConnection<D: Dial> {
    /// `None` only while it goes.
    of: Option<Of<D>>,
    /// An answer is still to come.
    is_midway: bool,
}

#[derive(Debug)]
struct Of<D: Dial> {
    connection: D::Connection,
    connected: ConnectionGuard,
    pool: Arc<ConnectionPool<D>>,
    /// Freed last.
    permit: Permit,
}

impl<D: Dial> PooledConnection<D> {
    /// For something that has an answer; until [`finish_use`](Self::settled) is called, the connection is of no other use.
    pub(crate) fn begin(&mut self) -> &mut D::Connection {
        self.is_midway = true;
        self.connection()
    }

    /// What it is for from now on.
    pub(crate) fn set_use(&self, text: String) {
        if let Some(of) = &self.of {
            of.permit.place.set(text);
        }
    }

    /// The answer has come, or none will.
    pub(crate) fn finish_use(&mut self) {
        self.is_midway = false;
    }

    pub(crate) fn connection(&mut self) -> &mut D::Connection {
        &mut self
            .of
            .as_mut()
            .expect("there until it is dropped")
            .connection
    }

    /// For others to use: whoever used it has left nothing behind on it.
    pub(crate) fn give_back(mut self) {
        if let Some(of) = self.of.take() {
            let open = (of.connection, of.connected);
            of.pool.idle.lock().push_back((open, Instant::now()));
        }
    }
}

impl<D: Dial> Drop for PooledConnection<D> {
    fn drop(&mut self) {
        if !self.is_midway {
            return;
        }
        if let (Some(of), Ok(runtime)) = (self.of.take(), Handle::try_current()) {
            // Its place is taken until the other side has let go too.
            runtime.spawn(async move {
                let within = of.pool.limits.connect_timeout;
                let _ = timeout(within, of.pool.dial.abort(of.connection)).await;
                drop((of.connected, of.permit));
            });
        }
    }
}

/// Closes connections that nobody has used for long, as long as there is their pool.
async fn close_idle<D: Dial>(pool: Weak<ConnectionPool<D>>, idle_timeout: Duration) {
    loop {
        sleep(idle_timeout / LOOKS).await;
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
