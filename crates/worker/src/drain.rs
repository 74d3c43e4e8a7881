//! Drain: the closing of all connections, evenly over the drain time, before the worker ends. Applications stop first,
//! then clients are closed, then services stop and back ends are closed, and last the connections to other servers. If
//! another process takes over, services and back ends are closed at once, so that their publications reach the clients
//! of the new process.

use veche_frontends::ShutdownReason;
use veche_types::codes::CloseCode;

use crate::apps::AppHost;
use crate::worker::{ExternalRequest, Worker};

/// How far a drain has come in all workers of the process. Each worker reports its own progress with an
/// [`ExternalRequest`]; the driver counts these reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DrainProgress {
    /// Whether the applications of all workers have stopped.
    pub have_apps_stopped: bool,
    /// Whether no worker has a client any more.
    pub are_clients_gone: bool,
    /// Whether the services of all workers have ended.
    pub have_services_ended: bool,
}

/// A drain in progress: the clients at the connection indices `next..end` still have to be closed.
pub(crate) struct Drain {
    next: u32,
    end: u32,
    /// The time at which the first client is closed, in monotonic milliseconds like all times here.
    from_ms: u64,
    until_ms: u64,
    /// The end of the drain time.
    ends_ms: u64,
    /// The latest time at which the closing of connections to other servers begins.
    servers_ms: u64,
    apps: AppsStage,
    clients: ClientsStage,
    /// No connection with an index below this one belongs to a client any more.
    passed: u32,
    services: ServicesStage,
    /// The latest time at which services are requested to stop.
    services_from_ms: u64,
    /// The latest time at which the closing of back ends begins.
    back_ends_from_ms: u64,
    has_closed_back_ends: bool,
    /// Whether the closing of connections to other servers has begun. It begins after the closing of clients.
    has_stopped_servers: bool,
}

/// The progress of stopping applications.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd)]
enum AppsStage {
    Stopping,
    /// The applications of this worker have stopped.
    StoppedHere,
    /// The applications of all workers have stopped.
    StoppedEverywhere,
}

/// The progress of closing clients.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ClientsStage {
    /// This worker may still have clients.
    Connected,
    /// This worker has no clients left; other workers may.
    GoneHere,
    /// No worker has clients left.
    GoneEverywhere,
}

/// The progress of stopping services.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ServicesStage {
    Running,
    Stopping,
    /// The services of this worker have ended.
    EndedHere,
    /// The services of all workers have ended.
    EndedEverywhere,
}

/// Maximum time that services have to end after the request to stop, in milliseconds; then they are aborted.
const SERVICES_MS_MAX: u64 = 10_000;

/// Time for the final publications of applications to reach the clients before the clients are closed, in
/// milliseconds.
const LAST_PUBLICATIONS_MS: u64 = 20;

impl<A: AppHost, T> Worker<A, T> {
    /// Begins a drain that takes `within_ms` milliseconds. [`ExternalRequest::AppsStopped`] follows once the
    /// applications of this worker have stopped.
    pub fn handle_drain(&mut self, within_ms: u64, shutdown_reason: ShutdownReason) {
        self.shared.start_draining(shutdown_reason);
        // Applications stop before any connection is closed, since `app.stop` may send to
        // connections.
        self.with_apps(|apps, shared| apps.stop(shared));
        let began_ms = self.shared.now.mono_ms;
        let before = self.drain.take();
        let apps = before.as_ref().map(|drain| drain.apps);
        let clients = before.as_ref().map(|drain| drain.clients);
        let services = before.map_or(ServicesStage::Running, |drain| drain.services);
        let ends_ms = began_ms + within_ms;
        let servers_ms = ends_ms - within_ms / 20;
        if services == ServicesStage::Stopping {
            self.with_apps(|apps, shared| apps.stop_services(ends_ms, shared));
        }
        self.drain = Some(Drain {
            next: 0,
            end: self.slab.end(),
            // Clients are not closed during the first quarter of the drain time, unless applications stop earlier.
            from_ms: began_ms + within_ms / 4,
            // The last fifth of the drain time is reserved for closing handshakes.
            until_ms: began_ms + (within_ms - within_ms / 5),
            ends_ms,
            servers_ms,
            apps: match apps {
                None | Some(AppsStage::Stopping) => AppsStage::Stopping,
                Some(_) => AppsStage::StoppedHere,
            },
            clients: clients.unwrap_or(ClientsStage::Connected),
            passed: 0,
            services,
            services_from_ms: match shutdown_reason {
                // The remaining clients need the services, so services stop in the last tenth of the time.
                ShutdownReason::Stopping => ends_ms - within_ms / 10,
                // The new process starts its services only when those of this process have ended.
                ShutdownReason::Replaced => began_ms,
            },
            back_ends_from_ms: match shutdown_reason {
                // Until `servers_ms`, pushes of back ends still reach the remaining clients.
                ShutdownReason::Stopping => servers_ms,
                ShutdownReason::Replaced => began_ms,
            },
            has_closed_back_ends: false,
            has_stopped_servers: false,
        });
    }

