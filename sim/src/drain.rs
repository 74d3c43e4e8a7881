//! A graceful shutdown: applications stop, clients are notified one after the other, and another process starts when
//! all clients have gone.

use std::collections::BTreeSet;

use veche_frontends::ShutdownReason;

use crate::client_transport::ClientTransport;
use crate::coverage::CoverageEvent;
use crate::failure::{PromiseResult, promise};
use crate::network::Link;
use crate::phase::Phase;
use crate::world::World;

/// The code of Centrifugo's protocol for a server that shuts down, whether or not it is replaced.
const SHUTDOWN: u16 = 3001;

/// The part of the drain's time, in tenths, in which all clients are notified. The rest is for closing handshakes.
const NOTIFY_TENTHS: u64 = 8;

/// Number of equal steps in which the simulated time advances to the end of a drain.
const STEPS: u64 = 10;

/// A drain in progress.
pub(crate) struct PendingDrain {
    began_ms: u64,
    within_ms: u64,
    salt: u32,
    /// The connected clients with their workers.
    clients: Vec<(usize, usize)>,
    /// The number of connection slots of each worker.
    places: Vec<usize>,
    /// Workers whose applications have stopped.
    stopped: BTreeSet<usize>,
}

impl World {
    /// Starts a drain of the process.
    pub(crate) fn drain(&mut self, within_ms: u64, is_replaced: bool, salt: u32) -> PromiseResult {
        if self.drain.is_some() {
            return Ok(());
        }
        let shutdown_reason = match is_replaced {
            true => ShutdownReason::Replaced,
            false => ShutdownReason::Stopping,
        };
        let workers = &mut self.process.workers;
        let worker_of = |link: &Link| link.server.map(|(worker, _)| worker);
        let mut clients = Vec::new();
        for (number, client) in self.peers.clients.iter_mut().enumerate() {
            let link = client.link.and_then(|id| self.network.links.get(&id));
            if let Some(worker) = link.and_then(worker_of) {
                client.drain_code = Some(SHUTDOWN);
                // An HTTP client that is not online yet gets the notice when its response opens.
                if client.transport == ClientTransport::WebSocket || client.phase == Phase::Online {
                    clients.push((number, worker));
                }
            }
        }
        for listener in &mut self.peers.listeners {
            let link = listener.link.and_then(|id| self.network.links.get(&id));
            if link.and_then(worker_of).is_some() {
                listener.drain_code = Some(shutdown_reason.close_code_and_reason().0);
            }
        }
        for one in &mut self.peers.one_ways {
            let link = one.link.and_then(|id| self.network.links.get(&id));
            if link.and_then(worker_of).is_some() {
                one.drain_code = Some(SHUTDOWN);
            }
        }
        self.drain = Some(PendingDrain {
            began_ms: self.now_ms,
            within_ms,
            salt,
            clients,
            places: workers.iter().map(|worker| worker.places()).collect(),
            stopped: BTreeSet::new(),
        });
        for worker in workers {
            worker.drain(within_ms, shutdown_reason);
        }
        // All workers begin the drain now, even a worker with more waiting messages than it handles in a turn,
        // because the time of the drain is the same for all workers.
        for worker in 0..self.process.workers.len() {
            self.turn(worker, Some(salt))?;
            while !self.process.workers[worker].shared().is_draining() {
                self.turn(worker, None)?;
            }
        }
        Ok(())
    }

    /// Records that the applications of a worker have stopped.
    pub(crate) fn note_stopped(&mut self, worker: usize) -> PromiseResult {
        let Some(drain) = &mut self.drain else {
            promise!(false, "applications stop in a drain", "of worker {worker}");
            return Ok(());
        };
        promise!(
            drain.stopped.insert(worker),
            "the applications of a worker stop once",
            "of worker {worker}"
        );
        Ok(())
    }

    /// Checks the invariants while clients are notified.
    pub(crate) fn check_drain(&mut self) -> PromiseResult {
        let Some(drain) = &self.drain else {
            return Ok(());
        };
        let elapsed_ms = self.now_ms - drain.began_ms;
        let telling_ms = drain.within_ms * NOTIFY_TENTHS / 10;
        let is_notified = |client: &usize| self.peers.clients[*client].has_drained;
        let has_stopped = drain.stopped.len() == self.process.workers.len();
        for (worker, places) in drain.places.iter().enumerate() {
            let its = drain.clients.iter().filter(|(_, of)| *of == worker);
            let notified = its.filter(|(client, _)| is_notified(client)).count();
            promise!(
                notified == 0 || has_stopped || elapsed_ms >= drain.within_ms / 4,
                "applications stop before clients are closed",
                "{notified} clients are closed after {elapsed_ms} of {} ms",
                drain.within_ms
            );
            let due = *places as u64 * elapsed_ms.min(telling_ms) / telling_ms.max(1);
            promise!(
                elapsed_ms >= telling_ms || notified as u64 <= due + 1,
                "clients are closed over the time of a drain",
                "{notified} of {places} clients are closed after {elapsed_ms} of {telling_ms} ms"
            );
        }
        match elapsed_ms >= drain.within_ms {
            true => self.finish_drain(),
            false => Ok(()),
        }
    }

    /// Advances the clock to the end of a drain, if there is one.
    pub(crate) fn wait_for_drain(&mut self) -> PromiseResult {
        let Some(drain) = &self.drain else {
            return Ok(());
        };
        let end_ms = drain.began_ms + drain.within_ms;
        let step_ms = end_ms.saturating_sub(self.now_ms) / STEPS;
        for _ in 0..STEPS {
            self.rest()?;
            self.advance_time(step_ms);
            self.check_drain()?;
        }
        self.advance_time(end_ms.saturating_sub(self.now_ms));
        self.check_drain()
    }

    /// Ends a drain whose time is over: checks that all clients have gone, and starts another process.
    fn finish_drain(&mut self) -> PromiseResult {
        self.rest()?;
        for (id, link) in &self.network.links {
            promise!(
                link.server.is_none() || !link.has_client || !self.peers.reads(link.client),
                "connections are closed when a drain is over",
                "link {id} of client {} is open",
                link.client
            );
        }
        self.ledger.seen.note(CoverageEvent::Drained);
        self.check_decisions(false)?;
        self.check_dials(false)?;
        let salt = self.drain.take().map_or(0, |drain| drain.salt);
        self.crash(salt)
    }
}
