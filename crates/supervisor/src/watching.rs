//! Performs the actions of the [watchdog](super::watchdog): requests progress reports about the workers, and kills a
//! hung server process.

use std::time::Instant;

use tracing::{error, warn};
use veche_clock::now;

use super::Supervisor;
use super::watchdog::{Watchdog, WatchdogAction};
use crate::message::ToServer;
use crate::pulse::StuckWorker;

/// The target of this module's log lines.
const TARGET: &str = "veche::supervisor::watchdog";

impl Supervisor {
    /// Sends a watchdog request when it is due, and kills the server process if it hangs.
    pub(super) fn watch(&mut self, now: Instant) {
        let Some(timeout) = self.current.config.limits.watchdog_timeout else {
            return self.watchdog.switch_off();
        };
        let Some(server) = self.server.as_mut().filter(|server| server.is_ready) else {
            return;
        };
        // A stop needs no watchdog, because the drain has its own time limit.
        if self.stopping.is_some() {
            self.watchdog = Watchdog::default();
            return;
        }
        match self.watchdog.tick(now, timeout) {
            WatchdogAction::Nothing => {}
            WatchdogAction::Ask => {
                if let Err(error) = server.send(&ToServer::Pulse) {
                    warn!(target: TARGET, %error, "can't send a health check to the server process");
                }
            }
            WatchdogAction::Hung => self.replace_hung(&format!("no response for {timeout:?}")),
        }
    }

    /// Handles the server process's answer to a watchdog request.
    pub(super) fn take_pulse(&mut self, stuck: Option<StuckWorker>) {
        let timeout = self.current.config.limits.watchdog_timeout;
        let why = self.watchdog.answered(stuck, timeout);
        if let Some(why) = why.filter(|_| self.stopping.is_none()) {
            self.replace_hung(&why);
        }
    }

    fn replace_hung(&mut self, why: &str) {
        self.watchdog.hang();
        let Some(server) = &mut self.server else {
            return;
        };
        error!(
            target: TARGET,
            pid = server.pid(),
            "the server process hangs: {why}; killing it"
        );
        server.hung = Some(why.to_owned());
        server.kill();
        self.notifier
            .waits(&format!("the server process hangs: {why}"));
    }

    /// Starts watching the current server process.
    pub(super) fn begin_watch(&mut self) {
        self.watchdog = Watchdog::begin(now());
    }
}
