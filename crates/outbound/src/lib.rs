//! Outgoing calls to databases and other servers, and lookups of host names: performs [calls](veche_calls::Call) on a tokio
//! runtime.
//!
//! Each worker has a [`Port`], through which it submits the calls of a turn together and takes the outcomes when it is
//! woken. The origin and the purpose of a call do not matter here. Each kind of call has a file of its own and a match
//! arm in [`perform`].

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

/// The executor of a process's outgoing calls. Its threads start with the first call; clones share them.
#[derive(Clone, Debug, Default)]
pub struct Outbound(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    runtime: OnceLock<Runtime>,
    clients: Arc<ClientCache>,
}

/// The number of cores per thread of the tokio runtime. Few threads suffice, since they mostly wait for I/O.
const CORES_PER_THREAD: usize = 4;

impl Outbound {
    /// Creates a worker's port. `wake` is called from another thread when outcomes are available, and not again until they have
    /// been taken.
    #[must_use]
    pub fn port(&self, wake: impl Fn() + Send + Sync + 'static) -> Port {
        Port::new(self.clone(), Box::new(wake))
    }

    /// Performs a call for code outside of workers. `done` receives the outcome on a thread of the runtime, or on the calling
    /// thread if the runtime can't be started.
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

    /// Returns the trust stores of the TLS clients, which other outgoing connections of the process share.
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
        // If another worker has set the runtime first, this surplus runtime is shut down in the background.
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
