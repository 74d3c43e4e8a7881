//! Stops the server: its processes drain, and are killed at the end of the drain time or on request.

use std::time::{Duration, Instant};

use tracing::{info, warn};

use super::upgrade::RetiringServer;
use super::{Supervisor, SupervisorEnd};
use crate::message::ToServer;
use veche_clock::now;

/// The target of this module's log lines.
const TARGET: &str = "veche::supervisor::stopping";

/// The time that a draining server process has to exit on its own, in addition to its drain time.
pub(super) const DRAIN_GRACE: Duration = Duration::from_millis(500);

/// A stop in progress.
pub(super) struct Shutdown {
    kill_at: Instant,
    killed: bool,
}

impl Shutdown {
    /// Returns the time at which the server processes are killed; `None` if they have already been killed.
    pub(super) fn deadline(&self) -> Option<Instant> {
        (!self.killed).then_some(self.kill_at)
    }

    /// Returns the result of the stop. Called when every server process has ended.
    fn ended(&self) -> SupervisorEnd {
        if self.killed {
            SupervisorEnd::Killed
        } else {
            SupervisorEnd::Drained
        }
    }
}

impl Supervisor {
    /// Stops the server: its processes drain, or are killed immediately if `at_once` is set.
    pub(super) fn stop(&mut self, at_once: bool) {
        self.revive_at = None;
        self.change = None;
        self.notifier.stopping();
        self.fail_upgrade("veche is stopping");
        // Under `veche dev` the drain is short, because the only clients are the developer's own browser tabs, which
        // reconnect.
        let limits = &self.current.config.limits;
        let (lame_duck, drain_time) = match self.dev {
            true => (Duration::ZERO, Duration::ZERO),
            false => (limits.lame_duck_time, limits.drain_time),
        };
        if self.stopping.is_none() {
            self.stopping = Some(Shutdown {
                kill_at: now() + lame_duck + drain_time + DRAIN_GRACE,
                killed: false,
            });
        }
        if at_once {
            self.kill_to_stop();
            return;
        }
        info!(target: TARGET, after = ?lame_duck, within = ?drain_time, "draining");
        // Replaced processes are already draining.
        if let Some(server) = &mut self.server
            && let Err(error) = server.send(&ToServer::drain_to_stop(lame_duck, drain_time))
        {
            warn!(target: TARGET, %error, "can't tell the server process to drain");
        }
    }

    /// Ends the supervisor when no server process is left.
    pub(super) fn end_when_stopped(&mut self) {
        if self.server.is_none()
            && self.retiring.is_empty()
            && let Some(stopping) = &self.stopping
        {
            self.ended = Some(stopping.ended());
        }
    }

    fn kill_to_stop(&mut self) {
        if let Some(stopping) = &mut self.stopping {
            stopping.killed = true;
        }
        if let Some(server) = &mut self.server {
            warn!(target: TARGET, pid = server.pid(), "killing the server process");
            server.kill();
        }
        self.retiring.iter_mut().for_each(RetiringServer::kill);
    }

    /// Kills server processes whose drain has exceeded its time.
    pub(super) fn end_drain(&mut self, now: Instant) {
        let deadline = self.stopping.as_ref().and_then(Shutdown::deadline);
        if deadline.is_some_and(|deadline| now >= deadline) {
            warn!(target: TARGET, "drain time is over: killing the remaining server processes");
            self.kill_to_stop();
        }
    }
}
