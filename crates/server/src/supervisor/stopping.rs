//! The end: a drain with its time, and the kill when that is over or nobody wants to wait.

use std::time::{Duration, Instant};

use tracing::{info, warn};

use super::{Ended, Supervisor};
use crate::process::message::ToServer;
use crate::process::now;

/// What a draining server process gets beyond its time, to end by itself.
const DRAIN_GRACE: Duration = Duration::from_millis(500);

/// A stop under way.
pub(super) struct Stopping {
    kill_at: Instant,
    killed: bool,
}

impl Stopping {
    /// When the server process is killed, unless it was.
    pub(super) fn deadline(&self) -> Option<Instant> {
        (!self.killed).then_some(self.kill_at)
    }

    /// What it came to, now that the server process has ended.
    pub(super) fn ended(&self) -> Ended {
        if self.killed {
            Ended::Killed
        } else {
            Ended::Drained
        }
    }
}

impl Supervisor {
    /// Drains, or with `at_once` kills.
    pub(super) fn stop(&mut self, at_once: bool) {
        self.revive_at = None;
        let Some(server) = &mut self.server else {
            self.ended = Some(Ended::Drained);
            return;
        };
        let drain_time = self.current.config.limits.drain_time;
        if self.stopping.is_none() {
            self.stopping = Some(Stopping {
                kill_at: now() + drain_time + DRAIN_GRACE,
                killed: false,
            });
        }
        if at_once {
            self.kill_to_stop();
            return;
        }
        info!(within = ?drain_time, "draining");
        let within_ms = u64::try_from(drain_time.as_millis()).unwrap_or(u64::MAX);
        if let Err(error) = server.say(&ToServer::Drain { within_ms }) {
            warn!(%error, "the server process can't be told to drain");
        }
    }

    fn kill_to_stop(&mut self) {
        if let Some(stopping) = &mut self.stopping {
            stopping.killed = true;
        }
        if let Some(server) = &mut self.server {
            warn!(pid = server.pid(), "killing the server process");
            server.kill();
        }
    }

    /// Kills a server process whose time to drain is over.
    pub(super) fn end_drain(&mut self, now: Instant) {
        let deadline = self.stopping.as_ref().and_then(Stopping::deadline);
        if deadline.is_some_and(|deadline| now >= deadline) {
            warn!("the time to drain is over");
            self.kill_to_stop();
        }
    }
}
