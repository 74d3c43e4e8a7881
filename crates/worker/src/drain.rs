//! A drain: applications stop first, then clients close one after the other over its time, then services stop and back ends
//! are told, then the connections to other servers close. Where another process takes over, services and back ends are told
//! at once: what they publish is to reach the clients of that one.

use veche_frontends::Parting;
use veche_types::codes::CloseCode;

use crate::apps::AppHost;
use crate::worker::{Request, Worker};

/// A drain under way: the connections `next..end` by index are still to be told.
pub(crate) struct Drain {
    next: u32,
    end: u32,
    /// Clients are told from then on.
    from_ms: u64,
    until_ms: u64,
    /// The time of the drain is over.
    ends_ms: u64,
    /// Connections to other servers are told at the latest then.
    servers_ms: u64,
    apps: AppsStage,
    clients: ClientsStage,
    /// Below this index no client is left.
    passed: u32,
    services: ServicesStage,
    /// Services are told at the latest then.
    services_from_ms: u64,
    /// Back ends start to close then at the latest.
    back_ends_from_ms: u64,
    has_told_back_ends: bool,
    /// Connections to other servers are told after those of clients.
    has_told_servers: bool,
}

/// How far applications are with what they do at the end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd)]
enum AppsStage {
    Stopping,
    /// Those of this worker have stopped.
    StoppedHere,
    /// Those of all workers have.
    StoppedEverywhere,
}

/// How far clients are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ClientsStage {
    /// There are some, or may be.
    Here,
    /// This worker has none any more.
    GoneHere,
    /// No worker has.
    GoneEverywhere,
}

/// How far services are with their end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ServicesStage {
    Untold,
    Told,
    /// Those of this worker have ended.
    EndedHere,
    /// Those of all workers have.
    EndedEverywhere,
}

/// Services are ended after so long.
const SERVICES_MS_MAX: u64 = 10_000;

/// What applications publish at the end gets this long to reach clients before those are told.
const LAST_PUBLICATIONS_MS: u64 = 20;

impl<A: AppHost, T> Worker<A, T> {
    /// Begins to go away within that many milliseconds. Once the applications of this worker have stopped,
    /// [`Request::AppsStopped`] says so.
    pub fn handle_drain(&mut self, within_ms: u64, parting: Parting) {
        self.shared.start_draining(parting);
        // While their connections are there: `app.stop` may have something to say to them.
        self.with_apps(|apps, shared| apps.stop(shared));
        let began_ms = self.shared.now.mono_ms;
        let before = self.drain.take();
        let apps = before.as_ref().map(|drain| drain.apps);
        let clients = before.as_ref().map(|drain| drain.clients);
        let services = before.map_or(ServicesStage::Untold, |drain| drain.services);
        let ends_ms = began_ms + within_ms;
        let servers_ms = ends_ms - within_ms / 20;
        if services == ServicesStage::Told {
            self.with_apps(|apps, shared| apps.stop_services(ends_ms, shared));
        }
        self.drain = Some(Drain {
            next: 0,
            end: self.slab.end(),
            // Applications have the first quarter, unless they need less.
            from_ms: began_ms + within_ms / 4,
            // The last fifth is for the closing handshakes.
            until_ms: began_ms + (within_ms - within_ms / 5),
            ends_ms,
            servers_ms,
            apps: match apps {
                None | Some(AppsStage::Stopping) => AppsStage::Stopping,
                Some(_) => AppsStage::StoppedHere,
            },
            clients: clients.unwrap_or(ClientsStage::Here),
            passed: 0,
            services,
            services_from_ms: match parting {
                // Its clients need them to the end.
                Parting::Stopping => ends_ms - within_ms / 10,
                // Those of the other process wait for their end.
                Parting::Replaced => began_ms,
            },
            back_ends_from_ms: match parting {
                // What they send reaches the clients that are still there.
                Parting::Stopping => servers_ms,
                Parting::Replaced => began_ms,
            },
            has_told_back_ends: false,
            has_told_servers: false,
        });
    }

    /// The time of the drain is over: connections that are left are aborted.
    pub fn handle_drain_over(&mut self) {
        for index in 0..self.slab.end() {
            if let Some(id) = self.slab.id_at(index) {
                self.handle_failed(id, "the server has stopped");
            }
        }
    }

