//! Traits through which a worker reaches applications, history and hooks. The server and tests have different
//! implementations of them.

use veche_apps::{AppHosts, AppSet, DialAction};
use veche_archive::{AppendError, ArchiveRecord, DurableBatch, Writer};
use veche_frontends::Context;
use veche_frontends::hooks::{HookDecision, HookRequest};
use veche_webhooks::hooks::{HookClient, OnDecision};
use veche_worker::AppHost;

/// The applications of a worker, as the worker's loop uses them.
pub(crate) trait WorkerApps: AppHost {
    /// Takes the applications' requests to dial or drop outgoing connections.
    fn take_asked(&mut self) -> Vec<DialAction>;

    /// Replaces the code of applications; connections remain.
    fn reload(&mut self, app_set: &AppSet, shared: &mut Context);

    /// Starts the services. They must not start earlier, while services of a replaced process may still be running.
    fn start_services(&mut self);
}

impl WorkerApps for AppHosts {
    fn take_asked(&mut self) -> Vec<DialAction> {
        self.take_dial_actions()
    }

    fn reload(&mut self, app_set: &AppSet, shared: &mut Context) {
        self.reload(app_set, shared);
    }

    fn start_services(&mut self) {
        self.start_services();
    }
}

/// Stores the history of channels. See [`Writer`], which has these methods.
pub(crate) trait HistoryLog {
    fn append(&mut self, records: Vec<ArchiveRecord>) -> Result<u64, AppendError>;

    fn durable(&mut self) -> Option<DurableBatch>;

    fn is_failing(&self) -> bool;

    fn is_closed(&self) -> bool;
}

impl HistoryLog for Writer {
    fn append(&mut self, records: Vec<ArchiveRecord>) -> Result<u64, AppendError> {
        self.append(records)
    }

    fn durable(&mut self) -> Option<DurableBatch> {
        self.take_durable()
    }

    fn is_failing(&self) -> bool {
        self.is_failing()
    }

    fn is_closed(&self) -> bool {
        self.is_closed()
    }
}

/// Calls hooks that decide on clients' commands: see [`HookClient::ask`].
pub(crate) trait HookExecutor {
    fn ask(&self, request: HookRequest, done: OnDecision) -> Option<HookDecision>;
}

impl HookExecutor for HookClient {
    fn ask(&self, request: HookRequest, done: OnDecision) -> Option<HookDecision> {
        self.ask(request, done)
    }
}
