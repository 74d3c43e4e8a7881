//! The messages to a worker, and the start of a drain.

use std::sync::Arc;

use veche_apps::{AppSet, AppWorkerMessage};
use veche_frontends::{FrontendConfig, ShutdownReason};
use veche_net::Driver;
use veche_worker::WorkerMessage;

use super::{WorkerApps, WorkerState};
use crate::tls_listeners::TlsAcceptors;

/// A message to a worker from another worker, the control thread or the thread of a cluster's node. `M` is the type of
/// messages between applications.
pub(crate) enum WorkerMail<M = AppWorkerMessage> {
    /// A message of another worker.
    Worker(WorkerMessage<M>),
    /// A new configuration, its outbox limit in bytes, and the code of applications.
    Reload(Arc<FrontendConfig>, usize, AppSet),
    /// TLS acceptors of renewed or reloaded certificates, by listener.
    Acceptors(TlsAcceptors),
    /// Starts the services of this process, since those of the previous process have ended.
    StartServices,
    /// Closes all connections, spread over this many milliseconds, for the given reason.
    Drain(u64, ShutdownReason),
    /// Cuts off the connections that are left, at the end of the drain.
    CutOff,
    /// Closes the connections of clients, since commands of other nodes for these clients were
    /// lost.
    Reconnect,
}

impl<A: WorkerApps> WorkerState<A> {
    pub(super) fn start_draining<D: Driver>(
        &mut self,
        driver: &mut D,
        within_ms: u64,
        shutdown_reason: ShutdownReason,
    ) {
        self.worker.handle_drain(within_ms, shutdown_reason);
        self.set_accepting(driver, self.accepting.in_drain(shutdown_reason));
    }
}