    /// Commands about users of this worker may be lost, a disconnect or a refresh: each client with a user has to connect
    /// again.
    pub fn handle_commands_lost(&mut self) {
        let (code, reason) = CloseCode::InsufficientState.parts();
        for index in 0..self.slab.end() {
            let id = self.slab.id_at(index);
            if let Some(id) = id.filter(|id| self.shared.hub.user_of(*id).is_some()) {
                let kick = (id, code, reason.to_owned());
                self.shared.ports.kicks.push(kick);
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

    /// The last client of all workers is gone.
    pub fn handle_clients_gone(&mut self) {
        if let Some(drain) = &mut self.drain {
            drain.clients = ClientsStage::GoneEverywhere;
        }
    }

    /// The services of all workers have ended.
    pub fn handle_services_ended(&mut self) {
        if let Some(drain) = &mut self.drain {
            drain.services = ServicesStage::EndedEverywhere;
        }
    }

    /// Returns whether the worker is going away.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.drain.is_some()
    }

    /// Returns whether nothing may be dialed any more.
    #[must_use]
    pub fn has_told_servers(&self) -> bool {
        self.drain
            .as_ref()
            .is_some_and(|drain| drain.has_told_servers)
    }

    /// Tells the clients whose time in the drain has come.
    pub(crate) fn drain_clients(&mut self) {
        let has_stopped = self.drain.is_some() && self.apps().is_none_or(AppHost::has_stopped);
        let Some(drain) = &mut self.drain else { return };
        if has_stopped && drain.apps == AppsStage::Stopping {
            drain.apps = AppsStage::StoppedHere;
            self.requests.push_back(Request::AppsStopped);
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
        // The first connection need not wait for its share of the time.
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

    /// Starts to close back ends once the process has no client left that they could reach, or their time has come.
    pub(crate) fn drain_back_ends(&mut self) {
        let now_ms = self.shared.now.mono_ms;
        let Some(drain) = &mut self.drain else { return };
        let is_due =
            drain.clients == ClientsStage::GoneEverywhere || now_ms >= drain.back_ends_from_ms;
        if drain.has_told_back_ends || !is_due {
            return;
        }
        drain.has_told_back_ends = true;
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

    /// Reports that the last client of this worker is gone. One whose transport alone is left counts no more: a peer that
    /// does not close it holds nothing up.
    fn note_last_client(&mut self) {
        let Some(drain) = &mut self.drain else { return };
        if drain.clients != ClientsStage::Here || drain.apps != AppsStage::StoppedEverywhere {
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
        self.requests.push_back(Request::ClientsGone);
        self.is_busy = true;
    }

    /// Tells services to end once no client of the process is left, or the time has come, and reports their end.
    pub(crate) fn drain_services(&mut self) {
        self.note_last_client();
        let now_ms = self.shared.now.mono_ms;
        let Some(drain) = &mut self.drain else { return };
        let is_due =
            drain.clients == ClientsStage::GoneEverywhere || now_ms >= drain.services_from_ms;
        if drain.services == ServicesStage::Untold && is_due {
            drain.services = ServicesStage::Told;
            let until_ms = drain.ends_ms.min(now_ms + SERVICES_MS_MAX);
            self.with_apps(|apps, shared| apps.stop_services(until_ms, shared));
        }
        let have_ended = self.apps().is_none_or(AppHost::have_services_ended);
        if let Some(drain) = &mut self.drain
            && drain.services == ServicesStage::Told
            && have_ended
        {
            drain.services = ServicesStage::EndedHere;
            self.requests.push_back(Request::ServicesEnded);
            self.is_busy = true;
        }
    }

    /// Closes the connections to other servers once neither an application nor a client nor a service needs them, or has the
    /// time to.
    pub(crate) fn drain_servers(&mut self) {
        let now_ms = self.shared.now.mono_ms;
        let has_clients = self.shared.stats.connections.read() > 0;
        let Some(drain) = &mut self.drain else { return };
        // Services may use them after they were told, and the rest is for the closing handshakes.
        let is_late = now_ms >= drain.servers_ms;
        let is_needed = drain.apps != AppsStage::StoppedEverywhere
            || has_clients
            || drain.services != ServicesStage::EndedEverywhere;
        if drain.has_told_servers || is_needed && !is_late {
            return;
        }
        drain.has_told_servers = true;
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
