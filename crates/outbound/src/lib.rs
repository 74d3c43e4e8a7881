//! Outgoing calls: databases, other servers, host names. Performs [calls](veche_calls::Call) on a tokio runtime.
//!
//! A worker has a [`Port`]: it submits a turn's calls at once and takes outcomes when it is woken. Nothing here knows
//! the origin or purpose of a call. Each kind of call is a file of its own and a row in [`perform`].

pub mod acme;
mod authority;
mod count;
pub mod engine;
mod fastcgi;
mod http;
mod latency;
mod metrics;
mod mysql;
pub mod password;
mod perform;
mod pool;
mod port;
mod redis;
mod resolve;

pub use count::AtomicCounter;
pub use latency::LatencyHistogram;
pub use metrics::{ClientKind, ClientMetrics, OutboundMetrics, WAIT_BUCKETS_MS};
pub use port::{CALLS_MAX, Port};

use std::io;
use std::sync::{Arc, OnceLock};

use tokio::runtime::{Builder, Runtime};
use veche_calls::{Call, CallError, CallErrorKind, CallOutcome};
use veche_tls::TrustStores;

use perform::ClientCache;

/// The outgoing side of a process. Its threads start with the first call; clones share them.
#[derive(Clone, Debug, Default)]
pub struct Outbound(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    runtime: OnceLock<Runtime>,
    clients: Arc<ClientCache>,
}

/// The number of cores per thread of the runtime, which mostly waits.
const CORES_PER_THREAD: usize = 4;

impl Outbound {
    /// Creates a worker's port. `wake` is called from another thread when outcomes are available, and not again before
    /// they were taken.
    #[must_use]
    pub fn port(&self, wake: impl Fn() + Send + Sync + 'static) -> Port {
        Port::new(self.clone(), Box::new(wake))
    }

    /// Performs a call outside of workers; `done` receives the outcome on a thread of the runtime, or on this one if
    /// there is none.
    pub fn ask(&self, call: Call, done: impl FnOnce(CallOutcome) + Send + 'static) {
        let runtime = match self.runtime() {
            Ok(runtime) => runtime,
            Err(error) => {
                let words = format!("can't start threads for outgoing calls: {error}");
                return done(Err(CallError::new(CallErrorKind::Unreachable, words)));
            }
        };
        let clients = Arc::clone(&self.0.clients);
        runtime.spawn(async move { done(perform::perform(&clients, call).await) });
    }

    /// Returns the counters of calls.
    #[must_use]
    pub fn metrics(&self) -> &OutboundMetrics {
        &self.0.clients.metrics
    }

    /// Returns the trust stores of its TLS clients, for other outgoing connections of the process.
    #[must_use]
    pub fn trusts(&self) -> &Arc<TrustStores> {
        self.0.clients.trusts()
    }

    fn runtime(&self) -> io::Result<&Runtime> {
        let inner = &*self.0;
        if let Some(runtime) = inner.runtime.get() {
            return Ok(runtime);
        }
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let runtime = Builder::new_multi_thread()
            .worker_threads(cores.div_ceil(CORES_PER_THREAD))
            .thread_name("outbound")
            .enable_all()
            .build()?;
        // Another worker may have been first; the surplus runtime ends in the background.
        if let Err(runtime) = inner.runtime.set(runtime) {
            runtime.shutdown_background();
        }
        inner
            .runtime
            .get()
            .ok_or_else(|| io::ErrorKind::Other.into())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
