//! How often server processes ended by themselves, by what ended them. The supervisor counts, and tells each process that
//! it starts.

use serde::{Deserialize, Serialize};

/// Counts since the supervisor began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restarts {
    exited: u64,
    signaled: u64,
    hung: u64,
}

/// What ended a server process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitReason {
    /// It exited by itself, with whatever code.
    Exit,
    /// A signal: a crash, the kernel's OOM killer, a person.
    Signal,
    /// The supervisor killed it, since it did not answer.
    Hang,
}

impl Restarts {
    /// Counts one more server process that ended so.
    pub fn count(&mut self, ending: ExitReason) {
        *match ending {
            ExitReason::Exit => &mut self.exited,
            ExitReason::Signal => &mut self.signaled,
            ExitReason::Hang => &mut self.hung,
        } += 1;
    }

    /// All of them, with their labels in the metrics.
    pub fn by_reason(&self) -> [(&'static str, u64); 3] {
        [
            ("exit", self.exited),
            ("signal", self.signaled),
            ("hang", self.hung),
        ]
    }
}
