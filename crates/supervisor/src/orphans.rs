//! Reaps children of the supervisor that are not server processes: the spawners of worker processes, and orphaned processes
//! that the supervisor inherits as PID 1 of a container.

use std::fs;
use std::io;

use rustix::process::{Pid, WaitOptions, waitpid};
use tracing::debug;

use super::Supervisor;
use super::upgrade::UpgradeState;

/// The target of this module's log lines.
const TARGET: &str = "veche::supervisor::orphans";

impl Supervisor {
    /// Reaps spawners and inherited processes that have ended. The supervisor keeps no list of these children, so a
    /// handover has nothing to pass on.
    pub(super) fn reap_other_children(&self) {
        let candidate = self.upgrade.as_ref().map(UpgradeState::candidate);
        let retiring = self.retiring.iter().map(|retiring| &retiring.server);
        let servers = self.server.iter().chain(candidate).chain(retiring);
        let rehearsal = self.upgrade.as_ref().and_then(UpgradeState::rehearsal_pid);
        let own: Vec<u32> = servers
            .map(super::ServerChild::pid)
            .chain(rehearsal)
            .collect();
        for pid in children().unwrap_or_default() {
            if own.contains(&pid) {
                continue;
            }
            let raw = i32::try_from(pid).ok().and_then(Pid::from_raw);
            if let Ok(Some(_)) = waitpid(raw, WaitOptions::NOHANG) {
                debug!(target: TARGET, pid, "reaped a spawner or an inherited process");
            }
        }
    }
}

/// Returns the children of all threads of this process.
fn children() -> io::Result<Vec<u32>> {
    let mut pids = Vec::new();
    for thread in fs::read_dir("/proc/self/task")? {
        let list = fs::read_to_string(thread?.path().join("children"))?;
        pids.extend(
            list.split_ascii_whitespace()
                .filter_map(|pid| pid.parse::<u32>().ok()),
        );
    }
    Ok(pids)
}