    /// Handles the end of the drain time: aborts the remaining connections.
    pub fn handle_drain_over(&mut self) {
        for index in 0..self.slab.end() {
            if let Some(id) = self.slab.id_at(index) {
                self.handle_failed(id, "the server has stopped");
            }
        }
    }

    /// Handles the loss of commands for users of this worker, such as a disconnect or a refresh. Because any user may
    /// have been meant, all clients with a user are disconnected and have to connect again.
    pub fn handle_commands_lost(&mut self) {
        let (code, reason) = CloseCode::InsufficientState.parts();
        for index in 0..self.slab.end() {
            let id = self.slab.id_at(index);
            if let Some(id) = id.filter(|id| self.shared.hub.user_of(*id).is_some()) {
                let kick = (id, code, reason.to_owned());
                self.shared.requests.disconnects.push(kick);
            }
        }
    }

    /// Handles the progress of the drain in all workers of the process. Must be called in each turn of a drain, even if
    /// nothing has changed, since a drain that begins again needs it again. Without a drain it has no effect.
    pub fn handle_drain_progress(&mut self, progress: DrainProgress) {
        let now_ms = self.shared.now.mono_ms;
        let Some(drain) = &mut self.drain else {
            return;
        };
        if progress.have_apps_stopped && drain.apps != AppsStage::StoppedEverywhere {
            drain.apps = AppsStage::StoppedEverywhere;
            // The closing of clients may begin.
            drain.from_ms = drain.from_ms.min(now_ms + LAST_PUBLICATIONS_MS);
        }
        if progress.are_clients_gone {
            drain.clients = ClientsStage::GoneEverywhere;
        }
        if progress.have_services_ended {
            drain.services = ServicesStage::EndedEverywhere;
        }
    }

