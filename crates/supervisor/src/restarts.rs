//! Counts of server processes that ended unexpectedly, by reason. The supervisor passes the counts to each server process that
//! it starts. The server process publishes them as metrics.

use serde::{Deserialize, Serialize};

/// Counts since the supervisor started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restarts {
    exited: u64,
    signaled: u64,
    hung: u64,
}

/// Why a server process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitReason {
    /// The process exited, with any code.
    Exit,
    /// The process was ended by a signal: a crash, the kernel's OOM killer, or a manual kill.
    Signal,
    /// The supervisor killed the process because it did not respond.
    Hang,
}

impl Restarts {
    /// Counts a server process that ended.
    pub fn count(&mut self, ending: ExitReason) {
        *match ending {
            ExitReason::Exit => &mut self.exited,
            ExitReason::Signal => &mut self.signaled,
            ExitReason::Hang => &mut self.hung,
        } += 1;
    }

    /// Returns all counts with their metric labels.
    pub fn by_reason(&self) -> [(&'static str, u64); 3] {
        [
            ("exit", self.exited),
            ("signal", self.signaled),
            ("hang", self.hung),
        ]
    }
}
