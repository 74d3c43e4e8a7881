//! Going away: applications are told first, then clients one after the other over the time of the drain, then the servers
//! that applications are connected to.

use veche_frontends::Parting;

use crate::apps::AppHost;
use crate::worker::{Request, Worker};

/// A drain under way: the connections `next..end` by index are still to be told.
pub(crate) struct Drain {
    next: u32,
    end: u32,
    /// Clients are told from then on.
    from_ms: u64,
    until_ms: u64,
    apps: AppsStage,
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
        let before = self.drain.take().map(|drain| drain.apps);
        self.drain = Some(Drain {
            next: 0,
            end: self.slab.end(),
            // Applications have the first quarter, unless they need less.
            from_ms: began_ms + within_ms / 4,
            // The last fifth is for the closing handshakes.
            until_ms: began_ms + (within_ms - within_ms / 5),
            apps: match before {
                None | Some(AppsStage::Stopping) => AppsStage::Stopping,
                Some(_) => AppsStage::StoppedHere,
            },
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
                    if connection.listener().is_some() {
                        connection.drain(id, shared);
                    }
                });
            }
        }
    }

    /// Closes the connections to other servers once neither an application nor a client needs them, or has the time to.
    pub(crate) fn drain_servers(&mut self) {
        let now_ms = self.shared.now.mono_ms;
        let has_clients = self.shared.stats.connections.read() > 0;
        let Some(drain) = &mut self.drain else { return };
        let is_late = now_ms >= drain.until_ms;
        let is_needed = drain.apps != AppsStage::StoppedEverywhere || has_clients;
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
