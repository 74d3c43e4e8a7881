//! Drain: applications stop first, then clients are closed evenly over the drain time, then services stop and back ends
//! are closed, and last the connections to other servers. If another process takes over, services and back ends are
//! closed at once, so that their publications reach the clients of the new process.

use veche_frontends::ShutdownReason;
use veche_types::codes::CloseCode;

use crate::apps::AppHost;
use crate::worker::{ExternalRequest, Worker};

/// A drain in progress: the connections with indexes `next..end` still have to be closed.
pub(crate) struct Drain {
    next: u32,
    end: u32,
    /// Start of closing clients.
    from_ms: u64,
    until_ms: u64,
    /// End of the drain time.
    ends_ms: u64,
    /// Latest start of closing connections to other servers.
    servers_ms: u64,
    apps: AppsStage,
    clients: ClientsStage,
    /// No index below this one belongs to a client.
    passed: u32,
    services: ServicesStage,
    /// Latest time to stop services.
    services_from_ms: u64,
    /// Latest start of closing back ends.
    back_ends_from_ms: u64,
    has_closed_back_ends: bool,
    /// Whether closing of connections to other servers has begun; it follows that of clients.
    has_stopped_servers: bool,
}

/// Progress of stopping applications.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd)]
enum AppsStage {
    Stopping,
    /// The applications of this worker have stopped.
    StoppedHere,
    /// The applications of all workers have stopped.
    StoppedEverywhere,
}

/// Progress of closing clients.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ClientsStage {
    /// This worker may still have clients.
    Connected,
    /// This worker has no clients left; other workers may.
    GoneHere,
    /// No worker has clients left.
    GoneEverywhere,
}

/// Progress of stopping services.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ServicesStage {
    Running,
    Stopping,
    /// The services of this worker have ended.
    EndedHere,
    /// The services of all workers have ended.
    EndedEverywhere,
}

/// Services that have not ended after this time are stopped.
const SERVICES_MS_MAX: u64 = 10_000;

/// Time for the final publications of applications to reach clients before these are closed.
const LAST_PUBLICATIONS_MS: u64 = 20;

impl<A: AppHost, T> Worker<A, T> {
    /// Begins to drain within this many milliseconds. [`ExternalRequest::AppsStopped`] follows once the applications of this
    /// worker have stopped.
    pub fn handle_drain(&mut self, within_ms: u64, shutdown_reason: ShutdownReason) {
        self.shared.start_draining(shutdown_reason);
        // Before connections are closed, since `app.stop` may send to them.
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
            // Applications may use the first quarter of the time.
            from_ms: began_ms + within_ms / 4,
            // The last fifth is reserved for closing handshakes.
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
                // Clients may depend on services, so these run until the clients are closed.
                ShutdownReason::Stopping => ends_ms - within_ms / 10,
                // Services of the other process wait for these to end.
                ShutdownReason::Replaced => began_ms,
            },
            back_ends_from_ms: match shutdown_reason {
                // Pushes of back ends still reach the remaining clients.
                ShutdownReason::Stopping => servers_ms,
                ShutdownReason::Replaced => began_ms,
            },
            has_closed_back_ends: false,
            has_stopped_servers: false,
        });
    }

    /// Ends the drain: remaining connections are aborted.
    pub fn handle_drain_over(&mut self) {
        for index in 0..self.slab.end() {
            if let Some(id) = self.slab.id_at(index) {
                self.handle_failed(id, "the server has stopped");
            }
        }
    }

    /// Handles lost commands about users of this worker, such as a disconnect or a refresh: each client with a user has
    /// to connect again.
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

    /// The applications of all workers have stopped.
    pub fn handle_apps_stopped(&mut self) {
        let now_ms = self.shared.now.mono_ms;
        if let Some(drain) = &mut self.drain
            && drain.apps != AppsStage::StoppedEverywhere
        {
            drain.apps = AppsStage::StoppedEverywhere;
            drain.from_ms = drain.from_ms.min(now_ms + LAST_PUBLICATIONS_MS);
        }
    }

    /// Handles the end of the last client of all workers.
    pub fn handle_clients_gone(&mut self) {
        if let Some(drain) = &mut self.drain {
            drain.clients = ClientsStage::GoneEverywhere;
        }
    }

    /// Handles that the services of all workers have ended.
    pub fn handle_services_ended(&mut self) {
        if let Some(drain) = &mut self.drain {
            drain.services = ServicesStage::EndedEverywhere;
        }
    }

    /// Returns whether the worker is draining.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.drain.is_some()
    }

    /// Returns whether new outbound connections are refused.
    #[must_use]
    pub fn has_stopped_servers(&self) -> bool {
        self.drain
            .as_ref()
            .is_some_and(|drain| drain.has_stopped_servers)
    }

    /// Closes the clients that are due.
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
        // The first connection is due immediately.
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

    /// Starts to close back ends once the process has no clients left that they could reach, or when they are due.
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

    /// Reports when the last client of this worker is gone. Connections with only a transport left do not count: a peer
    /// that does not close it delays nothing.
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

    /// Stops services once the process has no clients left or the time has come, and reports their end.
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

    /// Closes the connections to other servers once no application, client or service needs them, or when they are due.
    pub(crate) fn drain_servers(&mut self) {
        let now_ms = self.shared.now.mono_ms;
        let has_clients = self.shared.stats.connections.read() > 0;
        let Some(drain) = &mut self.drain else { return };
        // Services may use them after the request to stop; the remaining time is for closing handshakes.
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