    /// Returns whether the worker is draining.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.drain.is_some()
    }

    /// Returns whether the drain has begun to close connections to other servers. From then on, new connections
    /// to other servers are refused.
    #[must_use]
    pub fn has_stopped_servers(&self) -> bool {
        self.drain
            .as_ref()
            .is_some_and(|drain| drain.has_stopped_servers)
    }

    /// Closes the clients that are due by now.
    pub(crate) fn drain_clients(&mut self) {
        let has_stopped = self.drain.is_some() && self.apps().is_none_or(AppHost::has_stopped);
        let Some(drain) = &mut self.drain else { return };
        if has_stopped && drain.apps == AppsStage::Stopping {
            drain.apps = AppsStage::StoppedHere;
            self.requests.push_back(ExternalRequest::AppsStopped);
            self.is_busy = true;
        }
        let now_ms = self.shared.now.mono_ms;
        if now_ms < drain.from_ms {
            return;
        }
        let elapsed = now_ms - drain.from_ms;
        let due = match drain.until_ms.saturating_sub(drain.from_ms) {
            0 => drain.end,
            within => (u64::from(drain.end) * elapsed.min(within) / within) as u32,
        };
        // The connection at index 0 is due immediately.
        let due = due.max(drain.end.min(1));
        let from = drain.next;
        drain.next = due.max(from);
        for index in from..due {
            if let Some(id) = self.slab.id_at(index) {
                self.with(id, |connection, shared| {
                    if connection.listener().is_some() && !connection.is_back_end() {
                        connection.drain(id, shared);
                    }
                });
            }
        }
    }

    /// Starts to close back ends at the scheduled time, or earlier if the process has no clients
    /// left that pushes could reach.
    pub(crate) fn drain_back_ends(&mut self) {
        let now_ms = self.shared.now.mono_ms;
        let Some(drain) = &mut self.drain else { return };
        let is_due =
            drain.clients == ClientsStage::GoneEverywhere || now_ms >= drain.back_ends_from_ms;
        if drain.has_closed_back_ends || !is_due {
            return;
        }
        drain.has_closed_back_ends = true;
        for index in 0..self.slab.end() {
            if let Some(id) = self.slab.id_at(index) {
                self.with(id, |connection, shared| {
                    if connection.is_back_end() {
                        connection.drain(id, shared);
                    }
                });
            }
        }
    }

    /// Reports once this worker has no client left. A connection whose session has ended and whose transport is still
    /// open does not count, so a peer that does not close its transport delays nothing.
    fn check_clients_gone(&mut self) {
        let Some(drain) = &mut self.drain else { return };
        if drain.clients != ClientsStage::Connected || drain.apps != AppsStage::StoppedEverywhere {
            return;
        }
        let end = self.slab.end();
        while drain.passed < end && !self.slab.is_client(drain.passed) {
            drain.passed += 1;
        }
        if drain.passed < end || self.apps().is_some_and(AppHost::has_clients) {
            return;
        }
        if let Some(drain) = &mut self.drain {
            drain.clients = ClientsStage::GoneHere;
        }
        self.requests.push_back(ExternalRequest::ClientsGone);
        self.is_busy = true;
    }

    /// Requests services to stop at the scheduled time, or earlier if the process has no clients
    /// left, and reports when they have ended.
    pub(crate) fn drain_services(&mut self) {
        self.check_clients_gone();
        let now_ms = self.shared.now.mono_ms;
        let Some(drain) = &mut self.drain else { return };
        let is_due =
            drain.clients == ClientsStage::GoneEverywhere || now_ms >= drain.services_from_ms;
        if drain.services == ServicesStage::Running && is_due {
            drain.services = ServicesStage::Stopping;
            let until_ms = drain.ends_ms.min(now_ms + SERVICES_MS_MAX);
            self.with_apps(|apps, shared| apps.stop_services(until_ms, shared));
        }
        let have_ended = self.apps().is_none_or(AppHost::have_services_ended);
        if let Some(drain) = &mut self.drain
            && drain.services == ServicesStage::Stopping
            && have_ended
        {
            drain.services = ServicesStage::EndedHere;
            self.requests.push_back(ExternalRequest::ServicesEnded);
            self.is_busy = true;
        }
    }

    /// Closes the connections to other servers at the scheduled time, or earlier if no application,
    /// client or service needs them.
    pub(crate) fn drain_servers(&mut self) {
        let now_ms = self.shared.now.mono_ms;
        let has_clients = self.shared.stats.connections.read() > 0;
        let Some(drain) = &mut self.drain else { return };
        // Before `servers_ms` services may use the connections to other servers; the time after it
        // is for closing handshakes.
        let is_late = now_ms >= drain.servers_ms;
        let is_needed = drain.apps != AppsStage::StoppedEverywhere
            || has_clients
            || drain.services != ServicesStage::EndedEverywhere;
        if drain.has_stopped_servers || is_needed && !is_late {
            return;
        }
        drain.has_stopped_servers = true;
        for index in 0..self.slab.end() {
            if let Some(id) = self.slab.id_at(index) {
                self.with(id, |connection, shared| {
                    if connection.listener().is_none() {
                        connection.drain(id, shared);
                    }
                });
            }
        }
    }
}
